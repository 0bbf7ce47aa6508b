"""Find the parts of a model that are rows of its training data.

Some models contain training rows, for example patients' records: the support vectors of an SVM, the stored
data of a nearest-neighbour model or a Gaussian process, the centroid of a class with one member. Single
values are not reported, although many models contain them: a tree's threshold lies half way between two
values of a feature, and quantile transformers and encoders store values unchanged.

An exported model is bytes, whose parts have no names that we know. They are searched for the rows themselves:
as float32 and float64, and in a text as numbers one after the other. Rows that were scaled, reordered or
compressed on the way are not found, so an empty answer does not prove that a model carries none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.models.archive import AnyArray
from fbo_flower.models.formats import EVERYTHING, is_exported, read_envelope
from fbo_flower.models.packing import named_parts

Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# attributes and types of scikit-learn that hold training rows
ROW_ATTRIBUTES = frozenset(
    [".support_vectors_", "._fit_X", ".X_train_", ".X_fit_", ".X_", ".X_thresholds_", "._BaseLibSVM__Xfit"]
)
ROW_TYPES = frozenset({"KDTree", "BallTree", "KDTree32", "BallTree32", "KDTree64", "BallTree64"})
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_PLAIN = (-1.0, 0.0, 1.0)  # values that stand in every model
MAX_FOUND = 3  # places in an exported model
TOLERANCE = 1e-6  # relative to a column's largest value; wide enough for float32


def carries_rows(model: Any, rows: Any = None) -> list[str]:
    """Return the names of the parts that hold training rows, e.g. `.steps[2][1].support_vectors_`.

    Known attributes and types are found by name. If `rows` is given, every array of the model is also
    compared with the rows and with their transformations by the steps of its pipelines. Rows whose numbers
    are all equal are ignored. Short rows of few distinct values may match by chance, so the operator decides
    what to do with a finding.

    Parameters
    ----------
    model : a fitted estimator
    rows : `(n, d)`, the training data as passed to `fit`
    """
    stages = [] if rows is None else [_numbers(stage) for stage in _stages(model, rows)]
    found = []
    for name, part in named_parts(model):
        known = any(name.endswith(attribute) for attribute in ROW_ATTRIBUTES) and np.size(_dense(part)) > 0
        if (
            known
            or type(part).__name__ in ROW_TYPES
            or any(_holds(part, stage) for stage in stages if stage is not None)
        ):
            found.append(name)
    return found


def _stages(model: Any, rows: Any) -> Iterator[Any]:
    """Yield the rows as transformed for each step of each pipeline in the model."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import FeatureUnion, Pipeline

    yield rows
    if isinstance(model, Pipeline):
        for _, step in model.steps:
            if step is None or isinstance(step, str):
                continue
            yield from _stages(step, rows)
            if step is not model.steps[-1][1]:
                rows = step.transform(copy(rows))  # some work in place
        return
    inner: list[tuple[Any, Any]] = []
    if isinstance(model, FeatureUnion):
        inner = [(step, rows) for _, step in model.transformer_list]
    elif isinstance(model, TransformedTargetRegressor):
        inner = [(model.regressor_, rows)]
    elif hasattr(model, "transformers_"):
        from sklearn.utils import _safe_indexing

        inner = [
            (step, _safe_indexing(rows, columns, axis=1))
            for _, step, columns in model.transformers_
            if not isinstance(step, str)
        ]
    elif hasattr(model, "estimators_") and not hasattr(model, "estimators_features_"):
        inner = [(part, rows) for part in model.estimators_ if isinstance(part, Pipeline)]
    for step, its_rows in inner:
        yield from _stages(step, its_rows)


def _dense(part: Any) -> Any:
    return part.toarray() if hasattr(part, "toarray") else part


def _numbers(rows: Any) -> Array | None:
    """Return rows as float64 `(n, d)`, with 0 for missing values; None if they are not numbers."""
    try:
        numbers = np.asarray(_dense(rows), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return np.nan_to_num(numbers) if numbers.ndim == 2 and numbers.size else None


def _holds(part: Any, rows: Array) -> bool:
    """Return whether a part is an array that contains one of `rows`, as a row or as a column."""
    array: AnyArray = _dense(part)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or array.ndim < 2 or not array.size:
        return False
    numbers = np.nan_to_num(array.astype(np.float64))
    width = rows.shape[1]
    views = [numbers.reshape(-1, numbers.shape[-1])]
    if numbers.ndim == 2:
        views.append(numbers.T)
    return any(view.shape[1] == width and bool(_equal_rows(view, rows).any()) for view in views)


def _equal_rows(candidates: Array, rows: Array) -> BoolArray:
    """Return which `candidates (m, d)` equal one of `rows (n, d)` within the tolerance: `(m,)`.

    Rows and candidates are projected on one direction and sorted. A candidate is compared only with its two
    neighbours among the rows, because equal rows have equal projections.
    """
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    rows, candidates = rows / scale, candidates / scale
    direction = np.cos(np.arange(1.0, rows.shape[1] + 1.0) ** 2)
    order = np.argsort(rows @ direction, kind="stable")
    rows = rows[order]
    after = np.searchsorted(rows @ direction, candidates @ direction)
    equal = np.zeros(len(candidates), dtype=np.bool_)
    for neighbour in (after - 1, after):
        nearest = rows[np.clip(neighbour, 0, len(rows) - 1)]
        equal |= np.all(np.abs(nearest - candidates) <= TOLERANCE, axis=1)
    varied = np.ptp(candidates * scale, axis=1) > 0
    return np.asarray(equal & varied, dtype=np.bool_)


# -- in exported models ----------------------------------------------------------------------


def carries_rows_in_bytes(payload: npt.NDArray[Any], rows: Any) -> list[str]:
    """Name places of an exported model at which rows of the data stand, e.g. `float32 at byte 1200`.

    Rows with fewer than three different values beside -1, 0 and 1 (two, if there are two columns; one column
    never) are no evidence: a model holds such numbers by chance.

    Parameters
    ----------
    payload : from `pack_exported`
    rows : `(n, d)`, what the model was trained on
    """
    data = payload.tobytes()
    try:
        numbers = np.asarray(_dense(rows), dtype=np.float64)
    except (TypeError, ValueError):
        return []
    if not is_exported(data) or numbers.ndim != 2 or numbers.shape[1] < 2:
        return []
    needed = min(3, numbers.shape[1])
    telling = [len(set(row) - set(_PLAIN)) >= needed for row in numbers.tolist()]
    numbers = numbers[np.isfinite(numbers).all(axis=1) & np.array(telling, dtype=np.bool_)]
    chosen, _, body = read_envelope(data, EVERYTHING)
    if chosen.suffix == ".onnx":
        found = []
        for dtype in (np.dtype("<f4"), np.dtype("<f8")):
            for offset in range(dtype.itemsize):  # a serialised model aligns nothing
                count = (len(body) - offset) // dtype.itemsize
                values = np.frombuffer(body, dtype, count, offset) if count > 0 else np.empty(0)
                places = _places(values, numbers.astype(dtype))
                found += [f"{dtype.name} at byte {offset + place * dtype.itemsize}" for place in places]
    else:
        values = np.array(_NUMBER.findall(body)).astype(np.float64)
        rounded = numbers.astype(np.float32).astype(np.float64)
        places = sorted({*_places(values, numbers), *_places(values.astype(np.float32), rounded)})
        found = [f"number {place} of the text" for place in places]
    return found[:MAX_FOUND]


def _places(values: npt.NDArray[Any], rows: npt.NDArray[Any]) -> list[int]:
    """Return where one of `rows (n, d)` stands in `values (m,)`, one number after the other."""
    width = rows.shape[1]
    if not len(rows) or len(values) < width:
        return []
    starts = np.flatnonzero(np.isin(values[: len(values) - width + 1], rows[:, 0]))
    for column in range(1, width):
        starts = starts[np.isin(values[starts + column], rows[:, column])]
    known = {tuple(row) for row in rows.tolist()}
    return [int(start) for start in starts if tuple(values[start : start + width].tolist()) in known]
