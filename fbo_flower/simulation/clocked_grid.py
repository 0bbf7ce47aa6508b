"""A grid with a simulated clock: evaluations take the time that a model of durations says.

Messages are answered by another grid as fast as it can. Their replies are delivered in the order of simulated
time, so hours of stragglers pass in seconds and repeat exactly.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.durations import Duration
from fbo_flower.simulation.grids import LocalGrid
from fbo_flower.strategies.clocked import Clocked, SentAt


@dataclass
class _Clock:
    """What the simulation knows about time.

    Parameters
    ----------
    now : seconds
    free : agent -> when it has done its tasks
    times : agent and trial -> start and end of the evaluation
    """

    now: float = 0.0
    free: dict[str, float] = field(default_factory=dict)
    times: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)


class ClockedGrid(Clocked, Grid):
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
        self._inner = inner
        self._duration = duration
        self._seed = seed
        self._one_way = exchange_seconds / 2.0
        self._clock = _Clock()
        self._unread: set[str] = set()  # ids of the messages whose replies nobody has pulled
        self._heap: list[tuple[float, int, str]] = []  # of them: when the reply is due, place, id
        self._arrived: dict[str, Message] = {}
        self._num_sent = 0
        # agent -> first trial and number of trials of its last task from before, and when its reply was due
        self._restored: dict[str, tuple[int, int, float]] = {}

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

    def restore(self, now: float, sent: Sequence[SentAt]) -> None:
        """Set the clock to `now`, after these tasks were sent in an earlier process."""
        for task in sent:
            reply_due = self._do_work(task) + self._one_way
            self._restored[task.agent] = task.trial, task.num_trials, reply_due
        self._clock.now = now

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
        now = self._clock.now
        task = _task(message, now)
        if task is None:
            return now
        trial, num_trials, reply_due = self._restored.pop(task.agent, (-1, 0, 0.0))
        if (trial, num_trials) == (task.trial, task.num_trials):
            return max(now, reply_due)  # under way when the earlier process ended: it is not sent twice
        return max(now, self._do_work(task) + self._one_way)

    def _do_work(self, task: SentAt) -> float:
        """Return when an agent has done a task, and note the times of its evaluations."""
        clock, agent = self._clock, task.agent
        time = max(task.time + self._one_way, clock.free.get(agent, 0.0))
        for trial in range(task.trial, task.trial + task.num_trials):
            if (agent, trial) in clock.times:  # a task that is sent again was done the first time
                time = max(time, clock.times[agent, trial][1])
                continue
            seconds = float(self._duration(agent, trial, generator(self._seed, "duration", agent, trial)))
            if not 0.0 <= seconds < math.inf:
                raise ConfigError(
                    f"durations: expected seconds that are finite and not negative, got {seconds!r} for "
                    f"trial {trial} of agent {agent!r}"
                )
            clock.times[agent, trial] = time, time + seconds
            time += seconds
        clock.free[agent] = time
        return time


def _task(message: Message, now: float) -> SentAt | None:
    """Return the task in a message that is sent now; None if it holds none."""
    config = message.content.get("config") if message.has_content() else None
    if not isinstance(config, ConfigRecord) or "num-trials" not in config:
        return None
    return SentAt(now, str(config["agent"]), int(str(config["trial"])), int(str(config["num-trials"])))
