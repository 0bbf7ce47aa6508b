"""Send messages to many nodes, and collect their replies until all have arrived or the time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from logging import INFO, WARNING

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

REPORT_SECONDS = 2.0  # between two lines about replies that have come
_FIRST_WAIT, _LAST_WAIT, _GROWTH = 0.002, 0.2, 1.3  # seconds between two polls


class Stopped(Exception):  # noqa: N818  # not an error: the caller asked for it
    """`TuningStrategy.stop` was called while the strategy waited for nodes or replies."""


class ReplyProgress:
    """Logs how many of `total` replies have come while the others take their time."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = 0
        self._said = time.monotonic()

    def add(self, number: int = 1) -> None:
        """Count more replies; the bar of `fbo-flower simulate` shows the line's attribute `replies`."""
        self.count += number
        if self.count < self.total and time.monotonic() - self._said >= REPORT_SECONDS:
            self._said = time.monotonic()
            text = f"{self.count} of {self.total} replies"
            log(INFO, "... %s so far", text, extra={"replies": text})


def polls(
    grid: Grid, message_ids: Collection[str], stop: threading.Event, end: float
) -> Iterator[list[Message]]:
    """Yield what has arrived at each look until `end`, by the monotonic clock; a pause follows each look.

    Parameters
    ----------
    message_ids : the messages without a reply; the caller removes those that are answered

    Raises
    ------
    Stopped
        If `stop` is set while replies are missing.
    """
    wait = _FIRST_WAIT
    while True:
        if stop.is_set():
            raise Stopped
        # the ids themselves, not a copy: a poll costs as much as has arrived, not as much as is missing
        received = list(grid.pull_messages(message_ids))
        yield received
        left = end - time.monotonic()
        if left <= 0.0:
            return
        wait = _FIRST_WAIT if received else min(wait * _GROWTH, _LAST_WAIT)
        stop.wait(min(wait, left))


def send_and_receive(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    stop: threading.Event,
    quorum: int | None = None,
    on_replies: Callable[[Mapping[int, Message]], None] | None = None,
) -> dict[int, Message]:
    """Send messages and return position of the message -> reply, for the replies that came in time.

    Parameters
    ----------
    timeout : seconds; later replies are dropped
    quorum : number of replies after which to return; None: wait for all
    on_replies : called with new replies as they arrive, by the position of their message

    Raises
    ------
    Stopped
        If `stop` is set while replies are missing.
    """
    if not messages:
        return {}
    positions = _push(grid, messages)
    wanted = len(positions) if quorum is None else min(quorum, len(positions))
    replies: dict[int, Message] = {}
    progress = ReplyProgress(len(positions))
    if not wanted:
        return {}
    for arrived in polls(grid, positions.keys(), stop, time.monotonic() + timeout):
        # the source node of an error may be the SuperLink itself; only the message id is reliable
        named = [(positions.pop(reply.metadata.reply_to_message_id, None), reply) for reply in arrived]
        received = {position: reply for position, reply in named if position is not None}
        replies |= received
        progress.add(len(received))
        if received and on_replies is not None:
            on_replies(received)
        if len(replies) >= wanted:
            break
    return replies


def _push(grid: Grid, messages: Sequence[Message]) -> dict[str, int]:
    """Send the messages and return message id -> position.

    A message to a node that has disconnected is left out; the others are sent.
    """
    ids = [str(i) for i in grid.push_messages(messages) if i]
    if len(ids) == len(messages):
        return {message_id: position for position, message_id in enumerate(ids)}
    places = {message.metadata.message_id: position for position, message in enumerate(messages)}
    sent = {message_id: places[message_id] for message_id in ids if message_id in places}
    unsent = len(messages) - len(sent)
    log(WARNING, "%d of %d messages could not be sent: their nodes have left", unsent, len(messages))
    return sent
