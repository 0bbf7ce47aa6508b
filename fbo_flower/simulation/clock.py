"""A grid with a simulated clock: evaluations take the time that a model of durations says.

Messages are answered by another grid as fast as it can. Their replies are delivered in the order of simulated
time, so hours of stragglers pass in seconds and repeat exactly.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.durations import Duration, Durations, durations
from fbo_flower.simulation.grids import LocalGrid
from fbo_flower.study.schema import TIMES
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table


@dataclass
class _Clock:
    """What the simulation knows about time.

    Parameters
    ----------
    now : seconds
    free : node -> when it has done its tasks
    began : node -> when it began the task that it gets again
    times : agent and trial -> start and end of the evaluation
    """

    now: float = 0.0
    free: dict[int, float] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    times: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)


class ClockedGrid(Grid):
    """A grid whose nodes answer after the simulated duration of their evaluations.

    Parameters
    ----------
    inner : the grid that answers the messages
    duration : of an evaluation, by agent and trial
    seed : of the durations
    """

    def __init__(self, inner: LocalGrid, duration: Duration, seed: int) -> None:
        self._inner = inner
        self._duration = duration
        self._seed = seed
        self._clock = _Clock()
        self._unread: set[str] = set()  # ids of the messages whose replies nobody has pulled
        self._heap: list[tuple[float, int, str]] = []  # of them: when the reply is due, place, id
        self._arrived: dict[str, Message] = {}
        self._num_sent = 0

    # -- the clock -----------------------------------------------------------------------------

    def now(self) -> float:
        """Return the seconds since the simulation began."""
        return self._clock.now

    def advance(self, to: float) -> None:
        """Let time pass until `to`, in which nothing happens."""
        self._clock.now = max(self._clock.now, to)

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""
        ids = list(message_ids)
        return any(i in self._arrived for i in ids) or self._inner.awaits(ids)

    def restore(self, now: float, began: Mapping[int, float]) -> None:
        """Set the clock to `now`, and the time at which nodes began the tasks that they will get again."""
        self._clock.now, self._clock.began = now, dict(began)

    @property
    def times(self) -> Mapping[tuple[str, int], tuple[float, float]]:
        """Agent and trial -> start and end of its evaluation, in simulated seconds."""
        return self._clock.times

    # -- Flower's interface --------------------------------------------------------------------

    def set_run(self, run: Run) -> None:
        """Do nothing, because the grid has a single run."""

    @property
    def run(self) -> Run:
        """Return the grid's only run."""
        return self._inner.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to a node."""
        return self._inner.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> list[int]:
        """Return the ids of the connected nodes."""
        return self._inner.get_node_ids()

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
            if message_id not in wanted:
                skipped.append(entry)  # somebody else may ask for it later
                continue
            if message_id not in self._arrived and not self._inner.awaits([message_id]):
                skipped.append(entry)  # it is lost
                continue
            if (found and seconds > self._clock.now) or message_id not in self._arrived:
                skipped.append(entry)
                break
            self._clock.now = max(self._clock.now, seconds)
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
        clock, node = self._clock, message.metadata.dst_node_id
        task = _task(message)
        if task is None:
            return clock.now
        agent, trial, num_trials = task
        time = clock.began.pop(node, max(clock.now, clock.free.get(node, 0.0)))
        for place in range(trial, trial + num_trials):
            if (agent, place) in clock.times:  # a task that is sent again was done the first time
                time = clock.times[agent, place][1]
                continue
            seconds = float(self._duration(agent, place, generator(self._seed, "duration", agent, place)))
            if not 0.0 <= seconds < math.inf:
                raise ConfigError(
                    f"durations: expected seconds that are finite and not negative, got {seconds!r} for "
                    f"trial {place} of agent {agent!r}"
                )
            clock.times[agent, place] = time, time + seconds
            time += seconds
        clock.free[node] = time = max(clock.now, time)
        return time


class SimulatedClock:
    """The clock of one simulation; without durations it changes nothing."""

    def __init__(self, given: Durations | None, seed: int) -> None:
        self._duration = None if given is None else durations(given)
        self._seed = seed
        self._times: Mapping[tuple[str, int], tuple[float, float]] | None = None

    def around(self, start: Callable[[Grid], Study]) -> Callable[[Grid], Study]:
        """Return `start` on a grid with the simulated clock."""
        duration = self._duration
        if duration is None:
            return start

        def clocked(grid: Grid) -> Study:
            if not isinstance(grid, LocalGrid):
                raise ConfigError("durations: expected engine 'inline' or 'ray', got 'flower'")
            found = ClockedGrid(grid, duration, self._seed)
            self._times = found.times
            return start(found)

        return clocked

    def with_times(self, study: Study) -> Study:
        """Return the study with simulated times of the disclosed trials instead of measured ones."""
        if self._times is None:
            return study
        label, trials = study.algorithms[0], study.trials
        rows = [
            {"algorithm": label, "agent": agent, "trial": trial, "started": start, "ended": end}
            for agent, trial in zip(trials["agent"].tolist(), trials["trial"].tolist(), strict=True)
            if (agent, trial) in self._times
            for start, end in [self._times[agent, trial]]
        ]
        return study.with_times(Table.from_rows(rows, TIMES))


def _task(message: Message) -> tuple[str, int, int] | None:
    """Return agent, first trial and number of trials of the task in a message; None if it holds none."""
    config = message.content.get("config") if message.has_content() else None
    if not isinstance(config, ConfigRecord) or "num-trials" not in config:
        return None
    return str(config["agent"]), int(str(config["trial"])), int(str(config["num-trials"]))
