"""Predictions of a model that came from elsewhere, made where it can do no harm.

A child process loads the model and predicts, with limits on time and memory; it inherits no environment but
what Python needs, runs BLAS in one thread and is not a copy of this process. It stays for the next model:
the first costs a second or two, later ones milliseconds. If it dies or hangs, that is an error of this one
model and the next gets a new child. Before it reads a model it gives up network, files and processes, as far
as the system can deny them: `confinement()` returns what holds here.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError, ModelError
from fbo_flower.models import worker
from fbo_flower.models.archive import AnyArray, read_array
from fbo_flower.models.jail import Confinement
from fbo_flower.models.limits import Limits
from fbo_flower.models.packing import Payload, check_trusted, payload_bytes

START_SECONDS = 120.0  # for a child to import scikit-learn on a busy machine
MAX_LOSSES = 20  # children lost one after the other, then no more are started
MAX_HEADER = 65_536
MAX_WIDTH = 1000  # columns of an answer, or classes
MAX_TEXT = 1024  # bytes of a label
BOOT = "import sys; sys.path[:] = sys.argv[1:]; from fbo_flower.models import worker; worker.main()"
KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def predict(
    payload: Payload,
    x: npt.NDArray[Any],
    limits: Limits | None = None,
    trusted: Sequence[str] | None = None,
    *,
    method: str = "predict",
    in_process: bool = False,
) -> AnyArray:
    """Return what a packed model says of `x (n, d)`.

    Parameters
    ----------
    payload : from `pack`, over the wire
    x : numbers, with NaN where a value is missing
    limits : the operator's; the defaults if None
    trusted : types beyond the built-in list, the operator's
    method : "predict", "predict_proba", "decision_function", or "classes_" for the classes of a classifier
    in_process : True runs the same checks here and spares the child, its limits and its safety: for
        simulations, where the models are one's own

    Returns
    -------
    `(n,)` or `(n, k)`, numbers or texts; classes `(k,)`

    Raises
    ------
    ModelError
        If the model is refused, fails, crashes or exceeds its limits.
    """
    limits = limits or Limits()
    if method not in worker.METHODS:
        raise ConfigError(f"method: expected one of {', '.join(worker.METHODS)}, got {method!r}")
    x = np.ascontiguousarray(x)
    if x.ndim != 2 or x.dtype.kind not in "biufU":
        raise ConfigError(f"rows: expected numbers (n, d), got {x.shape} {x.dtype}")
    extra = sorted(check_trusted(trusted))
    if in_process:
        try:
            result = worker.run(payload, x, method, extra, limits)
        except MemoryError as error:
            raise ModelError(f"model: {method} needs more memory than there is") from error
    else:
        header = {"method": method, "trusted": extra, "limits": asdict(limits)}
        result = _POOL.ask(header, payload_bytes(payload, limits), x)
    return _checked(result, method, len(x))


def confinement() -> Confinement:
    """Return what the child that judges models cannot do here; starts it if there is none."""
    return _POOL.confinement()


def _checked(result: AnyArray, method: str, num_rows: int) -> AnyArray:
    """What comes back is as foreign as what was sent."""
    fits = result.dtype.kind in "biufU" and (result.dtype.kind != "U" or result.dtype.itemsize <= MAX_TEXT)
    if method == "classes_":
        fits = fits and result.ndim == 1 and len(result) <= MAX_WIDTH
    else:
        fits = fits and result.ndim in {1, 2} and len(result) == num_rows
        fits = fits and (result.ndim == 1 or result.shape[1] <= MAX_WIDTH)
    if not fits:
        raise ModelError(
            f"model: expected predictions of {num_rows} rows, got {result.shape} {str(result.dtype)[:40]}"
        )
    if result.dtype.kind == "f" and not np.isfinite(result).all():
        raise ModelError("model: expected finite predictions, got some that are not")
    return result


class Child:
    """One worker process and the pipes to it."""

    def __init__(self, boot: str = BOOT, trusted: Sequence[str] = ()) -> None:
        path = [os.path.abspath(entry) for entry in sys.path if entry]
        environment = {key: os.environ[key] for key in KEPT if key in os.environ}
        environment[worker.PRELOAD] = ",".join(sorted({name.rpartition(".")[0] for name in trusted}))
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", boot, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment | dict.fromkeys(THREADS, "1"),
            cwd=os.path.abspath(os.sep),
            start_new_session=True,  # a Ctrl-C at the terminal is for the parent
        )
        self.owner = os.getpid()
        header, _ = self._exchange(b"", 0, START_SECONDS, "starting")
        if header.get("ready") is not True:
            self.kill()
            raise ModelError("worker: expected it to be ready, got something else")
        self.trusted = tuple(trusted)
        self.confinement = Confinement(**{k: tuple(v) for k, v in header.get("confinement", {}).items()})

    def ask(self, header: dict[str, Any], payload: bytes, x: AnyArray) -> AnyArray:
        """Return the worker's answer to one request; ModelError if there is none."""
        text, rows, seconds = json.dumps(header).encode(), worker.dump_array(x), header["limits"]["seconds"]
        request = worker.REQUEST.pack(len(text), len(payload), len(rows)) + text + payload + rows
        most = MAX_HEADER + MAX_WIDTH * max(8 * len(x), MAX_TEXT)
        answer, content = self._exchange(request, most, seconds, "predicting")
        if answer.get("failed") == worker.OUT_OF_MEMORY:
            self.kill()
            raise ModelError(
                f"model: expected to need at most {header['limits']['memory_bytes']} bytes, got more"
            )
        if "refused" in answer:
            raise ModelError(_line(answer["refused"]))
        return read_array("predictions", content)

    def kill(self) -> None:
        """End the process and close the pipes; harmless when it has ended."""
        with suppress(OSError):
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)

    @property
    def alive(self) -> bool:
        """Whether it may be asked again, by this process."""
        return self.owner == os.getpid() and self.process.poll() is None

    def _exchange(
        self, request: bytes, most: int, seconds: float, doing: str
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and read the answer; after `seconds` the child is killed, which ends any wait."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.process.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            self.process.stdin.write(request)
            self.process.stdin.flush()
            stream = self.process.stdout
            sizes = worker.ANSWER.unpack(_read(stream, worker.ANSWER.size))
            if sizes[0] > MAX_HEADER or sizes[1] > most:
                raise ModelError(f"worker: expected a short answer, got {sizes[0]} and {sizes[1]} bytes")
            header, content = json.loads(_read(stream, sizes[0])), _read(stream, sizes[1])
            if not isinstance(header, dict):
                raise ModelError("worker: expected a JSON object, got something else")
            return header, content
        except (OSError, EOFError) as error:
            reason = f"took longer than {seconds:g} s" if expired.is_set() else self._ending()
            self.kill()
            raise ModelError(f"model: the worker {reason} while {doing}") from error
        except (ValueError, RecursionError) as error:  # ModelError is one of these
            self.kill()
            raise error if isinstance(error, ModelError) else ModelError("worker: expected JSON") from error
        finally:
            timer.cancel()

    def _ending(self) -> str:
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        assert self.process.stderr is not None
        lines = self.process.stderr.read(65_536).decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"ended with status {code}" + (f" ({_line(last)})" if last else "")


class Pool:
    """The one child of this process, replaced when it is lost."""

    def __init__(self, boot: str = BOOT) -> None:
        self.boot = boot
        self.lock = threading.Lock()
        self.child: Child | None = None
        self.num_lost = 0  # since the last answer

    def ask(self, header: dict[str, Any], payload: bytes, x: AnyArray) -> AnyArray:
        """As `Child.ask`, starting a child where there is none."""
        with self.lock:
            child = self._child(tuple(header.get("trusted", ())))
            try:
                answer = child.ask(header, payload, x)
            finally:
                if child.alive:
                    self.num_lost = 0
            return answer

    def confinement(self) -> Confinement:
        """As `Child.confinement`, starting a child where there is none."""
        with self.lock:
            trusted = () if self.child is None else self.child.trusted
            return self._child(trusted).confinement

    def _child(self, trusted: tuple[str, ...]) -> Child:
        """Return a child that has imported the trusted types, which it cannot do later."""
        if self.child is not None and self.child.alive and self.child.trusted == trusted:
            return self.child
        if self.num_lost >= MAX_LOSSES:
            raise ModelError(f"worker: lost {self.num_lost} times in a row, restart this client")
        self.num_lost += 1
        self.close()
        self.child = Child(self.boot, trusted)
        return self.child

    def close(self) -> None:
        """End the child, if it is ours: a fork must leave its parent's alone."""
        if self.child is not None and self.child.owner == os.getpid():
            self.child.kill()
        self.child = None


_POOL = Pool()
atexit.register(_POOL.close)


def _read(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) != length:
        raise EOFError
    return content


def _line(text: object) -> str:
    return "".join(character for character in str(text)[:300] if character.isprintable())
