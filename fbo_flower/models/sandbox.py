"""Predict with received models in a separate process with limits on time and memory.

A child process loads the model and predicts. It is started fresh (not forked), inherits only the environment
variables that Python needs, and runs BLAS in one thread. It is reused: the first request takes a second or
two, later ones milliseconds. If the child crashes or exceeds the time limit, the request raises ModelError
and the next request starts a new child. Before it reads a model, the child gives up network, files and other
processes as far as the system can deny them; `confinement()` returns what holds here.
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
from fbo_flower.models.archive import AnyArray, Limits, read_array
from fbo_flower.models.jail import Confinement
from fbo_flower.models.packing import Payload, check_trusted, payload_bytes

START_SECONDS = 120.0  # for a child to import scikit-learn on a busy machine
MAX_LOSSES = 20  # consecutive lost children after which no more are started
MAX_HEADER = 65_536
MAX_WIDTH = 1000  # largest number of columns of an answer, or of classes
MAX_TEXT = 1024  # largest size of a label in bytes
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
    """Return the predictions of a packed model for the rows `x (n, d)`.

    Parameters
    ----------
    payload : packed model, as returned by `pack`
    x : numbers, with NaN for missing values
    limits : the operator's limits; the defaults if None
    trusted : full names of types that the operator trusts beyond the built-in list
    method : "predict", "predict_proba", "decision_function", or "classes_" for the classes of a classifier
    in_process : True predicts in this process, with the same checks but without the child's limits and
        isolation; for simulations, which create all models themselves

    Returns
    -------
    `(n,)` or `(n, k)`, numbers or texts; classes are `(k,)`

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
            result = worker.run(payload, x.copy(), method, extra, limits)  # some predict in place
        except MemoryError as error:
            raise ModelError(f"model: {method} needs more memory than there is") from error
    else:
        header = {"method": method, "trusted": extra, "limits": asdict(limits)}
        result = _CHILD.ask(header, payload_bytes(payload, limits), x)
    return _checked(result, method, len(x))


def confinement() -> Confinement:
    """Return what the child that judges models cannot do here; starts it if there is none."""
    return _CHILD.confinement()


def _checked(result: AnyArray, method: str, num_rows: int) -> AnyArray:
    """Return the result if its type, shape and values are plausible: the child's answer is untrusted too."""
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
    """One worker process and its pipes."""

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
            start_new_session=True,  # so that Ctrl-C at the terminal reaches only the parent
        )
        self.owner = os.getpid()
        header, _ = self._exchange(b"", 0, START_SECONDS, "starting")
        if header.get("ready") is not True:
            self.kill()
            raise ModelError("worker: expected it to be ready, got something else")
        self.trusted = tuple(trusted)
        self.confinement = Confinement(**{k: tuple(v) for k, v in header.get("confinement", {}).items()})

    def ask(self, header: dict[str, Any], payload: bytes, x: AnyArray) -> AnyArray:
        """Send one request and return the predictions; ModelError if the worker refuses or fails."""
        text, rows, seconds = json.dumps(header).encode(), worker.dump_array(x), header["limits"]["seconds"]
        request = worker.REQUEST.pack(len(text), len(payload), len(rows)) + text + payload + rows
        most = MAX_HEADER + MAX_WIDTH * max(8 * len(x), MAX_TEXT)
        reply, content = self._exchange(request, most, seconds, "predicting")
        if reply.get("failed") == worker.OUT_OF_MEMORY:
            self.kill()
            raise ModelError(
                f"model: expected to need at most {header['limits']['memory_bytes']} bytes, got more"
            )
        if "refused" in reply:
            raise ModelError(_line(reply["refused"]))
        return read_array("predictions", content)

    def kill(self) -> None:
        """Kill the process and close its pipes; does nothing if it has already ended."""
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
        """Whether the process runs and belongs to this process (not to the parent of a fork)."""
        return self.owner == os.getpid() and self.process.poll() is None

    def _exchange(
        self, request: bytes, most: int, seconds: float, doing: str
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the answer; a timer kills the child after `seconds`."""
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
            sizes = worker.REPLY.unpack(_read(stream, worker.REPLY.size))
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
        except (ValueError, RecursionError) as error:  # ModelError is a ValueError
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


class OneChild:
    """Holds the one child of this process and replaces it when it is lost."""

    def __init__(self, boot: str = BOOT) -> None:
        self.boot = boot
        self.lock = threading.Lock()
        self.child: Child | None = None
        self.num_lost = 0  # children lost since the last answer

    def ask(self, header: dict[str, Any], payload: bytes, x: AnyArray) -> AnyArray:
        """Return the answer of `Child.ask`; start a child first if none is alive."""
        with self.lock:
            child = self._child(tuple(header.get("trusted", ())))
            try:
                reply = child.ask(header, payload, x)
            finally:
                if child.alive:
                    self.num_lost = 0
            return reply

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
        """Kill the child, unless this process is a fork and the child belongs to its parent."""
        if self.child is not None and self.child.owner == os.getpid():
            self.child.kill()
        self.child = None


_CHILD = OneChild()
atexit.register(_CHILD.close)


def _read(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) != length:
        raise EOFError
    return content


def _line(text: object) -> str:
    return "".join(character for character in str(text)[:300] if character.isprintable())
