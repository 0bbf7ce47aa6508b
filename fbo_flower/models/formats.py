"""Models that are not scikit-learn's, as bytes: an envelope around what another library wrote.

| format | body | judged by |
|---|---|---|
| `skops` | no envelope: an archive, see `packing` | scikit-learn |
| `onnx` | a serialised ONNX model | ONNX Runtime |
| `xgboost-json` | `Booster.save_raw("json")` | XGBoost |
| `lightgbm-text` | `Booster.model_to_string()` | LightGBM |

The envelope is a magic number, the length of a header, the header as JSON, and the body, deflated. The
header names the format, the number of columns and the classes. A body is checked before it is sent and before
it is loaded. Those of the two boosters are also written anew from their checked parts: what is not needed to
predict (ranges of columns, counts of rows, names, paths) is left out.
"""

from __future__ import annotations

import importlib.util
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models import boosters, onnx_graph
from fbo_flower.models.archive import AnyArray, Limits, reason

SKOPS = "skops"
MAGIC = b"\x89FBO-MODEL\n"
_LENGTH = struct.Struct("<I")
MAX_HEADER = 2**18
MAX_COLUMNS = 10**6
MAX_CLASSES = 1000
MAX_LABEL = 200  # characters
EVERYTHING = Limits(max_bytes=2**62, max_inflated=2**62, max_ratio=1e18, max_entries=2**31)
SETUP = "setup: "  # begins reasons that no other configuration can mend


@dataclass(frozen=True)
class Format:
    """How models of one kind are exported, checked and loaded.

    Parameters
    ----------
    libraries : that must be installed to judge; the extra of this package has the format's first name
    suffix : of a saved file
    export : `export(model, x)` returns the body for a fitted estimator of the library; None: the user's own
    checked : `checked(body, num_columns)` returns what may be loaded, or raises ModelError
    load : `load(body)` returns `scores(x)`; called after `checked`, in the child
    """

    libraries: tuple[str, ...]
    suffix: str
    export: Callable[[Any, Any], bytes] | None
    checked: Callable[[bytes, int], bytes]
    load: Callable[[bytes], Callable[[AnyArray], AnyArray]]


EXPORTED = {
    "onnx": Format(("onnx", "onnxruntime"), ".onnx", None, onnx_graph.checked, onnx_graph.load),
    "xgboost-json": Format(
        ("xgboost",), ".json", boosters.export_xgboost, boosters.checked_xgboost, boosters.load_xgboost
    ),
    "lightgbm-text": Format(
        ("lightgbm",), ".txt", boosters.export_lightgbm, boosters.checked_lightgbm, boosters.load_lightgbm
    ),
}
FORMATS = (SKOPS, *EXPORTED)


@dataclass(frozen=True)
class ExportedModel:
    """A model of another library behind the methods that a judge asks for.

    `scores(x)` returns labels `(n,)` (whole numbers or texts), or real numbers: `(n, k)` scores of `k`
    classes, `(n,)` probabilities of the second of two classes, or, without classes, predictions `(n,)`.
    """

    n_features_in_: int
    classes: tuple[int | str, ...]
    scores: Callable[[AnyArray], AnyArray]

    @property
    def classes_(self) -> AnyArray:
        """Return the classes."""
        if not self.classes:
            raise ModelError("model: expected classes, got a model of real numbers")
        return np.array(self.classes)

    def predict(self, x: AnyArray) -> AnyArray:
        """Return labels or real numbers, `(n,)`."""
        scores = self._scores(x)
        if scores.dtype.kind != "f" or not self.classes:
            return scores.reshape(len(x))
        if scores.ndim == 2 and scores.shape[1] == len(self.classes):
            return self._labels(np.argmax(scores, axis=1))
        if len(self.classes) == 2:
            return self._labels((scores.reshape(len(x)).astype(np.float64) > 0.5).astype(np.intp))
        raise ModelError(f"model: expected scores of {len(self.classes)} classes, got {scores.shape}")

    def predict_proba(self, x: AnyArray) -> AnyArray:
        """Return scores of the classes, `(n, k)`."""
        scores = self._scores(x)
        if not self.classes or scores.dtype.kind != "f":
            raise ModelError("model: expected scores of classes, got predictions")
        if scores.ndim == 2 and scores.shape[1] == len(self.classes):
            return scores
        second = scores.reshape(len(x)).astype(np.float64)
        return np.stack([1 - second, second], axis=1)

    def _labels(self, indices: npt.NDArray[np.intp]) -> AnyArray:
        labels: AnyArray = self.classes_[indices]
        return labels

    def _scores(self, x: AnyArray) -> AnyArray:
        scores = np.asarray(self.scores(x))
        if scores.ndim not in {1, 2} or len(scores) != len(x):
            raise ModelError(f"model: expected predictions of {len(x)} rows, got {scores.shape}")
        return scores


def pack_exported(
    body: bytes,
    model_format: str,
    num_columns: int,
    classes: Sequence[Any] | None = None,
    max_bytes: int = Limits.max_bytes,
) -> npt.NDArray[np.uint8]:
    """Return a model that another library wrote as a payload `(n,)`.

    Parameters
    ----------
    body : what `export` returned
    model_format : "onnx", "xgboost-json" or "lightgbm-text"
    num_columns : of the rows that the model expects
    classes : labels in the order of the model's scores, whole numbers or texts; none for a regression
    max_bytes : what the sites accept, see `Limits`

    Raises
    ------
    ObjectiveError
        If the body would be refused, is too large, or the classes cannot be sent.
    """
    labels = [] if classes is None else np.asarray(classes).tolist()
    header: dict[str, Any] = {"format": model_format, "num_columns": num_columns, "classes": labels}
    try:
        text = json.dumps(header, separators=(",", ":")).encode()
        chosen, _ = _read_header(text)
        data = chosen.checked(bytes(body), num_columns)
    except (ModelError, TypeError, ValueError) as error:
        raise ObjectiveError(f"export: {reason(error)}") from error
    payload = MAGIC + _LENGTH.pack(len(text)) + text + zlib.compress(data, 6)
    if len(payload) > max_bytes:
        raise ObjectiveError(f"export: expected a model of up to {max_bytes} bytes, got {len(payload)}")
    return np.frombuffer(payload, dtype=np.uint8).copy()


def is_exported(data: bytes) -> bool:
    """Return whether bytes are an envelope, and not an archive."""
    return data.startswith(MAGIC)


def load_exported(data: bytes, limits: Limits) -> ExportedModel:
    """Return the model in an envelope, once all that can be checked has been."""
    chosen, header, body = read_envelope(data, limits)
    for library in chosen.libraries:
        if importlib.util.find_spec(library) is None:
            raise ModelError(
                f"{SETUP}{header['format']}: expected {library} to judge it, not installed at this site; "
                f'run: pip install "fbo-flower[{header["format"].partition("-")[0]}]"'
            )
    try:
        scores = chosen.load(chosen.checked(body, header["num_columns"]))
    except (MemoryError, ModelError):
        raise
    except Exception as error:  # the library's own refusal
        raise ModelError(f"model: {header['format']} cannot be loaded ({reason(error)})") from error
    return ExportedModel(header["num_columns"], tuple(header["classes"]), scores)


def as_file(payload: npt.NDArray[Any]) -> tuple[str, bytes]:
    """Return the suffix and the content of a file that the library of a model's format reads."""
    data = np.ascontiguousarray(payload).tobytes()
    if not is_exported(data):
        return ".skops", data
    chosen, _, body = read_envelope(data, EVERYTHING)
    return chosen.suffix, body


def read_envelope(data: bytes, limits: Limits) -> tuple[Format, dict[str, Any], bytes]:
    """Return format, header and body; ModelError if the envelope is malformed or inflates too far."""
    start = len(MAGIC) + _LENGTH.size
    if not is_exported(data) or len(data) < start:
        raise ModelError("envelope: expected a model in one of the formats " + ", ".join(EXPORTED))
    (length,) = _LENGTH.unpack(data[len(MAGIC) : start])
    if length > min(MAX_HEADER, len(data) - start):
        raise ModelError(f"envelope: expected a header of up to {MAX_HEADER} bytes, got {length}")
    chosen, header = _read_header(data[start : start + length])
    inflater, allowed = zlib.decompressobj(), limits.inflated(len(data))
    try:
        body = inflater.decompress(data[start + length :], allowed + 1)
    except zlib.error as error:
        raise ModelError(f"envelope: expected a deflated model ({reason(error)})") from error
    if len(body) > allowed:
        raise ModelError(f"envelope: expected up to {allowed} bytes inflated from {len(data)}, got more")
    if not inflater.eof or inflater.unused_data:
        raise ModelError("envelope: expected one deflated model, got a part of one or more")
    return chosen, header, body


def _read_header(text: bytes) -> tuple[Format, dict[str, Any]]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"envelope: expected a header as JSON ({reason(error)})") from error
    if not isinstance(header, dict) or set(header) != {"format", "num_columns", "classes"}:
        raise ModelError("envelope: expected format, num_columns and classes")
    name, columns, classes = header["format"], header["num_columns"], header["classes"]
    if not isinstance(name, str) or name not in EXPORTED:
        raise ModelError(f"format: expected one of {', '.join(EXPORTED)}, got {str(name)[:40]!r}")
    if type(columns) is not int or not 1 <= columns <= MAX_COLUMNS:
        raise ModelError(f"num_columns: expected 1 to {MAX_COLUMNS}, got {str(columns)[:40]}")
    if not isinstance(classes, list) or len(classes) > MAX_CLASSES or len(classes) == 1:
        raise ModelError(f"classes: expected none, or 2 to {MAX_CLASSES}")
    whole = all(type(label) is int and abs(label) < 2**53 for label in classes)
    texts = all(isinstance(label, str) and len(label) <= MAX_LABEL for label in classes)
    if not (whole or texts) or len(set(classes)) != len(classes):
        raise ModelError("classes: expected different whole numbers, or different short texts")
    return EXPORTED[name], header
