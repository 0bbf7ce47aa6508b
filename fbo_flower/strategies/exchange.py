"""Send messages to many nodes, and collect their replies until all have arrived or the time is over.

A generator yields each `Exchange`, and is sent the answers as they arrive. `drive` sends its messages over a
grid; Flower's loop does the same through the hooks of the strategy. `Clocked` is what a grid with a simulated
clock can do, in which time is computed instead of spent.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from logging import INFO, WARNING
from typing import Any, Generic, ParamSpec, TypeVar

from flwr.app import Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fbo_flower.algorithms.records import Phase


@dataclass(frozen=True)
class SentAt:
    """A task that was sent.

    Parameters
    ----------
    time : seconds of the simulated clock
    agent : by its own name
    trial, num_trials : its first evaluation and how many it asks for
    """

    time: float
    agent: str
    trial: int
    num_trials: int


class Clocked(ABC):
    """A grid that knows the time of its simulation."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since the simulation began."""

    @abstractmethod
    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""

    @abstractmethod
    def advance(self, to: float) -> None:
        """Let time pass until `to`, in which nothing happens."""

    @abstractmethod
    def restore(self, now: float, sent: Sequence[SentAt]) -> None:
        """Set the clock to `now`, after these tasks were sent in an earlier process."""


REPORT_SECONDS = 2.0  # between two lines about replies that have come
_FIRST_WAIT, _LAST_WAIT, _GROWTH = 0.002, 0.2, 1.3  # seconds between two polls
_MAX_LOOK = 1.0  # seconds for which a generator waits at most until it is sent what has arrived
Key = TypeVar("Key", int, str)
Result = TypeVar("Result")
P = ParamSpec("P")


class Stopped(Exception):  # noqa: N818  # not an error: the caller asked for it
    """`TuningStrategy.stop` was called while the strategy waited for nodes or replies."""


class ReplyProgress:
    """Logs how many of `total` replies have come while the others take their time, each number once."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = 0
        self._logged, self._last = time.monotonic(), -1

    def add(self, number: int = 1) -> None:
        """Count more replies; the bar of `fbo-flower simulate` shows the line's attribute `replies`."""
        self.count += number
        is_new = self.count != self._last
        if is_new and self.count < self.total and time.monotonic() - self._logged >= REPORT_SECONDS:
            self._logged, self._last = time.monotonic(), self.count
            text = f"{self.count} of {self.total} replies"
            log(INFO, "... %s so far", text, extra={"replies": text})


@dataclass(frozen=True)
class Exchange(Generic[Key]):
    """Messages to nodes, whose answers are sent to the generator that yields them.

    Parameters
    ----------
    messages : each with a key, such as its agent; an iterator makes them while they are read
    timeout : seconds after which a message is given up; a later reply to it is not read
    phase : of the half-round; None: no task is sent
    goes_on : whether answers to the messages of the exchanges before it are still awaited
    sent_before : key -> when its message was sent for the first time, if not now
    """

    messages: Iterable[tuple[Key, Message]]
    timeout: float
    phase: Phase | None = None
    goes_on: bool = False
    sent_before: Mapping[Key, float] = field(default_factory=dict)


@dataclass
class UnderWay(Generic[Key]):
    """Messages without a reply, each under a key such as its agent: answered in any order, or given up.

    Parameters
    ----------
    clock : the clock of a simulation, by which messages are given up; None: the real time
    """

    grid: Grid
    stop: threading.Event
    clock: Clocked | None = None
    # id of a message -> its key, and when it is given up
    _open: dict[str, tuple[Key, float]] = field(default_factory=dict)
    _next: float = math.inf  # no message is given up before
    _wait: float = _FIRST_WAIT  # until the next look, while nothing comes

    def __post_init__(self) -> None:
        self.now = time.monotonic if self.clock is None else self.clock.now

    def __len__(self) -> int:
        return len(self._open)

    def send(self, exchange: Exchange[Key]) -> list[Key]:
        """Send messages, and return the keys of those that could not be sent: their nodes have left.

        A grid with `messages_at_once` works on the first messages while the others are made.
        """
        left, timeout, unsent = iter(exchange.messages), exchange.timeout, list[Key]()
        part: dict[Key, Message]
        while part := dict(islice(left, getattr(self.grid, "messages_at_once", None))):
            for message in part.values():  # the SuperLink drops older ones, and the replies to them
                message.metadata.ttl = max(message.metadata.ttl, timeout)
            ids = [*map(str, filter(None, self.grid.push_messages(list(part.values()))))]
            keys = dict(zip(ids, part, strict=False))  # some grids give a message its id when they send it
            if len(ids) != len(part):
                known = {message.metadata.message_id: key for key, message in part.items()}
                keys = {message_id: known[message_id] for message_id in ids if message_id in known}
            now = self.now()
            for message_id, key in keys.items():
                self._open[message_id] = key, exchange.sent_before.get(key, now) + timeout
                self._next = min(self._next, self._open[message_id][1])
                del part[key]
            unsent += part
        return unsent

    def receive(self, seconds: float) -> dict[Key, Message | None]:
        """Return key -> reply: of all that have arrived as soon as one has, none after `seconds`.

        The reply to a message that was given up is None.

        Raises
        ------
        Stopped
            If `stop` is set while replies are missing.
        """
        replies: dict[Key, Message | None] = {}
        end = time.monotonic() + seconds
        while not replies and self._open:
            if self.stop.is_set():
                raise Stopped
            # the ids themselves, not a copy: a poll costs as much as has arrived, not as much as is missing
            for reply in list(self.grid.pull_messages(self._open.keys())):
                # the source node of an error may be the SuperLink itself; only the message id is reliable
                message_id = reply.metadata.reply_to_message_id
                if message_id in self._open:
                    replies[self._open.pop(message_id)[0]] = reply
            if not replies and self.clock is not None and not self.clock.awaits(self._open):
                self.clock.advance(min(deadline for _, deadline in self._open.values()))
            now = self.now()
            if now >= self._next:
                late = [i for i, (_, deadline) in self._open.items() if deadline <= now]
                replies |= {self._open.pop(message_id)[0]: None for message_id in late}
                self._next = min((deadline for _, deadline in self._open.values()), default=math.inf)
            left = end - time.monotonic()
            if replies or left <= 0.0:
                break
            until = _LAST_WAIT if self.clock is not None else max(self._next - now, 0.0)
            self.stop.wait(min(self._wait, left, until))
            self._wait = min(self._wait * _GROWTH, _LAST_WAIT)
        self._wait = _FIRST_WAIT if replies else self._wait
        return replies


# is sent key -> reply, of all that have arrived since the exchange before; None: the message was given up
Exchanges = Generator[Exchange[Any], Mapping[Any, Message | None], Result]


def drive(
    grid: Grid, exchanges: Exchanges[Result], stop: threading.Event, clock: Clocked | None = None
) -> Result:
    """Send the messages of every exchange over the grid and its answers back; return what comes at the end.

    Parameters
    ----------
    stop : ends the wait for answers when it is set
    clock : the clock of a simulation, by which messages are given up; None: the real time

    Raises
    ------
    Stopped
        If `stop` is set while answers are missing.
    """
    answers: Mapping[Any, Message | None] | None = None
    under_way, progress = UnderWay[Any](grid, stop, clock), None
    while True:
        try:
            exchange = exchanges.send(answers)  # type: ignore[arg-type]  # a generator begins with None
        except StopIteration as end:
            result: Result = end.value
            return result
        before = len(under_way)
        if not exchange.goes_on:
            under_way = UnderWay[Any](grid, stop, clock)
        gone = under_way.send(exchange)
        if not exchange.goes_on:
            progress = ReplyProgress(len(under_way))
            if gone:
                text = "%d of %d messages could not be sent: their nodes have left"
                log(WARNING, text, len(gone), len(gone) + len(under_way))
        elif answers and before == len(under_way):
            stop.wait(_FIRST_WAIT)
        answers = dict.fromkeys(gone) or under_way.receive(_MAX_LOOK)
        if progress is not None:
            progress.add(len(answers) - list(answers.values()).count(None))


def collected(
    exchange: Exchange[Key], on_replies: Callable[[Mapping[Key, Message]], None] | None = None
) -> Exchanges[dict[Key, Message]]:
    """Yield an exchange until its messages are answered or given up; return key -> reply, of those answered.

    Parameters
    ----------
    on_replies : called with new replies as they arrive
    """
    messages, replies = dict(exchange.messages), dict[Key, Message]()
    missing = set(messages)
    answers = yield replace(exchange, messages=messages.items())
    while True:
        arrived = {key: reply for key, reply in answers.items() if reply is not None}
        replies |= arrived
        missing -= answers.keys()
        if arrived and on_replies is not None:
            on_replies(arrived)
        if not missing:
            return replies
        answers = yield replace(exchange, messages=(), goes_on=True)


def send_and_receive(
    grid: Grid,
    messages: Iterable[Message],
    timeout: float,
    stop: threading.Event,
    on_replies: Callable[[Mapping[int, Message]], None] | None = None,
) -> dict[int, Message]:
    """Send messages and return position of the message -> reply, for the replies that came in time.

    `timeout` counts in seconds; later replies are dropped. `collected` explains `on_replies`.

    Raises
    ------
    Stopped
        If `stop` is set while replies are missing.
    """
    return drive(grid, collected(Exchange(enumerate(messages), timeout), on_replies), stop)


class MessageGrid(Grid):
    """A grid whose messages are those of Flower's message API."""

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)


class ForwardingGrid(MessageGrid):
    """A grid in front of another grid.

    Parameters
    ----------
    grid : Flower's grid, which sends and receives the messages

    Attributes
    ----------
    within : the other grid
    since : since when a call of that grid has been under way, by `time.monotonic`; None: none is
    """

    def __init__(self, grid: Grid) -> None:
        self.within = grid
        self.since: float | None = None

    def _call(self, method: Callable[P, Result], *args: P.args, **given: P.kwargs) -> Result:
        self.since = time.monotonic()
        try:
            return method(*args, **given)
        finally:
            self.since = None

    def set_run(self, run: Run) -> None:
        """Set the run of the other grid."""
        self.within.set_run(run)

    @property
    def run(self) -> Run:
        """Return the run of the other grid."""
        return self.within.run

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the connected nodes."""
        return self._call(self.within.get_node_ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._call(self.within.push_messages, messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived."""
        return self._call(self.within.pull_messages, message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return their replies."""
        return self.within.send_and_receive(messages, timeout=timeout)
