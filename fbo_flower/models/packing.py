"""Convert a fitted model to an array of bytes and back, without pickle.

The bytes are an archive in skops' format that `skops.io.load` can read, rewritten to a canonical form:
without the memory addresses that skops uses as ids, without timestamps, and with equal arrays stored once. So
packing the same model always gives the same bytes. An object that a model references twice is unpacked as two
equal copies.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models.archive import SCHEMA, Limits, read_archive, read_array, reason, write_archive
from fbo_flower.models.consistency import check_model
from fbo_flower.models.formats import EVERYTHING, is_exported, load_exported
from fbo_flower.models.schema import check_schema

Payload = npt.NDArray[np.uint8]
DEFLATE_LEVEL = 6


def pack(model: Any, max_bytes: int = Limits.max_bytes, level: int = DEFLATE_LEVEL) -> Payload:
    """Return a fitted model as bytes `(n,)`.

    Parameters
    ----------
    model : a fitted scikit-learn estimator or pipeline
    max_bytes : largest size that the sites accept, see `Limits`
    level : compression level, 1 to 9

    Raises
    ------
    ObjectiveError
        If the model cannot be written in skops' format, or is too large.
    """
    import skops.io

    try:
        parts = _canonical(skops.io.dumps(model))
    except Exception as error:  # skops calls the estimator's own code, which may raise anything
        raise ObjectiveError(f"{type(model).__name__}: cannot be packed ({reason(error)})") from error
    packed = write_archive(parts, level)
    if len(packed) > max_bytes:
        raise ObjectiveError(
            f"{type(model).__name__}: expected a model of up to {max_bytes} bytes, got {len(packed)}; "
            "try a smaller one, or raise max_bytes here and at the sites"
        )
    return np.frombuffer(packed, dtype=np.uint8).copy()


def unpack(
    payload: npt.NDArray[Any], trusted: Sequence[str] | None = None, limits: Limits | None = None
) -> Any:
    """Check an array of bytes and return the model in it.

    The model consists of trusted types only, and its trees and support vectors cannot make scikit-learn read
    outside of their arrays. The sandbox bounds the time and memory of its predictions.

    Parameters
    ----------
    payload : `(n,)` uint8
    trusted : full names of types to accept beyond `ESTIMATORS` ("sklearn.neural_network...."). The operator
        decides; never take them from a message
    limits : size limits; the defaults if None

    Raises
    ------
    ModelError
        If a check fails or the model cannot be loaded.
    """
    limits, extra = limits or Limits(), check_trusted(trusted)
    data = payload_bytes(payload, limits)
    if is_exported(data):
        return load_exported(data, limits)
    parts = read_archive(data, limits)
    names = check_schema(parts, extra, limits.max_inflated)
    import skops.io

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = skops.io.loads(write_archive(parts, 0), trusted=sorted(names))
        _check_version(caught)
        check_model(model)
    except ModelError:
        raise
    except Exception as error:  # attributes are untrusted and may make any of scikit-learn's code raise
        raise ModelError(f"model: cannot be loaded ({reason(error)})") from error
    return model


def payload_bytes(payload: npt.NDArray[Any], limits: Limits) -> bytes:
    """Return a payload as bytes; ModelError if it is not an array of bytes of an allowed size."""
    if not isinstance(payload, np.ndarray) or payload.dtype != np.uint8 or payload.ndim != 1:
        shape = getattr(payload, "shape", type(payload).__name__)
        raise ModelError(f"model: expected bytes (n,) uint8, got {shape} {getattr(payload, 'dtype', '')}")
    if not 0 < len(payload) <= limits.max_bytes:
        raise ModelError(f"model: expected 1 to {limits.max_bytes} bytes, got {len(payload)}")
    return payload.tobytes()


def check_trusted(trusted: Sequence[str] | None) -> frozenset[str]:
    """Return the operator's trusted types as a set; ModelError if they are not full names."""
    if isinstance(trusted, str) or not all(isinstance(name, str) and "." in name for name in trusted or ()):
        raise ModelError(f"trusted: expected full names of types, got {str(trusted)[:80]!r}")
    return frozenset(trusted or ())


def _check_version(caught: Sequence[warnings.WarningMessage]) -> None:
    """Raise ModelError if the model was saved by another minor version, as its predictions may differ."""
    for warning in caught:
        theirs = getattr(warning.message, "original_sklearn_version", None)
        if theirs is not None:
            import sklearn

            if str(theirs).split(".")[:2] != sklearn.__version__.split(".")[:2]:
                raise ModelError(
                    f"model: expected scikit-learn {sklearn.__version__} as here, got {str(theirs)[:20]}"
                )


# -- the canonical form ------------------------------------------------------------------------


def _canonical(data: bytes) -> dict[str, bytes]:
    """Return the parts of a skops archive without ids, equal arrays once, numbered in order of use."""
    parts = read_archive(data, EVERYTHING)
    root = json.loads(parts[SCHEMA])
    files: dict[bytes, str] = {}
    todo = [root]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            value.pop("__id__", None)
            if "file" in value and "__loader__" in value:
                content = _without_padding(parts[value["file"]])
                value["file"] = files.setdefault(content, f"{len(files) + 1}.npy")
            todo.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            todo.extend(reversed(value))
    schema = json.dumps(root, separators=(",", ":")).encode()
    return {SCHEMA: schema} | {name: content for content, name in files.items()}


def _without_padding(data: bytes) -> bytes:
    """Return an npy file whose records (a tree's nodes) have zeros in their padding bytes."""
    array: npt.NDArray[Any] = read_array("array", data)
    if array.dtype.names is None:
        return data
    records = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names:
        records[name] = array[name]
    return data[: len(data) - array.nbytes] + records.tobytes()
