"""Send messages to actors in batches and collect the replies.

A batch is as large as its expected duration and size allow: hundreds of cheap messages form one batch, slow
messages go one by one, and near the end of a round batches shrink so that all actors end together. Each actor
has at most two batches at a time. A message goes to the actor that holds its node's context, unless that one
has enough to do and another has nothing left.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from logging import WARNING
from typing import Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from fbo_flower.simulation.ray_actors import ActorDied, BatchFailed, RayActors
from fbo_flower.simulation.ray_contexts import ContextsMissing, GridContexts, Item, WaitingMessages

BATCH_SECONDS = 0.25  # expected duration of a batch
LEAST_SECONDS = 0.02  # of the last batches of a round: agents that compute together need less time
BATCH_BYTES = 32 * 2**20  # expected bytes of a batch, or of its answers
MAX_BATCH = 500  # messages
IN_FLIGHT = 2  # batches per actor: one at work, one waiting
UNCLAIMED = 8  # replies per node
_LOOK = 0.05  # seconds to wait for a batch before the thread checks its queue


def batch_size(num_waiting: int, num_actors: int, seconds: float | None, num_bytes: float = 0.0) -> int:
    """Return how many messages the next batch takes.

    Parameters
    ----------
    seconds : measured time per message; None: not yet known, so the first batches are small
    num_bytes : measured size of a message or a reply with its context, whichever is larger
    """
    share = math.ceil(num_waiting / (2 * num_actors))  # the last batches are small, so that all end together
    least = 1 if seconds is None else int(LEAST_SECONDS / max(seconds, 1e-9))
    most = 8 if seconds is None else max(1, int(BATCH_SECONDS / max(seconds, 1e-9)))
    fitting = max(1, int(BATCH_BYTES / max(num_bytes, 1.0)))
    least = min(least, math.ceil(num_waiting / num_actors))  # and every actor has work
    return max(1, min(max(share, least), most, fitting, MAX_BATCH))


@dataclass
class _Batch:
    """The messages of one batch, its number, and the actor that has it."""

    items: list[Item]
    number: int
    actor: int
    sent: float  # `time.monotonic`
    num_bytes: int
    weight: int  # its part of the actor's load


class Dispatcher:
    """Send messages to actors in a separate thread, and keep the replies until they are pulled.

    Parameters
    ----------
    contexts : of the nodes
    timeout : seconds that one message may take before its actor is ended and replaced; None: no limit

    Replies that arrive after their round has closed are never pulled. Once there are more than `UNCLAIMED`
    per node, the oldest are dropped.
    """

    def __init__(self, actors: RayActors, contexts: GridContexts, timeout: float | None) -> None:
        self._actors = actors
        self._contexts = contexts
        self._timeout = timeout
        self._load = [0] * len(actors)  # batches in flight
        self._queue = WaitingMessages(len(actors))
        self._suspects: deque[Item] = deque()  # messages of a batch that failed
        self._in_flight: dict[Any, _Batch] = {}
        self._replies: dict[str, Message] = {}
        self._owed: set[str] = set()
        self._seconds: float | None = None  # measured seconds per message
        self._num_bytes = 0.0
        self.busy_seconds = 0.0  # total of all actors
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._failure = ""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ray-grid", daemon=True)
        self._thread.start()

    def push(self, items: Sequence[Item]) -> None:
        """Queue messages; each must have a unique id."""
        with self._lock:
            for message_id in list(self._replies)[: -UNCLAIMED * len(self._contexts)]:
                del self._replies[message_id]
            self._queue.add(items, self._contexts)
            self._owed.update(message_id for message_id, _ in items)
        self._wake.set()
        if self._failure:
            self._fail_all()

    def pull(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived; each reply is returned once.

        With a set of ids, such as the keys of a dict, this takes as long as there are new replies.
        """
        with self._lock:
            if not self._replies:
                return []
            wanted = message_ids if isinstance(message_ids, Set) else set(message_ids)
            ready = [i for i in self._replies if i in wanted]
            return [self._replies.pop(i) for i in ready]

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""
        with self._lock:
            return any(i in self._owed or i in self._replies for i in message_ids)

    def close(self) -> None:
        """End the thread and drop all unfinished messages."""
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=10.0)

    @property
    def is_running(self) -> bool:
        """Whether the thread still sends messages."""
        return self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        """Send batches and collect answers until the dispatcher is closed."""
        try:
            while not self._closed:
                self._turn()
        except Exception as error:  # Ray itself failed: answer with errors, or the strategy would wait
            if not self._closed:
                log(WARNING, "Ray failed: %s", error)
                self._failure = f"Ray failed: {type(error).__name__}"
                self._fail_all()

    def _turn(self) -> None:
        self._hand_out()
        if not self._in_flight:
            self._wake.wait(timeout=1.0)
            self._wake.clear()
            return
        for reference in self._actors.done(list(self._in_flight), _LOOK):
            self._collect(reference)
        self._give_up_late_batches()

    def _hand_out(self) -> None:
        """Send batches to actors with room; suspects go one by one to idle actors."""
        while self._suspects and 0 in self._load:
            self._send(self._load.index(0), [self._suspects.popleft()], IN_FLIGHT)
        while len(self._queue):
            actor = min(range(len(self._load)), key=self._load.__getitem__)
            if self._load[actor] >= IN_FLIGHT:
                return
            with self._lock:
                size = batch_size(len(self._queue), len(self._load), self._seconds, self._num_bytes)
                items = self._queue.take(actor, size)
            self._send(actor, items, 1)

    def _send(self, actor: int, items: list[Item], weight: int) -> None:
        parcel = self._contexts.pack(actor, [message for _, message in items])
        try:
            reference, num_bytes = self._actors.send(actor, parcel)
        except BatchFailed as error:
            self._contexts.failed(_nodes(items))
            self._retry(items, str(error))
            return
        except Exception:
            self._queue.add(
                items, self._contexts
            )  # Ray failed; they are answered with errors like the others
            raise
        self._in_flight[reference] = _Batch(items, parcel.number, actor, time.monotonic(), num_bytes, weight)
        self._load[actor] += weight

    def _collect(self, reference: Any) -> None:
        batch = self._in_flight.get(reference)
        if batch is None:
            return  # it was dropped together with its actor
        try:
            answers = self._actors.collect(reference)
        except ActorDied as error:
            self._bury(batch.actor, str(error))
            return
        except BatchFailed as error:
            self._drop(reference)
            self._contexts.failed(_nodes(batch.items))
            self._retry(batch.items, str(error))
            return
        except ContextsMissing:
            self._drop(reference)
            self._contexts.failed(_nodes(batch.items))
            with self._lock:
                self._queue.add(batch.items, self._contexts)
            return
        self._drop(reference)
        self.busy_seconds += answers.seconds
        each = answers.seconds / len(batch.items)
        self._seconds = each if self._seconds is None else 0.5 * (self._seconds + each)
        self._num_bytes = max(batch.num_bytes, answers.num_bytes) / len(batch.items)
        with self._lock:
            copies = zip(_nodes(batch.items), (copy for _, copy in answers.replies), strict=True)
            self._contexts.answered(batch.actor, batch.number, copies)
            for (message_id, _), (reply, _) in zip(batch.items, answers.replies, strict=True):
                self._replies[message_id] = reply
                self._owed.discard(message_id)

    # -- what goes wrong -----------------------------------------------------------------------

    def _bury(self, actor: int, reason: str) -> None:
        """Replace a dead actor. If it had one message, that has failed; several are retried one by one."""
        if self._closed:
            return
        log(WARNING, "A worker died and was replaced: %s", reason[:200])
        lost = [reference for reference, batch in self._in_flight.items() if batch.actor == actor]
        items = [item for reference in lost for item in self._in_flight.pop(reference).items]
        with self._lock:
            self._contexts.failed(_nodes(items))
            self._contexts.lost(actor)
            self._queue.release(actor)
        stillborn = not self._actors.is_there(actor)
        self._actors.replace(actor)
        self._load[actor] = 0
        if stillborn:
            self._fail(items, f"the worker died: {reason}")
        else:
            self._retry(items, f"the worker died: {reason}")

    def _retry(self, items: list[Item], reason: str) -> None:
        """Queue the messages of a failed batch to be retried one by one; a single message has failed."""
        if len(items) == 1:
            self._fail(items, reason)
        else:
            self._suspects.extend(items)

    def _fail(self, items: Iterable[Item], reason: str) -> None:
        with self._lock:
            for message_id, message in items:
                error = Error(code=ErrorCode.UNKNOWN, reason=reason)
                self._replies[message_id] = Message(error, reply_to=message)
                self._owed.discard(message_id)

    def _fail_all(self) -> None:
        with self._lock:
            waiting = [*self._queue.drain(), *self._suspects]
            waiting += [item for batch in self._in_flight.values() for item in batch.items]
            self._suspects.clear()
            self._in_flight.clear()
        self._fail(waiting, self._failure)

    def _give_up_late_batches(self) -> None:
        if self._timeout is None:
            return
        now = time.monotonic()
        for batch in self._in_flight.values():
            if not self._actors.is_there(batch.actor):
                batch.sent = now  # the actor has not begun it
        late = [
            b for b in self._in_flight.values() if now - b.sent > self._timeout * (IN_FLIGHT + len(b.items))
        ]
        for batch in late[:1]:
            self._bury(batch.actor, f"no answer within {self._timeout:g} s")

    def _drop(self, reference: Any) -> None:
        batch = self._in_flight.pop(reference)
        self._load[batch.actor] -= batch.weight


def _nodes(items: Iterable[Item]) -> list[int]:
    return [message.metadata.dst_node_id for _, message in items]
