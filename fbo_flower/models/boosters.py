"""Gradient boosters in the formats of XGBoost and LightGBM: exported, checked, written anew and loaded.

Accepted: boosters of trees with one output per tree (XGBoost's `gbtree`), numeric splits and constant leaves,
of the objectives below. What does not predict is left out: names and types of columns, attributes, statistics
of nodes; in LightGBM's text also the range of every column (`feature_infos`), counts of rows, gains and
parameters, two of which tell of the data.

The libraries walk a tree in C without checking indices, so those are checked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError
from fbo_flower.models.archive import AnyArray, reason

Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
XGBOOST, LIGHTGBM = "xgboost-json", "lightgbm-text"
MAX_TREES = 100_000
MAX_NODES = 2**24  # of one tree


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turn what a malformed booster makes Python raise into ModelError."""
    try:
        yield
    except ModelError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise ModelError(f"{name}: expected a booster of trees ({reason(error)})") from error


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


# -- XGBoost --------------------------------------------------------------------------------

XGBOOST_OBJECTIVES = (
    *("binary:logistic", "multi:softprob", "count:poisson"),
    *("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:squaredlogerror", "reg:logistic"),
    *("reg:gamma", "reg:tweedie", "reg:quantileerror"),
)
_NUMBER = re.compile(r"[-+0-9.eE]{1,30}")
_BASE_SCORE = re.compile(r"\[?[-+0-9.eE, ]{1,20000}\]?")
_ROOT = 2**31 - 1  # the parent of a root


def export_xgboost(model: Any, x: Any) -> bytes:
    """Return a fitted `XGBClassifier`, `XGBRegressor` or `Booster` as JSON; `x` is not looked at."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    best = booster.attr("best_iteration") if hasattr(booster, "attr") else None
    if best is not None:  # of early stopping: as the estimator predicts
        booster = booster[: int(best) + 1]
    return bytes(booster.save_raw("json"))


def load_xgboost(body: bytes) -> Callable[[AnyArray], AnyArray]:
    """Return the function from rows to margins that went through the objective's link."""
    import xgboost

    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(body))
    booster.set_param({"nthread": 1})

    def scores(x: AnyArray) -> AnyArray:
        rows = xgboost.DMatrix(x.astype(np.float32), missing=np.nan, nthread=1)
        return np.asarray(booster.predict(rows))

    return scores


def _refuse(text: str) -> None:
    raise ModelError(f"{XGBOOST}: expected finite numbers, got {text}")


@_refusing(XGBOOST)
def checked_xgboost(body: bytes, num_columns: int) -> bytes:
    """Return the parts of a booster that predict, as JSON; ModelError if something is not as it should be."""
    root = json.loads(body, parse_constant=_refuse)
    learner, version = root["learner"], root["version"]
    if not isinstance(version, list) or len(version) != 3 or any(type(part) is not int for part in version):
        raise ModelError(f"{XGBOOST}: expected a version of three numbers")
    booster, objective = learner["gradient_booster"], learner["objective"]
    if booster["name"] != "gbtree":
        raise ModelError(f"{XGBOOST}: expected a gbtree, got {str(booster['name'])[:40]}")
    if objective["name"] not in XGBOOST_OBJECTIVES:
        raise ModelError(
            f"{XGBOOST}: expected an objective of {', '.join(XGBOOST_OBJECTIVES)}, got "
            f"{str(objective['name'])[:40]}"
        )
    given = learner["learner_model_param"]
    if _whole_text(given["num_feature"]) != num_columns:
        raise ModelError(f"{XGBOOST}: expected {num_columns} columns, got {str(given['num_feature'])[:20]}")
    if _whole_text(given.get("num_target", "1")) != 1:
        raise ModelError(f"{XGBOOST}: expected one target")
    num_groups = max(1, _whole_text(given["num_class"]))
    if (num_groups > 1) != (objective["name"] == "multi:softprob") or num_groups > 1000:
        raise ModelError(f"{XGBOOST}: expected classes with multi:softprob only, up to 1000")
    score = given["base_score"]
    if not isinstance(score, str) or _BASE_SCORE.fullmatch(score) is None:
        raise ModelError(f"{XGBOOST}: expected base_score to be numbers")
    parameters = {k: str(_whole_text(given[k])) for k in ("num_class", "num_feature") if k in given}
    parameters |= {"base_score": score, "num_target": "1", "boost_from_average": "1"}
    kept = {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {
                "model": _forest(booster["model"], num_columns, num_groups),
                "name": "gbtree",
            },
            "learner_model_param": parameters,
            "objective": {"name": objective["name"], **_settings(objective)},
        },
        "version": version,
    }
    return json.dumps(kept, separators=(",", ":"), allow_nan=False).encode()


def _settings(objective: dict[str, Any]) -> dict[str, Any]:
    """The link's parameters: names to numbers, as texts."""
    found = {}
    for key, settings in objective.items():
        if key == "name":
            continue
        if not isinstance(settings, dict) or not key.endswith("_param") or len(settings) > 10:
            raise ModelError(f"{XGBOOST}: expected parameters of the objective")
        for value in settings.values():
            if not isinstance(value, str) or _BASE_SCORE.fullmatch(value) is None:
                raise ModelError(f"{XGBOOST}: expected numbers as parameters of the objective")
        found[key] = settings
    return found


def _forest(model: dict[str, Any], num_columns: int, num_groups: int) -> dict[str, Any]:
    trees, settings = model["trees"], model["gbtree_model_param"]
    if not isinstance(trees, list) or not 1 <= len(trees) <= MAX_TREES:
        raise ModelError(f"{XGBOOST}: expected 1 to {MAX_TREES} trees")
    if _whole_text(settings["num_trees"]) != len(trees):
        raise ModelError(f"{XGBOOST}: expected {len(trees)} trees, got {str(settings['num_trees'])[:20]}")
    if any(model.get("cats", {}).get(key) for key in ("enc", "feature_segments", "sorted_idx")):
        raise ModelError(f"{XGBOOST}: expected no categories; encode them in the pipeline, or use onnx")
    parallel = _whole_text(settings.get("num_parallel_tree", "1"))
    groups = indices("tree_info", model["tree_info"], len(trees), num_groups - 1)
    if groups.min() < 0 or parallel < 1:
        raise ModelError(f"{XGBOOST}: expected trees of {num_groups} groups")
    rest = {}
    if "iteration_indptr" in model:
        ends = model["iteration_indptr"]
        bounds = indices("iteration_indptr", ends, len(ends), len(trees))
        if bounds[0] != 0 or bounds[-1] != len(trees) or (np.diff(bounds) < 0).any():
            raise ModelError(f"{XGBOOST}: expected iteration_indptr to rise from 0 to {len(trees)}")
        rest["iteration_indptr"] = bounds.tolist()
    return {
        "gbtree_model_param": {"num_parallel_tree": str(parallel), "num_trees": str(len(trees))},
        "tree_info": groups.tolist(),
        "trees": [_xgboost_tree(tree, number, num_columns) for number, tree in enumerate(trees)],
        **({"cats": {"enc": [], "feature_segments": [], "sorted_idx": []}} if "cats" in model else {}),
        **rest,
    }


def _xgboost_tree(tree: dict[str, Any], number: int, num_columns: int) -> dict[str, Any]:
    name, settings = f"{XGBOOST}: tree {number}", tree["tree_param"]
    num_nodes = _whole_text(settings["num_nodes"])
    if not 1 <= num_nodes <= MAX_NODES or _whole_text(settings.get("size_leaf_vector", "1")) > 1:
        raise ModelError(f"{name}: expected nodes with one value each")
    if any(tree.get(key) for key in ("categories", "categories_nodes", "categories_sizes")):
        raise ModelError(f"{name}: expected no categories")
    left, right = (indices(name, tree[key], num_nodes) for key in ("left_children", "right_children"))
    inner = left != -1
    if ((right != -1) != inner).any():
        raise ModelError(f"{name}: expected two children or none")
    check_walk(name, np.concatenate([left[inner], right[inner]]), num_nodes)
    columns = indices(name, tree["split_indices"], num_nodes)
    check_columns(name, columns[inner], num_columns)
    parents = np.full(num_nodes, _ROOT)
    parents[left[inner]] = parents[right[inner]] = np.flatnonzero(inner)
    zeros = [0] * num_nodes
    return {
        "base_weights": [0.0] * num_nodes,
        **{key: [] for key in ("categories", "categories_nodes", "categories_segments", "categories_sizes")},
        "default_left": (indices(name, tree["default_left"], num_nodes, 1) != 0).astype(int).tolist(),
        "id": number,
        "left_children": left.tolist(),
        "loss_changes": [0.0] * num_nodes,
        "parents": parents.tolist(),
        "right_children": right.tolist(),
        "split_conditions": numbers(name, tree["split_conditions"], num_nodes).tolist(),
        "split_indices": np.where(inner, columns, 0).tolist(),
        "split_type": zeros,
        "sum_hessian": [1.0] * num_nodes,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(num_columns),
            "num_nodes": str(num_nodes),
            "size_leaf_vector": "1",
        },
    }


def _whole_text(text: object) -> int:
    if not isinstance(text, str) or _NUMBER.fullmatch(text) is None:
        raise ModelError(f"{XGBOOST}: expected a number as text, got {str(text)[:40]}")
    return int(text)


# -- LightGBM --------------------------------------------------------------------------------

LIGHTGBM_OBJECTIVES = (
    *("binary", "multiclass", "multiclassova", "regression", "regression_l1", "huber", "fair", "poisson"),
    *("quantile", "mape", "gamma", "tweedie", "cross_entropy"),
)
_OBJECTIVE = re.compile(r"([a-z_0-9]+)((?: (?:sigmoid:[-+0-9.e]+|num_class:[0-9]+|sqrt))*)")
_CATEGORICAL, _HIGHEST_TYPE = 1, 15  # bits of decision_type: category, default left, two of missing values


def export_lightgbm(model: Any, x: Any) -> bytes:
    """Return a fitted `LGBMClassifier`, `LGBMRegressor` or `Booster` as text; `x` is not looked at."""
    booster = getattr(model, "booster_", model)
    text: str = booster.model_to_string()  # up to the best iteration of early stopping
    return text.encode()


@_refusing(LIGHTGBM)
def checked_lightgbm(body: bytes, num_columns: int) -> bytes:
    """Return the parts of a booster that predict, as text; ModelError if something is not as it should be."""
    return "".join(_lightgbm(body.decode("ascii", errors="replace"), num_columns)).encode()


def load_lightgbm(body: bytes) -> Callable[[AnyArray], AnyArray]:
    """Return the function from rows to margins that went through the objective's link."""
    import lightgbm

    booster = lightgbm.Booster(model_str=body.decode())

    def scores(x: AnyArray) -> AnyArray:
        return np.asarray(booster.predict(np.asarray(x, dtype=np.float64), num_threads=1))

    return scores


def _lightgbm(text: str, num_columns: int) -> Iterator[str]:
    head, *blocks = text.partition("\nend of trees")[0].split("\nTree=")
    if not head.startswith("tree\n") or not 1 <= len(blocks) <= MAX_TREES:
        raise ModelError(f"{LIGHTGBM}: expected 1 to {MAX_TREES} trees")
    given = _fields(head)
    if given["version"] not in {"v3", "v4"} or int(given["max_feature_idx"]) != num_columns - 1:
        raise ModelError(f"{LIGHTGBM}: expected version v3 or v4 and {num_columns} columns")
    num_classes, per_iteration = int(given["num_class"]), int(given["num_tree_per_iteration"])
    if not 1 <= num_classes <= 1000 or per_iteration != num_classes or len(blocks) % per_iteration:
        raise ModelError(f"{LIGHTGBM}: expected as many trees for each of up to 1000 classes")
    objective = _OBJECTIVE.fullmatch(given["objective"])
    if objective is None or objective[1] not in LIGHTGBM_OBJECTIVES:
        raise ModelError(
            f"{LIGHTGBM}: expected an objective of {', '.join(LIGHTGBM_OBJECTIVES)}, got "
            f"{given['objective'][:40]}"
        )
    many = objective[1].startswith("multiclass")
    if many != (num_classes > 1) or (many and f"num_class:{num_classes}" not in objective[2].split()):
        raise ModelError(f"{LIGHTGBM}: expected {num_classes} classes in the objective")
    names = " ".join(f"Column_{column}" for column in range(num_columns))
    yield f"tree\nversion={given['version']}\nnum_class={num_classes}\n"
    yield f"num_tree_per_iteration={per_iteration}\nlabel_index=0\nmax_feature_idx={num_columns - 1}\n"
    yield f"objective={objective[0]}\n" + ("average_output\n" if "\naverage_output" in head else "")
    yield f"feature_names={names}\nfeature_infos={' '.join(['[-1:1]'] * num_columns)}\n\n"
    for number, block in enumerate(blocks):
        yield from _lightgbm_tree(number, _fields(block), num_columns)
    yield "end of trees\n\npandas_categorical:null\n"


def _lightgbm_tree(number: int, given: dict[str, str], num_columns: int) -> Iterator[str]:
    name, num_leaves = f"{LIGHTGBM}: tree {number}", int(given["num_leaves"])
    if not 1 <= num_leaves <= MAX_NODES or int(given["num_cat"]) != 0 or int(given.get("is_linear", 0)) != 0:
        raise ModelError(f"{name}: expected leaves that are constant and no categories")
    values = _numbers_line(name, given["leaf_value"], num_leaves)
    yield f"Tree={number}\nnum_leaves={num_leaves}\nnum_cat=0\n"
    if num_leaves > 1:
        num_splits = num_leaves - 1
        left, right, columns, types = (
            indices(name, [int(word) for word in given[key].split(" ")], num_splits)
            for key in ("left_child", "right_child", "split_feature", "decision_type")
        )
        children = np.concatenate([left, right])
        check_walk(name, children[children >= 0], num_splits)
        check_walk(name, -children[children < 0], num_leaves + 1)  # -1 is leaf 0
        check_columns(name, columns, num_columns)
        if (types & _CATEGORICAL).any() or types.min() < 0 or types.max() > _HIGHEST_TYPE:
            raise ModelError(f"{name}: expected numeric splits")
        thresholds = _numbers_line(name, given["threshold"], num_splits)
        yield f"split_feature={_line(columns)}\nthreshold={_line(thresholds)}\n"
        yield f"decision_type={_line(types)}\nleft_child={_line(left)}\nright_child={_line(right)}\n"
    shrinkage = _numbers_line(name, given.get("shrinkage", "1"), 1)
    yield f"leaf_value={_line(values)}\nis_linear=0\nshrinkage={_line(shrinkage)}\n\n\n"


def _fields(block: str) -> dict[str, str]:
    """The lines `key=value` of a block."""
    return {key: value for key, sign, value in (line.partition("=") for line in block.split("\n")) if sign}


def _numbers_line(name: str, text: str, length: int) -> Numbers:
    return numbers(name, [float(word) for word in text.split(" ")], length)


def _line(values: Indices | Numbers) -> str:
    return " ".join(map(repr, values.tolist()))
