"""Ray workers that hold a ClientApp and answer batches of messages; a worker that dies is replaced.

A worker keeps nothing but the app. It gets the memory of each node, its `Context` as bytes, with the messages
and returns it with the replies. So any worker can serve any node, and no answer is lost with a worker.

A batch is sent as one pickle, so that its size is known, and so that a message that cannot be pickled fails
with its batch alone. Pickle is acceptable here, because Ray itself pickles all that its workers exchange, and
the workers run on machines of one owner. Nothing that arrives over Flower's network is unpickled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import answer_all, collect_rarely, identify

_START_SECONDS = 120.0  # how long the workers may take to start
_THREADS = {
    name: "1"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
}


class WorkerDied(Exception):  # noqa: N818  # an event that the caller answers
    """The worker died while it had a batch."""


class BatchFailed(Exception):  # noqa: N818
    """A batch could not be answered although its worker lives, for example because it cannot be pickled."""


@dataclass(frozen=True)
class Answers:
    """The answers to a batch."""

    replies: Sequence[Message]
    memories: Mapping[int, bytes]  # node -> its memory after the batch
    seconds: float  # how long the worker worked
    num_bytes: int  # of the replies and memories


class RayWorkers:
    """A fixed number of workers in a Ray cluster, one CPU each; see `RayGrid` for the arguments.

    ConfigError if the app cannot be pickled, Ray is not installed, the cluster cannot be reached or has too
    few free CPUs, or a worker cannot load the app.
    """

    def __init__(self, app: ClientApp, count: int | None, address: str | None) -> None:
        check_picklable(app)
        self._ray, self._started_ray = _start_ray(address)
        self._app = self._ray.put(app)
        self._class = self._ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": _THREADS})(
            _Worker
        )
        count = count or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._workers = [self._class.remote(self._app) for _ in range(count)]
        try:
            self._ray.get([self.send(i, [], {})[0] for i in range(count)], timeout=_START_SECONDS)
        except self._ray.exceptions.GetTimeoutError as error:
            self.end()
            raise ConfigError(f"engine: expected {count} free CPUs in the Ray cluster, got fewer") from error
        except self._ray.exceptions.RayError as error:
            self.end()
            raise ConfigError(f"engine: a Ray worker could not load the app: {_last_line(error)}") from error

    def __len__(self) -> int:
        return len(self._workers)

    def send(
        self, worker: int, messages: Sequence[Message], memories: Mapping[int, bytes]
    ) -> tuple[Any, int]:
        """Send a batch with the nodes' memories; return a reference to its answers and its size in bytes."""
        try:
            data = dumps((messages, memories))
        except Exception as error:  # pickle raises several kinds
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        return self._workers[worker].work.remote(data), len(data)

    def wait(self, references: Sequence[Any], seconds: float) -> Any | None:
        """Wait at most `seconds` for a batch to be answered; return its reference."""
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=seconds)
        return ready[0] if ready else None

    def collect(self, reference: Any) -> Answers:
        """Return the answers to a batch that is done, or raise WorkerDied or BatchFailed."""
        try:
            data, seconds = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            raise WorkerDied(f"{type(error).__name__}: {_last_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            raise BatchFailed(f"{type(error).__name__}: {_last_line(error)}") from error
        replies, memories = pickle.loads(data)
        return Answers(replies, memories, seconds, len(data))

    def replace(self, worker: int) -> None:
        """End a worker, if it still lives, and start a new one in its place, which takes seconds."""
        self._ray.kill(self._workers[worker])
        self._workers[worker] = self._class.remote(self._app)

    def end(self) -> None:
        """End the workers, and Ray if it was started here."""
        for worker in self._workers:
            self._ray.kill(worker)
        if self._started_ray:
            self._ray.shutdown()


class _Worker:
    """The code in a Ray worker, which calls the ClientApp on one batch after the other."""

    def __init__(self, app: ClientApp) -> None:
        identify()
        self._app = app
        collect_rarely()

    def work(self, data: bytes) -> tuple[bytes, float]:
        """Return the pickled replies and memories, and how many seconds they took."""
        start = time.perf_counter()
        messages, memories = pickle.loads(data)
        contexts = {node: pickle.loads(memory) for node, memory in memories.items()}
        batch = [(message, contexts[message.metadata.dst_node_id]) for message in messages]
        replies = answer_all(self._app, batch)
        packed = dumps((replies, {node: dumps(context) for node, context in contexts.items()}))
        return packed, time.perf_counter() - start


def dumps(value: object) -> bytes:
    """Return a value as bytes for a worker or from one."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


def check_picklable(app: ClientApp) -> None:
    """Raise ConfigError if an app cannot be sent to workers; large arrays are not copied for it."""
    cloudpickle: Any
    try:
        from ray import cloudpickle
    except ImportError:
        return  # the engine says what to install
    try:
        cloudpickle.CloudPickler(_Nowhere(), protocol=5, buffer_callback=lambda _: False).dump(app)
    except Exception as error:  # pickle raises several kinds, and so may the user's objects
        raise ConfigError(
            "objective, agents: expected what can be pickled and sent to worker processes, got "
            f"{type(error).__name__}: {_last_line(error)}; open such objects inside the objective, or use "
            "engine='inline'"
        ) from error


@contextlib.contextmanager
def ray_running(address: str | None = None) -> Iterator[None]:
    """Keep Ray running for several grids, which would otherwise each start and end it."""
    ray, started = _start_ray(address)
    try:
        yield
    finally:
        if started:
            ray.shutdown()


def import_ray(engine: str) -> Any:
    """Return the module `ray`; ConfigError, with what to install for an engine, if there is none."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"engine: {engine} needs Ray; run pip install 'fbo-flower[simulation]', or use the engine inline"
        ) from error
    return ray


def _start_ray(address: str | None) -> tuple[Any, bool]:
    """Return the module `ray`, connected to a cluster, and whether this call started the cluster."""
    ray = import_ray("ray")
    if ray.is_initialized():
        return ray, False
    address = address or os.environ.get("RAY_ADDRESS")
    _check_reachable(address)
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    cluster = address or "local"  # with None, Ray would join whatever cluster this machine started last
    try:
        with contextlib.suppress(FileNotFoundError):
            ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR, **options)
    except ConnectionError as error:
        raise ConfigError(f"address: expected a running Ray cluster at {address!r}: {error}") from error
    return ray, True


def _check_reachable(address: str | None) -> None:
    """Raise ConfigError if no server listens at `host:port`; Ray itself would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"address: expected a running Ray cluster at {address!r}: {error}") from error


def _last_line(error: BaseException) -> str:
    """Return the last line of one of Ray's errors, which says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
