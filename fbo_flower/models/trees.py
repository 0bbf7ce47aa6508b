"""Check the index ranges in a decision tree's arrays.

scikit-learn walks a tree in C without checking indices: an invalid child or feature would read foreign memory
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

LEAF = -1
MAX_CLASSES = 10_000


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
