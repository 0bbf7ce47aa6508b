"""The worker process that loads received models and predicts with them; started by `sandbox` only.

It reads requests from standard input: the lengths of three parts, then a JSON header, the model, and the rows
as an npy file. For each it writes one answer to standard output: the lengths of two parts, then a JSON header
and the predictions as an npy file. Nothing is pickled. Output that a model prints is discarded.

When everything is imported, and before it reads the first model, the process gives up network, files and
other processes (see `jail`); its first answer says what holds.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import math
import os
import struct
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError
from fbo_flower.models.archive import AnyArray, Limits, read_array, reason
from fbo_flower.models.formats import EXPORTED
from fbo_flower.models.jail import confine, landlock_version, limit
from fbo_flower.models.packing import num_features, pack, payload_bytes, unpack
from fbo_flower.models.schema import ESTIMATORS

REQUEST, REPLY = struct.Struct("<QQQ"), struct.Struct("<QQ")
METHODS = ("predict", "predict_proba", "decision_function", "classes_")
MAX_FILES = 64
PRELOADED = ("skops.io", *sorted({name.rpartition(".")[0] for name in ESTIMATORS}))
PRELOAD = "FBO_FLOWER_PRELOAD"  # variable with the modules of the types that the operator trusts
OUT_OF_MEMORY = "memory"


def run(
    payload: npt.NDArray[Any], x: AnyArray, method: str, trusted: Sequence[str] | None, limits: Limits
) -> AnyArray:
    """Load a model and return its answer for `x (n, d)`; every failure raises ModelError.

    Parameters
    ----------
    method : one of `METHODS`; "classes_" returns the classes of a classifier and ignores the rows
    """
    model = _unpacked(payload_bytes(payload, limits), tuple(trusted or ()), limits)
    try:
        if num_features(model) != x.shape[1]:
            raise ModelError(
                f"model: expected {x.shape[1]} features as in this site's rows, got {num_features(model)}"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reply = getattr(model, method)
            result = np.asarray(reply if method == "classes_" else reply(x))
        if result.dtype == object and all(isinstance(label, str) for label in result.ravel()):
            result = result.astype(np.str_)
        return result
    except (MemoryError, ModelError):
        raise
    except Exception as error:  # the model's attributes are untrusted, so any exception may come
        raise ModelError(f"model: {method} failed ({reason(error)})") from error


@functools.lru_cache(maxsize=1)  # consecutive requests are often about the same model
def _unpacked(data: bytes, trusted: tuple[str, ...], limits: Limits) -> Any:
    return unpack(np.frombuffer(data, dtype=np.uint8), trusted, limits)


def dump_array(array: AnyArray) -> bytes:
    """Return an array of numbers or texts as the bytes of an npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def main() -> None:
    """Answer requests until standard input ends."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    for name in PRELOADED:  # import once, before the first request
        importlib.import_module(name)
    for name in filter(None, os.environ.get(PRELOAD, "").split(",")):
        with suppress(Exception):  # a type that cannot be imported is refused when a model asks for it
            importlib.import_module(name)
    if not landlock_version():  # nothing can be imported later
        for library in sorted({name for chosen in EXPORTED.values() for name in chosen.libraries}):
            with suppress(ImportError):
                importlib.import_module(library)
    _warm_up()
    base_memory = None  # the size of this process's address space in bytes, if the system reports it
    with suppress(OSError, ValueError, AttributeError), open("/proc/self/statm", encoding="ascii") as file:
        base_memory = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    nowhere = os.open(os.devnull, os.O_RDWR)
    _limit_once()
    _send(replies, {"ready": True, "confinement": confine()._asdict()})
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    while True:
        head = requests.read(REQUEST.size)
        if len(head) < REQUEST.size:
            return
        header, payload, rows = (_read(requests, length) for length in REQUEST.unpack(head))
        try:
            result = _reply(json.loads(header), payload, rows, base_memory)
        except MemoryError:
            _send(replies, {"failed": OUT_OF_MEMORY})
            return  # end: the heap may be nearly full, and the next model needs a fresh process
        except ModelError as error:
            _send(replies, {"refused": str(error)})
        else:
            _send(replies, {}, result)


def _warm_up() -> None:
    """Judge a model of this process's own: what is imported at the first need is imported now."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = np.arange(8.0)[:, None], np.array(["a", "b"] * 4)
    for estimator in (RandomForestClassifier(2), LogisticRegression()):
        model = make_pipeline(StandardScaler(), estimator).fit(x, y)
        run(pack(model), x, "predict_proba", None, Limits())


def _reply(header: dict[str, Any], payload: bytes, rows: bytes, base_memory: int | None) -> bytes:
    limits = Limits(**header["limits"])
    _limit_request(limits, base_memory)
    x = read_array("rows", rows)
    result = run(np.frombuffer(payload, dtype=np.uint8), x, header["method"], header["trusted"], limits)
    if result.dtype.kind not in "biufU":
        raise ModelError(f"model: expected numbers or texts as predictions, got {str(result.dtype)[:40]}")
    return dump_array(result)


def _read(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) != length:
        sys.exit(0)  # the parent process has ended
    return content


def _send(stream: IO[bytes], header: dict[str, Any], content: bytes = b"") -> None:
    text = json.dumps(header).encode()
    stream.write(REPLY.pack(len(text), len(content)) + text + content)
    stream.flush()


def _limit_once() -> None:
    """Forbid written files and core dumps and limit open files, if the system supports it."""
    for name, value in (("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0), ("RLIMIT_NOFILE", MAX_FILES)):
        limit(name, value)


def _limit_request(limits: Limits, base_memory: int | None) -> None:
    """Set the processor time and memory that this request may use beyond what the process has used."""
    limit("RLIMIT_CPU", math.ceil(time.process_time() + limits.seconds) + 1, for_good=False)
    if base_memory is not None:
        limit("RLIMIT_AS", base_memory + limits.memory_bytes, for_good=False)
