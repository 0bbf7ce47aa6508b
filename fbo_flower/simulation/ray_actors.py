"""Ray actors that hold a ClientApp and answer batches of messages; an actor that dies is replaced.

A batch is sent as one pickle, so that its size is known, and so that a message that cannot be pickled fails
with its batch alone. Pickle is acceptable here, because Ray itself pickles all that its actors exchange, and
the actors run on machines of one owner. Nothing that arrives over Flower's network is unpickled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import answer_all, identify
from fbo_flower.simulation.rare_collections import collect_rarely
from fbo_flower.simulation.ray_contexts import ContextsMissing, HeldContexts, Parcel

_START_SECONDS = 120.0  # how long the actors may take to start
_THREADS = {
    name: "1"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
}


class ActorDied(Exception):  # noqa: N818  # an event that the caller answers
    """The actor died while it had a batch."""


class BatchFailed(Exception):  # noqa: N818
    """A batch could not be answered although its actor lives, for example because it cannot be pickled."""


@dataclass(frozen=True)
class Answers:
    """The answers to a batch.

    Parameters
    ----------
    replies : for each message the reply, and a copy of the node's context after it
    seconds : how long the actor worked
    num_bytes : size of the replies and contexts
    """

    replies: Sequence[tuple[Message, bytes]]
    seconds: float
    num_bytes: int


class RayActors:
    """A fixed number of actors in a Ray cluster, one CPU each.

    Parameters
    ----------
    app : the ClientApp; cloudpickle must be able to pickle it, as in Flower's engine
    count : number of actors; None: one per CPU of the cluster
    address : address of a Ray cluster to join, "auto" for the one that this machine belongs to; None: start
        a cluster here, or use the one that this process has started

    Raises
    ------
    ConfigError
        If the app cannot be pickled, Ray is not installed, the cluster cannot be reached or has too few free
        CPUs, or an actor cannot load the app.
    """

    def __init__(self, app: ClientApp, count: int | None, address: str | None) -> None:
        check_picklable(app)
        self._ray, self._started_ray = _start_ray(address)
        self._app = self._ray.put(app)
        self._class = self._ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        count = count or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._actors = [self._new() for _ in range(count)]
        self._starting: dict[int, Any] = {}  # actor -> the reference that is ready once it has started
        try:
            self._ray.get([actor.ping.remote() for actor in self._actors], timeout=_START_SECONDS)
        except self._ray.exceptions.GetTimeoutError as error:
            self.end()
            raise ConfigError(f"engine: expected {count} free CPUs in the Ray cluster, got fewer") from error
        except self._ray.exceptions.RayError as error:
            self.end()
            raise ConfigError(f"engine: a Ray worker could not load the app: {_last_line(error)}") from error

    def __len__(self) -> int:
        return len(self._actors)

    def send(self, actor: int, parcel: Parcel) -> tuple[Any, int]:
        """Send a batch to an actor; return a reference to its answers and the size of the batch in bytes.

        Raises
        ------
        BatchFailed
            If the batch cannot be pickled.
        """
        try:
            data = _dumps(parcel)
        except Exception as error:  # pickle raises several kinds
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        return self._actors[actor].work.remote(data), len(data)

    def done(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """Wait at most `seconds` for a batch to be answered; return the references that are done."""
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=seconds)
        return list(ready)

    def collect(self, reference: Any) -> Answers:
        """Return the answers to a batch that is done.

        Raises
        ------
        ActorDied
            If the actor died while it had the batch.
        BatchFailed
            If the actor could not answer the batch.
        ContextsMissing
            If the actor does not hold a context that it should hold; it has done nothing.
        """
        try:
            data, seconds = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            raise ActorDied(f"{type(error).__name__}: {_last_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            raise BatchFailed(f"{type(error).__name__}: {_last_line(error)}") from error
        if data is None:
            raise ContextsMissing
        return Answers(pickle.loads(data), seconds, len(data))

    def replace(self, actor: int) -> None:
        """End an actor, if it still lives, and start a new one in its place."""
        self._ray.kill(self._actors[actor])
        self._actors[actor] = self._new()
        self._starting[actor] = self._actors[actor].ping.remote()

    def is_there(self, actor: int) -> bool:
        """Return whether an actor has started; a new actor takes seconds to start."""
        reference = self._starting.get(actor)
        if reference is None:
            return True
        ready, _ = self._ray.wait([reference], timeout=0)
        if not ready:
            return False
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayError:
            return False
        del self._starting[actor]
        return True

    def end(self) -> None:
        """End the actors, and Ray if it was started here."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._started_ray:
            self._ray.shutdown()

    def _new(self) -> Any:
        return self._class.options(runtime_env={"env_vars": _THREADS}).remote(self._app)


class _Actor:
    """The code in a Ray actor: it calls the ClientApp on one batch after the other, and keeps contexts."""

    def __init__(self, app: ClientApp) -> None:
        identify()
        self._app = app
        self._contexts = HeldContexts()
        collect_rarely()

    def ping(self) -> None:
        """Return nothing; an answer shows that the actor lives."""

    def work(self, data: bytes) -> tuple[bytes | None, float]:
        """Return the pickled replies and contexts, and how many seconds they took.

        Without a context that the actor should hold it returns None instead.
        """
        start = time.perf_counter()
        parcel: Parcel = pickle.loads(data)
        try:
            batch = self._contexts.take(parcel)
        except ContextsMissing:
            return None, 0.0
        replies = answer_all(self._app, batch)
        contexts = [(message.metadata.dst_node_id, context) for message, context in batch]
        packed = _dumps([(r, _dumps(context)) for r, (_, context) in zip(replies, contexts, strict=True)])
        # only now is the batch answered: if it cannot be pickled, it counts as never begun
        self._contexts.keep(parcel.number, contexts)
        return packed, time.perf_counter() - start


def _dumps(value: object) -> bytes:
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


def _start_ray(address: str | None) -> tuple[Any, bool]:
    """Return the module `ray`, connected to a cluster, and whether this call started the cluster."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "engine: ray needs Ray; run pip install 'fbo-flower[simulation]', or use the engine inline"
        ) from error
    if ray.is_initialized():
        return ray, False
    _check_reachable(address)
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        with contextlib.suppress(FileNotFoundError):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
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
