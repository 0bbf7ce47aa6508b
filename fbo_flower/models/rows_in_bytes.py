"""Rows of training data in a model whose parts have no names that we know.

An exported model is bytes. They are searched for the rows themselves: as float32 and float64, and in a text
as numbers one after the other. Rows that were scaled, reordered or compressed on the way are not found, so an
empty answer does not prove that a model carries none.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.models.formats import EVERYTHING, is_exported, read_envelope

Array = npt.NDArray[np.float64]
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_PLAIN = (-1.0, 0.0, 1.0)  # values that stand in every model
MAX_FOUND = 3


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
        numbers = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
    except (TypeError, ValueError):
        return []
    if not is_exported(data) or numbers.ndim != 2 or numbers.shape[1] < 2:
        return []
    needed = min(3, numbers.shape[1])
    telling = [len(set(row) - set(_PLAIN)) >= needed for row in numbers.tolist()]
    numbers = numbers[np.isfinite(numbers).all(axis=1) & np.array(telling, dtype=np.bool_)]
    chosen, _, body = read_envelope(data, EVERYTHING)
    if chosen.suffix == ".onnx":
        found = _in_binary(body, numbers)
    else:
        values = np.array(_NUMBER.findall(body)).astype(np.float64)
        rounded = numbers.astype(np.float32).astype(np.float64)
        places = sorted({*_places(values, numbers), *_places(values.astype(np.float32), rounded)})
        found = [f"number {place} of the text" for place in places]
    return found[:MAX_FOUND]


def _in_binary(body: bytes, rows: Array) -> list[str]:
    found = []
    for dtype in (np.dtype("<f4"), np.dtype("<f8")):
        for offset in range(dtype.itemsize):  # a serialised model aligns nothing
            count = (len(body) - offset) // dtype.itemsize
            if count < rows.shape[1]:
                continue
            values = np.frombuffer(body, dtype, count, offset)
            places = _places(values, rows.astype(dtype))
            found += [f"{dtype.name} at byte {offset + place * dtype.itemsize}" for place in places]
    return found


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
