"""LightGBM's own text: exported, checked, written anew and loaded.

Accepted: numeric splits and constant leaves, of the objectives below. The range of every column
(`feature_infos`), counts of rows, gains, parameters and names are left out: two of them tell of the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fbo_flower.errors import ModelError
from fbo_flower.models.archive import AnyArray, reason
from fbo_flower.models.trees import (
    MAX_NODES,
    MAX_TREES,
    Indices,
    Numbers,
    check_columns,
    check_walk,
    indices,
    numbers,
)  # fmt: skip

NAME = "lightgbm-text"
OBJECTIVES = (
    *("binary", "multiclass", "multiclassova", "regression", "regression_l1", "huber", "fair", "poisson"),
    *("quantile", "mape", "gamma", "tweedie", "cross_entropy"),
)
_OBJECTIVE = re.compile(r"([a-z_0-9]+)((?: (?:sigmoid:[-+0-9.e]+|num_class:[0-9]+|sqrt))*)")
_CATEGORICAL, _HIGHEST_TYPE = 1, 15  # bits of decision_type: category, default left, two of missing values


def export(model: Any, x: Any) -> bytes:
    """Return a fitted `LGBMClassifier`, `LGBMRegressor` or `Booster` as text; `x` is not looked at."""
    booster = getattr(model, "booster_", model)
    text: str = booster.model_to_string()  # up to the best iteration of early stopping
    return text.encode()


def checked(body: bytes, num_columns: int) -> bytes:
    """Return the parts of a booster that predict, as text; ModelError if something is not as it should be."""
    try:
        return "".join(_rewritten(body.decode("ascii", errors="replace"), num_columns)).encode()
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{NAME}: expected a booster of trees ({reason(error)})") from error


def load(body: bytes) -> Callable[[AnyArray], AnyArray]:
    """Return the function from rows to margins that went through the objective's link."""
    import lightgbm

    booster = lightgbm.Booster(model_str=body.decode())

    def scores(x: AnyArray) -> AnyArray:
        return np.asarray(booster.predict(np.asarray(x, dtype=np.float64), num_threads=1))

    return scores


def _rewritten(text: str, num_columns: int) -> Iterator[str]:
    head, *blocks = text.partition("\nend of trees")[0].split("\nTree=")
    if not head.startswith("tree\n") or not 1 <= len(blocks) <= MAX_TREES:
        raise ModelError(f"{NAME}: expected 1 to {MAX_TREES} trees")
    given = _fields(head)
    if given["version"] not in {"v3", "v4"} or int(given["max_feature_idx"]) != num_columns - 1:
        raise ModelError(f"{NAME}: expected version v3 or v4 and {num_columns} columns")
    num_classes, per_iteration = int(given["num_class"]), int(given["num_tree_per_iteration"])
    if not 1 <= num_classes <= 1000 or per_iteration != num_classes or len(blocks) % per_iteration:
        raise ModelError(f"{NAME}: expected as many trees for each of up to 1000 classes")
    objective = _OBJECTIVE.fullmatch(given["objective"])
    if objective is None or objective[1] not in OBJECTIVES:
        raise ModelError(
            f"{NAME}: expected an objective of {', '.join(OBJECTIVES)}, got {given['objective'][:40]}"
        )
    many = objective[1].startswith("multiclass")
    if many != (num_classes > 1) or (many and f"num_class:{num_classes}" not in objective[2].split()):
        raise ModelError(f"{NAME}: expected {num_classes} classes in the objective")
    names = " ".join(f"Column_{column}" for column in range(num_columns))
    yield f"tree\nversion={given['version']}\nnum_class={num_classes}\n"
    yield f"num_tree_per_iteration={per_iteration}\nlabel_index=0\nmax_feature_idx={num_columns - 1}\n"
    yield f"objective={objective[0]}\n" + ("average_output\n" if "\naverage_output" in head else "")
    yield f"feature_names={names}\nfeature_infos={' '.join(['[-1:1]'] * num_columns)}\n\n"
    for number, block in enumerate(blocks):
        yield from _tree(number, _fields(block), num_columns)
    yield "end of trees\n\npandas_categorical:null\n"


def _tree(number: int, given: dict[str, str], num_columns: int) -> Iterator[str]:
    name, num_leaves = f"{NAME}: tree {number}", int(given["num_leaves"])
    if not 1 <= num_leaves <= MAX_NODES or int(given["num_cat"]) != 0 or int(given.get("is_linear", 0)) != 0:
        raise ModelError(f"{name}: expected leaves that are constant and no categories")
    values = _numbers(name, given["leaf_value"], num_leaves)
    yield f"Tree={number}\nnum_leaves={num_leaves}\nnum_cat=0\n"
    if num_leaves > 1:
        num_splits = num_leaves - 1
        left, right, columns, types = (
            _whole(name, given[key], num_splits)
            for key in ("left_child", "right_child", "split_feature", "decision_type")
        )
        children = np.concatenate([left, right])
        check_walk(name, children[children >= 0], num_splits)
        check_walk(name, -children[children < 0], num_leaves + 1)  # -1 is leaf 0
        check_columns(name, columns, num_columns)
        if (types & _CATEGORICAL).any() or types.min() < 0 or types.max() > _HIGHEST_TYPE:
            raise ModelError(f"{name}: expected numeric splits")
        thresholds = _numbers(name, given["threshold"], num_splits)
        yield f"split_feature={_line(columns)}\nthreshold={_line(thresholds)}\n"
        yield f"decision_type={_line(types)}\nleft_child={_line(left)}\nright_child={_line(right)}\n"
    shrinkage = _numbers(name, given.get("shrinkage", "1"), 1)
    yield f"leaf_value={_line(values)}\nis_linear=0\nshrinkage={_line(shrinkage)}\n\n\n"


def _fields(block: str) -> dict[str, str]:
    """The lines `key=value` of a block."""
    return {key: value for key, sign, value in (line.partition("=") for line in block.split("\n")) if sign}


def _whole(name: str, text: str, length: int) -> Indices:
    return indices(name, [int(word) for word in text.split(" ")], length)


def _numbers(name: str, text: str, length: int) -> Numbers:
    return numbers(name, [float(word) for word in text.split(" ")], length)


def _line(values: Indices | Numbers) -> str:
    return " ".join(map(repr, values.tolist()))
