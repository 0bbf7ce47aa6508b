"""A grid with a simulated clock: evaluations take the time that a model of durations says.

Messages are answered by another grid as fast as it can. Their replies are delivered in the order of simulated
time, so hours of stragglers pass in seconds and repeat exactly.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

from flwr.app import ConfigRecord, Message

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.durations import Duration, durations, parse_durations
from fbo_flower.simulation.grids import LocalGrid
from fbo_flower.simulation.settings import Clock
from fbo_flower.strategies.clocked import Clocked, SentAt
from fbo_flower.strategies.forwarding_grid import ForwardingGrid
from fbo_flower.study.schema import TIMES
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table


class ClockedGrid(Clocked, ForwardingGrid):
    """A grid whose nodes answer after the simulated duration of their evaluations.

    Parameters
    ----------
    inner : the grid that answers the messages
    duration : of an evaluation, by agent and trial
    seed : of the durations
    exchange_seconds : time on the way of a task and its reply together, half of it in either direction
    """

    def __init__(
        self, inner: LocalGrid, duration: Duration, seed: int, exchange_seconds: float = 0.0
    ) -> None:
        super().__init__(inner)
        self._inner, self._duration, self._seed = inner, duration, seed
        self._one_way = exchange_seconds / 2.0
        self._now = 0.0
        self._free: dict[str, float] = {}  # agent -> when it has done its tasks
        self._times: dict[tuple[str, int], tuple[float, float]] = {}
        self._unread: set[str] = set()  # ids of the messages whose replies nobody has pulled
        self._heap: list[tuple[float, int, str]] = []  # of them: when the reply is due, place, id
        self._arrived: dict[str, Message] = {}
        self._num_sent = 0
        # agent -> first trial and number of trials of its last task from before, and when its reply was due
        self._restored: dict[str, tuple[int, int, float]] = {}

    # -- the clock -----------------------------------------------------------------------------

    def now(self) -> float:
        """Return the seconds since the simulation began."""
        return self._now

    def advance(self, to: float) -> None:
        """Let time pass until `to`, in which nothing happens."""
        self._now = max(self._now, to)

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""
        ids = list(message_ids)
        return any(i in self._arrived for i in ids) or self._inner.awaits(ids)

    def restore(self, now: float, sent: Sequence[SentAt]) -> None:
        """Set the clock to `now`, after these tasks were sent in an earlier process."""
        for task in sent:
            reply_due = self._do_work(task) + self._one_way
            self._restored[task.agent] = task.trial, task.num_trials, reply_due
        self._now = now

    @property
    def times(self) -> Mapping[tuple[str, int], tuple[float, float]]:
        """Agent and trial -> start and end of its evaluation, in simulated seconds."""
        return self._times

    # -- Flower's interface --------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages, and set when their replies are due."""
        listed = list(messages)
        due = [self._due_time(message) for message in listed]
        ids = [str(i) for i in self._inner.push_messages(listed)]
        for message_id, seconds in zip(ids, due, strict=True):
            self._num_sent += 1
            self._unread.add(message_id)
            heapq.heappush(self._heap, (seconds, self._num_sent, message_id))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are due next, once they have arrived; the clock advances to that time."""
        wanted = set(message_ids)
        for reply in self._inner.pull_messages([i for i in wanted & self._unread if i not in self._arrived]):
            self._arrived[reply.metadata.reply_to_message_id] = reply
        found: list[Message] = []
        skipped: list[tuple[float, int, str]] = []
        while self._heap:
            entry = heapq.heappop(self._heap)
            seconds, _, message_id = entry
            is_lost = message_id not in self._arrived and not self._inner.awaits([message_id])
            if message_id not in wanted or is_lost:
                skipped.append(entry)  # somebody else may ask for it later
                continue
            if (found and seconds > self._now) or message_id not in self._arrived:
                skipped.append(entry)
                break
            self.advance(seconds)
            found.append(self._arrived.pop(message_id))
            self._unread.remove(message_id)
        for entry in skipped:
            heapq.heappush(self._heap, entry)
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push messages and return their replies, in the order of simulated time."""
        waiting, replies = set(self.push_messages(messages)), []
        while waiting:
            new = self.pull_messages(waiting)
            replies += new
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            if not new and not self._inner.awaits(waiting):
                break
        return replies

    # -- durations -----------------------------------------------------------------------------

    def _due_time(self, message: Message) -> float:
        """Return when the reply to a message is due, and note the times of its evaluations."""
        config = message.content.get("config") if message.has_content() else None
        if not isinstance(config, ConfigRecord) or "num-trials" not in config:
            return self._now
        agent, trial, num_trials = (config[name] for name in ("agent", "trial", "num-trials"))
        task = SentAt(self._now, str(agent), int(str(trial)), int(str(num_trials)))
        *known, reply_due = self._restored.pop(task.agent, (-1, 0, 0.0))
        if known == [task.trial, task.num_trials]:
            return max(self._now, reply_due)  # under way when the earlier process ended: it is not sent twice
        return max(self._now, self._do_work(task) + self._one_way)

    def _do_work(self, task: SentAt) -> float:
        """Return when an agent has done a task, and note the times of its evaluations."""
        agent = task.agent
        time = max(task.time + self._one_way, self._free.get(agent, 0.0))
        for trial in range(task.trial, task.trial + task.num_trials):
            if (agent, trial) in self._times:  # a task that is sent again was done the first time
                time = max(time, self._times[agent, trial][1])
                continue
            seconds = float(self._duration(agent, trial, generator(self._seed, "duration", agent, trial)))
            if not 0.0 <= seconds < math.inf:
                raise ConfigError(
                    f"durations: expected seconds that are finite and not negative, got {seconds!r} for "
                    f"trial {trial} of agent {agent!r}"
                )
            self._times[agent, trial] = time, time + seconds
            time += seconds
        self._free[agent] = time
        return time


def duration_of(clock: Clock | None, engine: str) -> Duration | None:
    """Return how long the evaluations of a simulation take, or ConfigError; None: there is no clock."""
    if clock is None:
        return None
    if engine == "flower":
        raise ConfigError("clock: expected engine 'inline' or 'ray', got 'flower', which has a real clock")
    return (
        parse_durations(clock.durations) if isinstance(clock.durations, str) else durations(clock.durations)
    )


def with_simulated_times(study: Study, times: Mapping[tuple[str, int], tuple[float, float]]) -> Study:
    """Return the study with the times of a `ClockedGrid` for its disclosed trials, not measured ones."""
    label, trials = study.algorithms[0], study.trials
    rows = [
        {"algorithm": label, "agent": agent, "trial": trial, "started": start, "ended": end}
        for agent, trial in zip(trials["agent"].tolist(), trials["trial"].tolist(), strict=True)
        if (agent, trial) in times
        for start, end in [times[agent, trial]]
    ]
    return study.with_times(Table.from_rows(rows, TIMES))
