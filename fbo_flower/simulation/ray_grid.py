"""A Flower `Grid` over Ray workers that take messages in batches.

The strategy and the ClientApp run unchanged. Every worker holds the ClientApp; the contexts stay with the
grid and travel with the messages, so any worker can serve any node, and the death of a worker loses nothing
that was answered. A batch is as large as its expected duration allows: hundreds of cheap messages travel
together, slow ones one by one, and near the end of a round batches shrink so that all workers end together.

Flower's own engine looks through all pending messages for every node, which makes a round quadratic in their
number; here a round is linear.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import LocalGrid, Scalar, answer, identify

BATCH_SECONDS = 0.25  # expected duration of a batch
MAX_BATCH = 500  # messages
_IN_FLIGHT = 2  # batches per worker: one at work, one waiting
_START_SECONDS = 120.0  # for all workers to be there
_LOOK = 0.05  # seconds between two looks at what is done
_THREADS = {
    name: "1"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
}
_Item = tuple[str, Message, Context]


@dataclass
class _Batch:
    """Messages under way to one worker."""

    items: list[_Item]
    worker: int
    sent: float


class RayGrid(LocalGrid):
    """Nodes of one ClientApp on the workers of a Ray cluster.

    Use it as a context manager: leaving it ends the workers, and Ray itself if it was started here.

    Parameters
    ----------
    app : the ClientApp; it must survive cloudpickle, as in Flower's engine
    num_nodes : node `i` has the `node_config` of a simulated node: `partition-id` i, `num-partitions`
    num_workers : None: one per CPU of the cluster
    address : of a Ray cluster to join, "auto" for the one this machine belongs to; None: start one here,
        or use the one that this process has started
    timeout : seconds that one message may take before its worker is ended and replaced; None: any time
    run_config, node_configs : see `LocalGrid`

    Raises
    ------
    ConfigError
        If Ray is not installed or the cluster cannot be reached.
    """

    def __init__(
        self,
        app: ClientApp,
        num_nodes: int,
        *,
        num_workers: int | None = None,
        address: str | None = None,
        timeout: float | None = None,
        run_config: Mapping[str, Scalar] | None = None,
        node_configs: Mapping[int, Mapping[str, Scalar]] | None = None,
    ) -> None:
        super().__init__(num_nodes, run_config, node_configs)
        self._ray, self._started_ray = _start_ray(address)
        self._app = self._ray.put(app)
        self._worker_class = self._ray.remote(num_cpus=1, max_restarts=0)(_Worker)
        count = num_workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._workers = [self._new_worker() for _ in range(count)]
        self._starting: dict[int, Any] = {}  # worker -> what it answers once it is there
        self._load = [0] * count  # batches in flight
        self._timeout = timeout
        self._queue: deque[_Item] = deque()
        self._suspects: deque[_Item] = deque()  # were at a worker that died
        self._in_flight: dict[Any, _Batch] = {}
        self._replies: dict[str, Message] = {}
        self._owed: set[str] = set()
        self._seconds: float | None = None  # per message, measured
        self._num_messages = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        try:
            self._ray.get([worker.ping.remote() for worker in self._workers], timeout=_START_SECONDS)
        except self._ray.exceptions.GetTimeoutError as error:
            self._end_ray()
            raise ConfigError(f"engine: expected {count} free CPUs in the Ray cluster, got fewer") from error
        except self._ray.exceptions.RayError as error:
            self._end_ray()
            raise ConfigError(f"engine: a Ray worker could not load the app: {_last_line(error)}") from error
        self._thread = threading.Thread(target=self._dispatch, name="ray-grid", daemon=True)
        self._thread.start()

    def __enter__(self) -> RayGrid:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, at once; the second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=10.0)
        self._end_ray()

    def _end_ray(self) -> None:
        for worker in self._workers:
            self._ray.kill(worker)
        if self._started_ray:
            self._ray.shutdown()

    # -- Flower's interface --------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Queue messages for the workers; return their ids."""
        items: list[_Item] = []
        for message in messages:
            self._num_messages += 1
            message_id = str(self._num_messages)
            message.metadata.__dict__["_message_id"] = message_id
            items.append((message_id, message, self.contexts[message.metadata.dst_node_id]))
        with self._lock:
            self._queue.extend(items)
            self._owed.update(message_id for message_id, _, _ in items)
        self._wake.set()
        return [message_id for message_id, _, _ in items]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there by now, each once."""
        with self._lock:
            ready = [i for i in message_ids if i in self._replies]
            return [self._replies.pop(i) for i in ready]

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still come."""
        with self._lock:
            return any(i in self._owed or i in self._replies for i in message_ids)

    # -- work ----------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Hand out batches and collect what is done, until the grid is closed."""
        try:
            self._work()
        except Exception as error:  # Ray itself is gone: say so instead of letting the strategy wait
            if not self._closed:
                log(WARNING, "Ray failed: %s", error)
                with self._lock:
                    waiting = [
                        *self._queue,
                        *self._suspects,
                        *(i for b in self._in_flight.values() for i in b.items),
                    ]
                self._fail(waiting, f"Ray failed: {type(error).__name__}")

    def _work(self) -> None:
        while not self._closed:
            self._hand_out()
            if not self._in_flight:
                self._wake.wait(timeout=1.0)
                self._wake.clear()
                continue
            done, _ = self._ray.wait(list(self._in_flight), num_returns=1, timeout=_LOOK)
            for reference in done:
                self._collect(reference)
            self._give_up_late_batches()

    def _hand_out(self) -> None:
        """Fill the workers up; suspects go one by one to workers that have nothing else."""
        while self._suspects and 0 in self._load:
            self._send(self._load.index(0), [self._suspects.popleft()], _IN_FLIGHT)
        while self._queue:
            worker = min(range(len(self._workers)), key=self._load.__getitem__)
            if self._load[worker] >= _IN_FLIGHT:
                return
            with self._lock:
                size = batch_size(len(self._queue), len(self._workers), self._seconds)
                items = [self._queue.popleft() for _ in range(size)]
            self._send(worker, items)

    def _send(self, worker: int, items: list[_Item], weight: int = 1) -> None:
        reference = self._workers[worker].work.remote([(message, context) for _, message, context in items])
        self._in_flight[reference] = _Batch(items, worker, time.monotonic())
        self._load[worker] += weight

    def _collect(self, reference: Any) -> None:
        batch = self._in_flight.get(reference)
        if batch is None:
            return  # buried with its worker
        try:
            results, seconds = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            self._bury(batch.worker, f"{type(error).__name__}: {_last_line(error)}")
            return
        except self._ray.exceptions.RayError as error:  # its content does not travel, for instance
            results, seconds = None, 0.0
            self._fail(batch.items, f"{type(error).__name__}: {_last_line(error)}")
        del self._in_flight[reference]
        self._load[batch.worker] = sum(b.worker == batch.worker for b in self._in_flight.values())
        if results is None:
            return
        each = seconds / len(batch.items)
        self._seconds = each if self._seconds is None else 0.5 * (self._seconds + each)
        with self._lock:
            for (message_id, message, _), (reply, context) in zip(batch.items, results, strict=True):
                self.contexts[message.metadata.dst_node_id] = context
                self._replies[message_id] = reply
                self._owed.discard(message_id)

    def _bury(self, worker: int, reason: str) -> None:
        """Replace a dead worker. A message that was alone there is at fault; others are tried again alone."""
        if self._closed:
            return
        log(WARNING, "A worker died and is replaced: %s", reason[:200])
        lost = [reference for reference, batch in self._in_flight.items() if batch.worker == worker]
        items = [item for reference in lost for item in self._in_flight.pop(reference).items]
        stillborn = worker in self._starting and not self._is_there(worker)
        self._workers[worker], self._load[worker] = self._new_worker(), 0
        self._starting[worker] = self._workers[worker].ping.remote()
        if len(items) == 1 or stillborn:
            self._fail(items, f"the worker died: {reason}")
        else:
            self._suspects.extend(items)

    def _fail(self, items: Iterable[_Item], reason: str) -> None:
        with self._lock:
            for message_id, message, _ in items:
                error = Error(code=ErrorCode.UNKNOWN, reason=reason)
                self._replies[message_id] = Message(error, reply_to=message)
                self._owed.discard(message_id)

    def _give_up_late_batches(self) -> None:
        if self._timeout is None:
            return
        now = time.monotonic()
        for batch in self._in_flight.values():
            if not self._is_there(batch.worker):
                batch.sent = now  # it has not begun
        late = [
            b for b in self._in_flight.values() if now - b.sent > self._timeout * (_IN_FLIGHT + len(b.items))
        ]
        for batch in late[:1]:
            self._ray.kill(self._workers[batch.worker])
            self._bury(batch.worker, f"no answer within {self._timeout:g} s")

    def _is_there(self, worker: int) -> bool:
        """Return whether a worker has started."""
        reference = self._starting.get(worker)
        if reference is None:
            return True
        done, _ = self._ray.wait([reference], timeout=0)
        if not done:
            return False
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayError:
            return False
        del self._starting[worker]
        return True

    def _new_worker(self) -> Any:
        options = self._worker_class.options(runtime_env={"env_vars": _THREADS})
        return options.remote(self._app)


def batch_size(num_waiting: int, num_workers: int, seconds: float | None) -> int:
    """Return how many messages the next batch takes.

    Parameters
    ----------
    seconds : measured time per message; None: nothing is known, so the first batches are small
    """
    share = math.ceil(num_waiting / (2 * num_workers))  # the last batches are small, so that all end together
    most = 8 if seconds is None else max(1, int(BATCH_SECONDS / max(seconds, 1e-9)))
    return max(1, min(share, most, MAX_BATCH, num_waiting))


class _Worker:
    """What runs in a Ray actor: the ClientApp, one batch after the other."""

    def __init__(self, app: ClientApp) -> None:
        identify()
        self._app = app

    def ping(self) -> None:
        """Show that the worker lives."""

    def work(self, batch: Sequence[tuple[Message, Context]]) -> tuple[list[tuple[Message, Context]], float]:
        """Return the replies with the contexts after them, and the seconds that took."""
        start = time.perf_counter()
        results = [(answer(self._app, message, context), context) for message, context in batch]
        return results, time.perf_counter() - start


@contextlib.contextmanager
def ray_running(address: str | None = None) -> Iterator[None]:
    """Keep Ray up for several grids, each of which would start and end it."""
    ray, started = _start_ray(address)
    try:
        yield
    finally:
        if started:
            ray.shutdown()


def _start_ray(address: str | None) -> tuple[Any, bool]:
    """Return the module `ray`, connected, and whether it was this call that started it."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("engine: ray needs Ray; install fbo-flower[simulation] or use inline") from error
    if ray.is_initialized():
        return ray, False
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        with contextlib.suppress(FileNotFoundError):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except ConnectionError as error:
        raise ConfigError(f"address: expected a running Ray cluster at {address!r}: {error}") from error
    return ray, True


def _last_line(error: BaseException) -> str:
    """Return the line of an error of Ray's that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
