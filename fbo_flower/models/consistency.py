"""Check that the attributes of a loaded model are consistent, as scikit-learn's own code assumes.

Predictions of the trusted types run in NumPy, which checks array bounds, with two exceptions: trees (their
arrays were checked before the trees were built) and libsvm. Both rely on numbers of features and classes that
are ordinary attributes, so a sender can set them to anything. This module compares them with the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fbo_flower.errors import ModelError

# not "precomputed" (indexes by row) and not functions (would be called)
KERNELS = ("linear", "poly", "rbf", "sigmoid")


def check_model(model: Any) -> None:
    """Raise ModelError if parts of a model are inconsistent; set all parts to predict in one thread.

    Raises
    ------
    ModelError
        If a part is inconsistent; the message names it.
    """
    if not callable(getattr(model, "predict", None)):
        raise ModelError(f"model: expected an estimator that predicts, got {type(model).__name__}")
    for part in estimators(model):
        _check_part(part)


def num_features(model: Any) -> int:
    """Return the number of columns that a model expects."""
    number = getattr(model, "n_features_in_", None)
    if type(number) is not int or number < 1:
        raise ModelError(f"model: expected n_features_in_ of a fitted model, got {str(number)[:40]}")
    return number


def estimators(model: Any) -> Iterator[Any]:
    """Yield the model itself and every estimator in it, each once."""
    from sklearn.base import BaseEstimator

    return (part for _, part in named_parts(model) if isinstance(part, BaseEstimator))


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
