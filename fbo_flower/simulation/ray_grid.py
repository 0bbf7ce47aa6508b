"""A Flower `Grid` over Ray workers that take messages in batches.

The strategy and the ClientApp run unchanged. The grid keeps the memory of every node as bytes and sends it to
whichever worker serves the node next (`ray_workers`), so a worker that dies costs its batches a second try.

A batch is as large as its expected duration and size allow: hundreds of cheap messages form one batch, slow
messages go one by one, and near the end of a round batches shrink so that all workers end together. Each
worker has at most two batches at a time.

Flower's own engine searches all pending messages for every node, so that a round takes time quadratic in the
number of messages; here it is linear.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from logging import WARNING
from typing import Any

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from fbo_flower.simulation.grids import LocalGrid, Scalar
from fbo_flower.simulation.ray_workers import (
    MAX_STARTS,
    BatchFailed,
    RayWorkers,
    WorkerDied,
    died_text,
    dumps,
)

BATCH_SECONDS = 0.25  # expected duration of a batch
LEAST_SECONDS = 0.02  # of the last batches of a round: agents that compute together need less time
BATCH_BYTES = 32 * 2**20  # expected bytes of a batch, or of its answers
MAX_BATCH = 500  # messages
IN_FLIGHT = 2  # batches per worker: one at work, one waiting
UNCLAIMED = 8  # replies per node
_ONE_CPU = {"num_cpus": 1.0, "num_gpus": 0.0}
_LOOK = 0.05  # seconds to wait for a batch before the thread checks its queue

Item = tuple[str, Message]  # a message and its id


def batch_size(num_waiting: int, num_workers: int, seconds: float | None, num_bytes: float = 0.0) -> int:
    """Return how many messages the next batch takes.

    Parameters
    ----------
    seconds : measured time per message; None: not yet known, so the first batches are small
    num_bytes : measured size of a message or a reply with its memory, whichever is larger
    """
    share = math.ceil(num_waiting / (2 * num_workers))  # the last batches are small, so that all end together
    least = 1 if seconds is None else int(LEAST_SECONDS / max(seconds, 1e-9))
    most = 8 if seconds is None else max(1, int(BATCH_SECONDS / max(seconds, 1e-9)))
    fitting = max(1, int(BATCH_BYTES / max(num_bytes, 1.0)))
    least = min(least, math.ceil(num_waiting / num_workers))  # and every worker has work
    return max(1, min(max(share, least), most, fitting, MAX_BATCH))


@dataclass
class _Batch:
    """The messages of one batch, and the worker that has it; no messages: the worker is starting."""

    items: Sequence[Item]
    worker: int
    sent: float  # `time.monotonic`
    num_bytes: int
    weight: int  # its part of the worker's load


class RayGrid(LocalGrid):
    """Nodes of one ClientApp on the workers of a Ray cluster.

    Use it as a context manager: leaving it ends the workers, and Ray itself if it was started here.

    Parameters
    ----------
    app : the ClientApp; cloudpickle must be able to pickle it, as in Flower's engine
    num_nodes : number of nodes; node `i` gets `partition-id` i and `num-partitions` in its `node_config`
    num_workers : number of workers; None: as many as the cluster has room for
    address : address of a Ray cluster to join, "auto" for the one that this machine belongs to; None: that
        of RAY_ADDRESS, else start a cluster here, or use the one that this process has started
    timeout : seconds that one message may take before its worker is ended and replaced; None: no limit
    client_resources : what one worker takes of the cluster, `num_cpus` (default 1) and `num_gpus` (default 0)
    run_config, node_configs : see `LocalGrid`

    Replies that arrive after their round has closed are never pulled. Once there are more than `UNCLAIMED`
    per node, the oldest are dropped.

    Raises
    ------
    ConfigError
        If Ray is not installed, the cluster cannot be reached, or this process is connected to another one
        than `address`.
    """

    messages_at_once = MAX_BATCH  # workers begin while the strategy makes the other messages

    def __init__(
        self,
        app: ClientApp,
        num_nodes: int,
        *,
        num_workers: int | None = None,
        address: str | None = None,
        timeout: float | None = None,
        client_resources: Mapping[str, float] | None = None,
        run_config: Mapping[str, Scalar] | None = None,
        node_configs: Mapping[int, Mapping[str, Scalar]] | None = None,
    ) -> None:
        super().__init__(num_nodes, run_config, node_configs)
        self._workers = RayWorkers(app, num_workers, address, _ONE_CPU | dict(client_resources or {}))
        self._timeout = timeout
        self._memories: dict[int, bytes] = {}  # node -> its context after its last answer
        self._load = [0] * len(self._workers)  # batches in flight
        self._queue: deque[Item] = deque()
        self._suspects: deque[Item] = deque()  # messages of a batch that failed
        self._in_flight: dict[Any, _Batch] = {}
        self._replies: dict[str, Message] = {}
        self._owed: set[str] = set()
        self._num_stillborn = 0  # workers in a row that died before they had started
        self._seconds: float | None = None  # measured seconds per message
        self._num_bytes = 0.0
        self.busy_seconds = 0.0  # that all workers have worked so far
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._failure = ""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ray-grid", daemon=True)
        self._thread.start()

    def __enter__(self) -> RayGrid:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers at once and drop all unfinished messages; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=10.0)
        self._workers.end()

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return len(self._workers)

    def context(self, node: int) -> Context:
        """Return a copy of a node's context after its last answer; `contexts` holds those of the start."""
        context: Context = pickle.loads(self._memory(node))
        return context

    # -- Flower's interface --------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Queue messages for the workers; return their ids."""
        items = self._numbered(messages)
        ids = list(items)
        with self._lock:
            for message_id in list(self._replies)[: -UNCLAIMED * len(self.contexts)]:
                del self._replies[message_id]
            self._queue.extend(items.items())
            self._owed.update(ids)
        self._wake.set()
        if self._failure:
            self._fail_all()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
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

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        """Send batches and collect answers until the grid is closed."""
        try:
            while not self._closed:
                self._hand_out()
                if not self._in_flight:
                    self._wake.wait(timeout=1.0)
                    self._wake.clear()
                    continue
                reference = self._workers.wait(list(self._in_flight), _LOOK)
                if reference is not None:
                    self._collect(reference)
                self._give_up_late_batches()
        except Exception as error:  # Ray itself failed: answer with errors, or the strategy would wait
            if not self._closed:
                log(WARNING, "Ray failed: %s", error)
                self._failure = f"Ray failed: {type(error).__name__}"
                self._fail_all()

    def _hand_out(self) -> None:
        """Send batches to workers with room; suspects go one by one to idle workers."""
        while self._suspects and 0 in self._load:
            self._send(self._load.index(0), [self._suspects.popleft()], IN_FLIGHT)
        while self._queue and (load := min(self._load)) < IN_FLIGHT:
            size = batch_size(len(self._queue), len(self._load), self._seconds, self._num_bytes)
            items = [self._queue.popleft() for _ in range(size)]
            self._send(self._load.index(load), items, 1)

    def _send(self, worker: int, items: Sequence[Item], weight: int) -> None:
        messages = [message for _, message in items]
        nodes = dict.fromkeys(message.metadata.dst_node_id for message in messages)
        try:
            memories = {node: self._memory(node) for node in nodes}
            reference, num_bytes = self._workers.send(worker, messages, memories)
        except BatchFailed as error:
            self._retry(items, str(error))
            return
        except Exception:
            self._suspects.extend(items)  # Ray failed; they are answered with errors like the others
            raise
        self._in_flight[reference] = _Batch(items, worker, time.monotonic(), num_bytes, weight)
        self._load[worker] += weight

    def _memory(self, node: int) -> bytes:
        memory = self._memories.get(node)
        return dumps(self.contexts[node]) if memory is None else memory

    def _collect(self, reference: Any) -> None:
        batch = self._in_flight[reference]
        try:
            found = self._workers.collect(reference)
        except WorkerDied as error:
            self._bury(batch.worker, str(error))
            return
        except BatchFailed as error:
            found = None
            self._retry(batch.items, str(error))
        del self._in_flight[reference]
        self._load[batch.worker] -= batch.weight
        if found is None:
            return
        if not batch.items:
            self._num_stillborn = 0
            return
        self.busy_seconds += found.seconds
        each = found.seconds / len(batch.items)
        self._seconds = each if self._seconds is None else 0.5 * (self._seconds + each)
        self._num_bytes = max(batch.num_bytes, found.num_bytes) / len(batch.items)
        self._memories.update(found.memories)
        self._deliver((i, reply) for (i, _), reply in zip(batch.items, found.replies, strict=True))

    def _deliver(self, replies: Iterable[tuple[str, Message]]) -> None:
        with self._lock:
            for message_id, reply in replies:
                self._replies[message_id] = reply
                self._owed.discard(message_id)

    # -- what goes wrong -----------------------------------------------------------------------

    def _bury(self, worker: int, reason: str) -> None:
        """Replace a dead worker. If it had one message, that has failed; several are retried one by one."""
        if self._closed:
            return
        log(WARNING, "A worker died and was replaced: %s", reason[:200])
        lost = [reference for reference, batch in self._in_flight.items() if batch.worker == worker]
        batches = [self._in_flight.pop(reference) for reference in lost]
        self._retry([item for batch in batches for item in batch.items], f"the worker died: {reason}")
        self._num_stillborn += sum(not batch.items for batch in batches)
        if self._num_stillborn > MAX_STARTS * len(self._load):
            raise RuntimeError(died_text(self._num_stillborn, reason))
        self._workers.replace(worker)
        self._load[worker] = 0
        self._send(worker, [], IN_FLIGHT)  # the worker is busy until it has started

    def _retry(self, items: Sequence[Item], reason: str) -> None:
        """Queue the messages of a failed batch to be retried one by one; a single message has failed."""
        if len(items) == 1:
            self._fail(items, reason)
        else:
            self._suspects.extend(items)

    def _fail(self, items: Iterable[Item], reason: str) -> None:
        error = Error(code=ErrorCode.UNKNOWN, reason=reason)
        self._deliver((message_id, Message(error, reply_to=message)) for message_id, message in items)

    def _fail_all(self) -> None:
        with self._lock:
            waiting = [*self._queue, *self._suspects]
            waiting += [item for batch in self._in_flight.values() for item in batch.items]
            for pending in (self._queue, self._suspects, self._in_flight):
                pending.clear()
        self._fail(waiting, self._failure)

    def _give_up_late_batches(self) -> None:
        if self._timeout is None:
            return
        now = time.monotonic()
        for batch in self._in_flight.values():
            if batch.items and now - batch.sent > self._timeout * (IN_FLIGHT + len(batch.items)):
                self._bury(batch.worker, f"no answer within {self._timeout:g} s")
                return
