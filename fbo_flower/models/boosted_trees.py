"""Checks on the trees of a gradient booster, which its library walks without looking at its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError

Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
MAX_TREES = 100_000
MAX_NODES = 2**24  # of one tree


def check_walk(name: str, children: Indices, num_nodes: int) -> None:
    """Refuse a tree in which a walk from node 0 could leave the nodes or return to one.

    No node is the child of two, and the root of none: a walk that came back would need either.

    Parameters
    ----------
    children : of all inner nodes, on both sides
    """
    if children.size and (children.min() < 1 or children.max() >= num_nodes):
        raise ModelError(f"{name}: expected children between 1 and {num_nodes - 1}")
    if len(np.unique(children)) != len(children):
        raise ModelError(f"{name}: expected every node to be the child of one")


def check_columns(name: str, columns: Indices, num_columns: int) -> None:
    """Refuse splits on columns that do not exist."""
    if columns.size and (columns.min() < 0 or columns.max() >= num_columns):
        raise ModelError(f"{name}: expected splits on columns below {num_columns}")


def indices(name: str, values: Any, length: int, most: int = 2**31 - 1) -> Indices:
    """Return whole numbers `(length,)` between -2^31 and `most`."""
    array = _array(name, values, length)
    if array.dtype.kind not in "iub" or (array.size and (array.min() < -(2**31) or array.max() > most)):
        raise ModelError(f"{name}: expected {length} whole numbers up to {most}")
    return array.astype(np.int64)


def numbers(name: str, values: Any, length: int) -> Numbers:
    """Return finite numbers `(length,)`."""
    array = _array(name, values, length)
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ModelError(f"{name}: expected {length} finite numbers")
    return array.astype(np.float64)


def _array(name: str, values: Any, length: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values) if length else np.zeros(0, dtype=np.int64)
        if not isinstance(values, list | np.ndarray) or array.shape != (length,) or len(values) != length:
            raise ValueError("another length")
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{name}: expected {length} numbers") from error
    return array
