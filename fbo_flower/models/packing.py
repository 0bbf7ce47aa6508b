"""Convert a fitted model to an array of bytes and back, without pickle.

The bytes are an archive in skops' format that `skops.io.load` can read, rewritten to a canonical form:
without the memory addresses that skops uses as ids, without timestamps, and with equal arrays stored once. So
packing the same model always gives the same bytes. An object that a model references twice is unpacked as two
equal copies.

**Consistency** of the attributes of a loaded model. Predictions of the trusted types run in NumPy, which
checks array bounds, with two exceptions: trees (their arrays were checked before the trees were built) and
libsvm. Both rely on numbers of features and classes that are ordinary attributes, so a sender can set them to
anything. This module compares them with the arrays.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models.archive import SCHEMA, Limits, read_archive, read_array, reason, write_archive
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


# not "precomputed" (indexes by row) and not functions (would be called)
KERNELS = ("linear", "poly", "rbf", "sigmoid")


def check_model(model: Any) -> None:
    """Raise ModelError if parts of a model are inconsistent; set all parts to predict in one thread."""
    if not callable(getattr(model, "predict", None)):
        raise ModelError(f"model: expected an estimator that predicts, got {type(model).__name__}")
    from sklearn.base import BaseEstimator

    for _, part in named_parts(model):
        if isinstance(part, BaseEstimator):
            _check_part(part)


def num_features(model: Any) -> int:
    """Return the number of columns that a model expects."""
    number = getattr(model, "n_features_in_", None)
    if type(number) is not int or number < 1:
        raise ModelError(f"model: expected n_features_in_ of a fitted model, got {str(number)[:40]}")
    return number


def named_parts(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield every object reachable through estimators' attributes and through containers, each once.

    Each comes with its place in the model, such as `.steps[2][1].coef_`.
    """
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [("", model)]
    while todo:
        name, part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield name, part
        todo.extend(reversed([(name + key, child) for key, child in _children(part)]))


def _children(part: Any) -> list[tuple[str, Any]]:
    """Return the (name, value) pairs in a part: attributes of an estimator or items of a container."""
    from sklearn.base import BaseEstimator

    if isinstance(part, BaseEstimator):
        return [(f".{name}", value) for name, value in vars(part).items()]
    if isinstance(part, dict):
        return [(f"[{key!r}]", value) for key, value in part.items()]
    if isinstance(part, list | tuple):
        return [(f"[{index}]", value) for index, value in enumerate(part)]
    if isinstance(part, np.ndarray) and part.dtype == object:
        return [(f"[{index}]", value) for index, value in enumerate(part.ravel())]
    return []


def _check_part(part: Any) -> None:
    from sklearn.ensemble._forest import BaseForest
    from sklearn.svm._base import BaseLibSVM
    from sklearn.tree import BaseDecisionTree

    name, attributes = type(part).__name__, vars(part)
    parameters = type(part)._get_param_names()
    hidden = [key for key in attributes if hasattr(type(part), key) and key not in parameters]
    if hidden:  # e.g. `_impl`, from which libsvm decides how to read its arrays
        raise ModelError(f"{name}: expected no attribute of the class's own, got {hidden[0][:40]}")
    if "n_jobs" in attributes:
        part.n_jobs = None
    if isinstance(part, BaseDecisionTree) and "tree_" in attributes:
        if part.tree_.node_count < 1:
            raise ModelError(f"{name}: expected a tree with nodes, got none")
        _expect(name, "features of its tree", part.tree_.n_features, num_features(part))
        _expect(name, "outputs of its tree", part.tree_.n_outputs, part.n_outputs_)
    elif isinstance(part, BaseForest) and "estimators_" in attributes:
        for tree in part.estimators_:
            if not isinstance(tree, BaseDecisionTree) or "tree_" not in vars(tree):
                raise ModelError(f"{name}: expected fitted trees, got {type(tree).__name__}")
            _expect(name, "features of its trees", num_features(tree), num_features(part))
            _expect(name, "outputs of its trees", tree.n_outputs_, part.n_outputs_)
    elif isinstance(part, BaseLibSVM) and "support_vectors_" in attributes:
        _check_libsvm(name, part)
    elif isinstance(attributes.get("coef_"), np.ndarray) and "n_features_in_" in attributes:
        _check_linear(name, part)


def _check_linear(name: str, part: Any) -> None:
    coefficients = part.coef_
    _expect(name, "columns of coef_", coefficients.shape[-1:], (num_features(part),))
    if coefficients.ndim > 2 or coefficients.dtype.kind != "f" or not np.isfinite(coefficients).all():
        raise ModelError(f"{name}: expected finite coef_ of one row per class, got {coefficients.shape}")
    if "classes_" in vars(part):
        num_classes, num_rows = len(part.classes_), len(np.atleast_2d(coefficients))
        if num_rows != (1 if num_classes == 2 else num_classes):
            raise ModelError(f"{name}: expected coef_ of {num_classes} classes, got {coefficients.shape}")
    if np.size(part.intercept_) not in {1, len(np.atleast_2d(coefficients))}:
        raise ModelError(f"{name}: expected an intercept per row, got {np.shape(part.intercept_)}")


def _check_libsvm(name: str, part: Any) -> None:
    """Raise ModelError unless the arrays have the shapes and types that `libsvm.predict` assumes."""
    if part.kernel not in KERNELS or part._sparse is not False:
        raise ModelError(f"{name}: expected a dense model and one of {', '.join(KERNELS)}")
    classifier = hasattr(type(part), "predict_proba")  # SVC and NuSVC
    num_classes = len(part.classes_) if classifier else 2
    num_pairs = num_classes * (num_classes - 1) // 2 if classifier else 1
    vectors, counts = part.support_vectors_, part._n_support
    num_vectors = len(vectors)
    for key, array, shape, dtype in (
        ("support_vectors_", vectors, (num_vectors, num_features(part)), np.float64),
        ("support_", part.support_, (num_vectors,), np.int32),
        ("_n_support", counts, (num_classes,), np.int32),
        ("_dual_coef_", part._dual_coef_, (num_classes - 1, num_vectors), np.float64),
        ("_intercept_", part._intercept_, (num_pairs,), np.float64),
    ):
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
            raise ModelError(f"{name}: expected {key} {shape}, got {getattr(array, 'shape', None)}")
        if not np.isfinite(array).all():
            raise ModelError(f"{name}: expected finite {key}")
    total = int(counts.sum()) if classifier else int(counts[0])
    if num_classes < 2 or counts.min() < 0 or total != num_vectors:
        raise ModelError(
            f"{name}: expected counts of {num_vectors} support vectors, got {counts.tolist()[:8]}"
        )
    sizes = {np.size(part._probA), np.size(part._probB)}
    if len(sizes) != 1 or not sizes <= {0, num_pairs}:
        raise ModelError(f"{name}: expected probabilities of {num_pairs} pairs or none, got {sizes}")


def _expect(name: str, what: str, got: object, expected: object) -> None:
    if got != expected:
        raise ModelError(f"{name}: expected {what} to be {expected}, got {str(got)[:40]}")
