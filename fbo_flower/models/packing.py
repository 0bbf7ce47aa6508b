"""A fitted model as an array of bytes, and back.

The bytes are an archive in skops' format, which `skops.io.load` reads, but written anew: without the
addresses in memory by which skops tells objects apart, without the time of day, equal arrays once. So the
same model is the same bytes whenever it is packed, and an object that is shared comes back as equal copies.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models.archive import SCHEMA, read_archive, read_array, reason, write_archive
from fbo_flower.models.consistency import check_model
from fbo_flower.models.formats import is_exported, load_exported
from fbo_flower.models.limits import Limits
from fbo_flower.models.schema import check_schema

Payload = npt.NDArray[np.uint8]
DEFLATE_LEVEL = 6
_EVERYTHING = Limits(max_bytes=2**62, max_inflated=2**62, max_ratio=1e18, max_entries=2**31)


def pack(model: Any, max_bytes: int = Limits.max_bytes, level: int = DEFLATE_LEVEL) -> Payload:
    """Return a fitted model as bytes `(n,)`.

    Parameters
    ----------
    model : a fitted estimator of scikit-learn or a pipeline of such
    max_bytes : what the sites accept, see `Limits`
    level : of the compression, 1 to 9

    Raises
    ------
    ObjectiveError
        If the model cannot be written in skops' format, or is too large.
    """
    import skops.io

    try:
        parts = _canonical(skops.io.dumps(model))
    except Exception as error:  # skops runs the estimator's own code
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
    """Return the model in an array of bytes, once all that can be checked has been.

    A model that passes is of known types and cannot make scikit-learn leave its arrays as far as its trees
    and support vectors go. What it predicts, and what time and memory that takes, is for the sandbox to
    bound.

    Parameters
    ----------
    payload : `(n,)` uint8
    trusted : full names of types beyond `ESTIMATORS` ("sklearn.neural_network...."): the operator's decision,
        never taken from a message
    limits : of size; the defaults if None

    Raises
    ------
    ModelError
        If anything is refused.
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
    except (
        Exception
    ) as error:  # attributes may be anything, and any of scikit-learn's code may stumble over them
        raise ModelError(f"model: cannot be loaded ({reason(error)})") from error
    return model


def payload_bytes(payload: npt.NDArray[Any], limits: Limits) -> bytes:
    """Return the bytes of a payload of an allowed size."""
    if not isinstance(payload, np.ndarray) or payload.dtype != np.uint8 or payload.ndim != 1:
        shape = getattr(payload, "shape", type(payload).__name__)
        raise ModelError(f"model: expected bytes (n,) uint8, got {shape} {getattr(payload, 'dtype', '')}")
    if not 0 < len(payload) <= limits.max_bytes:
        raise ModelError(f"model: expected 1 to {limits.max_bytes} bytes, got {len(payload)}")
    return payload.tobytes()


def check_trusted(trusted: Sequence[str] | None) -> frozenset[str]:
    """Return the operator's own list."""
    if isinstance(trusted, str) or not all(isinstance(name, str) and "." in name for name in trusted or ()):
        raise ModelError(f"trusted: expected full names of types, got {str(trusted)[:80]!r}")
    return frozenset(trusted or ())


def _check_version(caught: Sequence[warnings.WarningMessage]) -> None:
    """A model of another minor version may load and predict something else."""
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
    """Return the parts of a skops archive, without ids, its arrays numbered as they appear, each once."""
    parts = read_archive(data, _EVERYTHING)
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
    """Zeros in the gaps of an array of records, a tree's nodes, which may hold whatever was in memory."""
    array: npt.NDArray[Any] = read_array("array", data)
    if array.dtype.names is None:
        return data
    records = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names:
        records[name] = array[name]
    return data[: len(data) - array.nbytes] + records.tobytes()
