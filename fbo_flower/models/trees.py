"""Check the index ranges in the arrays of decision trees, scikit-learn's and those of gradient boosters.

The libraries walk a tree in C without checking indices: an invalid child or feature would read foreign memory
or crash the process. In a tree that scikit-learn grew or pruned, children come after their parent; checking
this order also guarantees that a walk ends.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError
from fbo_flower.models.archive import AnyArray

Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
LEAF = -1
MAX_CLASSES = 10_000
MAX_TREES = 100_000  # of a booster
MAX_NODES = 2**24  # of one tree of a booster


def check_tree(
    *,
    num_features: object,
    num_classes: AnyArray,
    num_outputs: object,
    max_depth: object,
    node_count: object,
    nodes: npt.NDArray[Any],
    values: AnyArray,
) -> None:
    """Raise ModelError if scikit-learn's walk through the tree would leave its arrays or not end.

    Parameters
    ----------
    num_features, num_outputs, max_depth, node_count : positive integers; `max_depth` may be 0
    num_classes : `(num_outputs,)`, at least 1 each; 1 for regression
    nodes : `(node_count,)`, of scikit-learn's node dtype
    values : `(node_count, num_outputs, max(num_classes))`, finite

    Raises
    ------
    ModelError
        At the first inconsistency; the message describes it.
    """
    for name, value, least in (
        ("features", num_features, 1),
        ("outputs", num_outputs, 1),
        ("nodes", node_count, 1),
        ("depth", max_depth, 0),
    ):
        if type(value) is not int or not least <= value < 2**31:
            raise ModelError(f"tree: expected a number of {name} from {least}, got {str(value)[:40]}")
    assert isinstance(num_features, int)
    assert isinstance(node_count, int)
    if num_classes.dtype != np.intp or num_classes.shape != (num_outputs,):
        raise ModelError(f"tree: expected classes of {num_outputs} outputs, got {num_classes.shape}")
    if num_classes.min() < 1 or num_classes.max() > MAX_CLASSES:
        raise ModelError(f"tree: expected 1 to {MAX_CLASSES} classes, got {num_classes.tolist()[:8]}")
    if nodes.dtype != _node_dtype() or nodes.shape != (node_count,):
        raise ModelError(f"tree: expected {node_count} nodes, got {nodes.shape} of {str(nodes.dtype)[:40]}")
    expected = (node_count, num_outputs, int(num_classes.max()))
    if values.dtype != np.float64 or values.shape != expected or not np.isfinite(values).all():
        raise ModelError(f"tree: expected values {expected}, all finite, got {values.shape} {values.dtype}")
    _check_nodes(nodes, num_features)


def _check_nodes(nodes: npt.NDArray[Any], num_features: int) -> None:
    index = np.arange(len(nodes))
    leaf = nodes["left_child"] == LEAF
    for side in ("left_child", "right_child"):
        child = nodes[side]
        fits = np.where(leaf, child == LEAF, (child > index) & (child < len(nodes)))
        if not fits.all():
            bad = int(np.argmin(fits))
            raise ModelError(
                f"tree: expected a {side} of node {bad} between {bad + 1} and {len(nodes) - 1}, "
                f"got {int(child[bad])}"
            )
    feature, threshold = nodes["feature"][~leaf], nodes["threshold"][~leaf]
    if ((feature < 0) | (feature >= num_features)).any():
        raise ModelError(f"tree: expected features below {num_features}, got {int(np.max(np.abs(feature)))}")
    if np.isnan(threshold).any():  # infinite thresholds are legal: they separate missing values
        raise ModelError("tree: expected thresholds that are numbers, got NaN")
    if (nodes["missing_go_to_left"][~leaf] > 1).any():
        raise ModelError("tree: expected missing_go_to_left of 0 or 1")


@functools.cache
def _node_dtype() -> np.dtype[np.void]:
    from sklearn.tree import _tree

    dtype: np.dtype[np.void] = _tree.NODE_DTYPE
    return dtype


# -- of gradient boosters ----------------------------------------------------------------------


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
