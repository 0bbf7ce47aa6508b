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
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.simulation.grids import collect_rarely, identify, reply_all
from fbo_flower.strategies.process import uninterrupted

_START_SECONDS = 120.0  # how long the workers may take to start
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
MAX_STARTS = 3  # per worker, of workers that die one after the other before they have started
_CREATION = "creation task"  # Ray's words for a worker whose `__init__` raised
_NEVER_RAN = "The actor never ran"  # what Ray adds to the reason
_MAX_REASON = 500  # characters


class WorkerDied(Exception):  # noqa: N818  # an event that the caller answers
    """The worker died while it had a batch."""


class BatchFailed(Exception):  # noqa: N818
    """A batch could not be answered although its worker lives, for example because it cannot be pickled."""


@dataclass(frozen=True)
class BatchReply:
    """The answers to a batch."""

    replies: Sequence[Message]
    memories: Mapping[int, bytes]  # node -> its memory after the batch
    seconds: float  # how long the worker worked
    num_bytes: int  # of the replies and memories


class RayWorkers:
    """A fixed number of workers in a Ray cluster; see `RayGrid` for the arguments.

    ConfigError if the app cannot be pickled, Ray is not installed, the cluster cannot be reached or has too
    little free, or a worker cannot load the app. FBOError if Ray does not start, or workers die at once.
    """

    def __init__(
        self, app: ClientApp, count: int | None, address: str | None, resources: Mapping[str, float]
    ) -> None:
        check_picklable(app)
        self._ray, self._started_ray = _start_ray(address)
        self._workers: list[Any] = []
        try:
            self._start(app, count, resources)
        except BaseException:
            self.end()
            raise

    def _start(self, app: ClientApp, count: int | None, resources: Mapping[str, float]) -> None:
        self._app = self._ray.put(app)
        threads = dict.fromkeys(_THREADS, str(max(1, int(resources["num_cpus"]))))
        settings = {**resources, "max_restarts": 0, "runtime_env": {"env_vars": threads}}
        self._class = self._ray.remote(**settings)(_Worker)
        count = count or _room(self._ray.cluster_resources(), resources)
        self._workers = [self._class.remote(self._app) for _ in range(count)]
        deadline, deaths = time.monotonic() + _START_SECONDS, 0
        waiting = set(range(count))
        while waiting:
            number = min(waiting)
            try:
                left = max(0.1, deadline - time.monotonic())
                self._ray.get(self.send(number, [], {})[0], timeout=left)
                waiting.remove(number)
            except self._ray.exceptions.GetTimeoutError as error:
                wanted = " and ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount)
                raise ConfigError(
                    f"engine: expected room for {count} workers of {wanted} in the Ray cluster, got less "
                    f"within {_START_SECONDS:g} s; set num_workers or client_resources lower"
                ) from error
            except self._ray.exceptions.RayError as error:
                if _CREATION in str(error) or not isinstance(error, self._ray.exceptions.RayActorError):
                    raise ConfigError(
                        f"engine: a Ray worker could not load the app: {_last_line(error)}"
                    ) from error
                deaths += 1
                if deaths > MAX_STARTS * count:
                    raise FBOError(died_text(deaths, _last_line(error))) from error
                self.replace(number)

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

    def collect(self, reference: Any) -> BatchReply:
        """Return the answers to a batch that is done, or raise WorkerDied or BatchFailed."""
        try:
            data, seconds = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            raise WorkerDied(f"{type(error).__name__}: {_last_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            raise BatchFailed(f"{type(error).__name__}: {_last_line(error)}") from error
        replies, memories = pickle.loads(data)
        return BatchReply(replies, memories, seconds, len(data))

    def replace(self, worker: int) -> None:
        """End a worker, if it still lives, and start a new one in its place, which takes seconds."""
        self._ray.kill(self._workers[worker])
        self._workers[worker] = self._class.remote(self._app)

    def end(self) -> None:
        """End the workers, and Ray if it was started here."""
        with uninterrupted():
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
        replies = reply_all(self._app, batch)
        packed = dumps((replies, {node: dumps(context) for node, context in contexts.items()}))
        return packed, time.perf_counter() - start


def died_text(deaths: int, reason: str) -> str:
    """Return the text of the error that workers die before they have started."""
    return f"engine: {deaths} Ray workers died one after the other before they had started: {reason}"


def dumps(value: object) -> bytes:
    """Return a value as bytes for a worker or from one."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def check_picklable(app: ClientApp) -> None:
    """Raise ConfigError if an app cannot be sent to workers; large arrays are not copied for it."""
    cloudpickle: Any
    try:
        from ray import cloudpickle
    except ImportError:
        return  # the engine says what to install
    try:
        with open(os.devnull, "wb") as nowhere:
            cloudpickle.CloudPickler(nowhere, protocol=5, buffer_callback=lambda _: False).dump(app)
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
            with uninterrupted():
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
        if address is not None:
            _check_same(address, str(ray.get_runtime_context().gcs_address))
        return ray, False
    address = address or os.environ.get("RAY_ADDRESS")
    _check_reachable(address)
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    cluster = address or "local"  # with None, Ray would join whatever cluster this machine started last
    try:
        # half of a start would leave processes behind
        with uninterrupted(), contextlib.suppress(FileNotFoundError):
            ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR, **options)
    except ConnectionError as error:
        raise ConfigError(f"address: expected a running Ray cluster at {address!r}: {error}") from error
    except BaseException as error:
        _end_ray(ray)
        if not isinstance(error, Exception):
            raise
        raise FBOError(
            f"engine: Ray did not start: {type(error).__name__}: {_last_line(error)}; run it again when the "
            "machine is less busy, or use the engine inline"
        ) from error
    return ray, True


def _end_ray(ray: Any) -> None:
    """End Ray and the processes of a start that has failed."""
    with uninterrupted():
        with contextlib.suppress(Exception):
            ray.shutdown()
        psutil = sys.modules["psutil"]  # Ray has imported its own
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any("ray" in Path(word).parts for word in process.cmdline()[:3]):
                    process.kill()


def _check_same(address: str, running: str) -> None:
    """Raise ConfigError unless `address` is that of the cluster to which this process is connected."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    running_host, _, running_port = running.rpartition(":")
    with contextlib.suppress(OSError):
        found = socket.gethostbyname(host)
        if port == running_port and (found == running_host or found.startswith("127.")):
            return
    raise ConfigError(
        f"address: expected {running}, the Ray cluster to which this process is connected already, got "
        f"{address!r}; leave address out to use that one, or call ray.shutdown() before"
    )


def _room(cluster: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """Return how many workers a cluster has room for; ConfigError if for none."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    free = {name: cluster.get(names[name], 0.0) for name in resources}
    count = min(int(free[name] / amount + 1e-9) for name, amount in resources.items() if amount)
    if not count:
        got = ", ".join(f"{name}={amount:g}" for name, amount in free.items())
        raise ConfigError(
            "client_resources: expected at most what the Ray cluster has, "
            f"{got}, got {', '.join(f'{name}={amount:g}' for name, amount in resources.items())}"
        )
    return count


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
    lines = [line for line in lines if not line.startswith(_NEVER_RAN)] or lines
    return lines[-1][:_MAX_REASON] if lines else ""
