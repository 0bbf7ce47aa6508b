"""XGBoost's own JSON: exported, checked, written anew and loaded.

Accepted: boosters of trees (`gbtree`) with one output per tree, without categorical splits, of the objectives
below. Column names and types, the attributes and the statistics of nodes are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from fbo_flower.errors import ModelError
from fbo_flower.models.archive import AnyArray, reason
from fbo_flower.models.trees import MAX_NODES, MAX_TREES, check_columns, check_walk, indices, numbers

OBJECTIVES = (
    *("binary:logistic", "multi:softprob", "count:poisson"),
    *("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:squaredlogerror", "reg:logistic"),
    *("reg:gamma", "reg:tweedie", "reg:quantileerror"),
)
NAME = "xgboost-json"
_NUMBER = re.compile(r"[-+0-9.eE]{1,30}")
_BASE_SCORE = re.compile(r"\[?[-+0-9.eE, ]{1,20000}\]?")
_ROOT = 2**31 - 1  # the parent of a root


def export(model: Any, x: Any) -> bytes:
    """Return a fitted `XGBClassifier`, `XGBRegressor` or `Booster` as JSON; `x` is not looked at."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    best = booster.attr("best_iteration") if hasattr(booster, "attr") else None
    if best is not None:  # of early stopping: as the estimator predicts
        booster = booster[: int(best) + 1]
    return bytes(booster.save_raw("json"))


def checked(body: bytes, num_columns: int) -> bytes:
    """Return the parts of a booster that predict, as JSON; ModelError if something is not as it should be."""
    try:
        root = json.loads(body, parse_constant=_refuse)
        return json.dumps(_rewritten(root, num_columns), separators=(",", ":"), allow_nan=False).encode()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{NAME}: expected a booster of trees ({reason(error)})") from error


def load(body: bytes) -> Callable[[AnyArray], AnyArray]:
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
    raise ModelError(f"{NAME}: expected finite numbers, got {text}")


def _rewritten(root: Any, num_columns: int) -> dict[str, Any]:
    learner, version = root["learner"], root["version"]
    if not isinstance(version, list) or len(version) != 3 or any(type(part) is not int for part in version):
        raise ModelError(f"{NAME}: expected a version of three numbers")
    booster, objective = learner["gradient_booster"], learner["objective"]
    if booster["name"] != "gbtree":
        raise ModelError(f"{NAME}: expected a gbtree, got {str(booster['name'])[:40]}")
    if objective["name"] not in OBJECTIVES:
        raise ModelError(
            f"{NAME}: expected an objective of {', '.join(OBJECTIVES)}, got {str(objective['name'])[:40]}"
        )
    given = learner["learner_model_param"]
    if _whole(given["num_feature"]) != num_columns:
        raise ModelError(f"{NAME}: expected {num_columns} columns, got {str(given['num_feature'])[:20]}")
    if _whole(given.get("num_target", "1")) != 1:
        raise ModelError(f"{NAME}: expected one target")
    num_groups = max(1, _whole(given["num_class"]))
    if (num_groups > 1) != (objective["name"] == "multi:softprob") or num_groups > 1000:
        raise ModelError(f"{NAME}: expected classes with multi:softprob only, up to 1000")
    score = given["base_score"]
    if not isinstance(score, str) or _BASE_SCORE.fullmatch(score) is None:
        raise ModelError(f"{NAME}: expected base_score to be numbers")
    parameters = {k: str(_whole(given[k])) for k in ("num_class", "num_feature") if k in given}
    parameters |= {"base_score": score, "num_target": "1", "boost_from_average": "1"}
    return {
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


def _settings(objective: dict[str, Any]) -> dict[str, Any]:
    """The link's parameters: names to numbers, as texts."""
    found = {}
    for key, settings in objective.items():
        if key == "name":
            continue
        if not isinstance(settings, dict) or not key.endswith("_param") or len(settings) > 10:
            raise ModelError(f"{NAME}: expected parameters of the objective")
        for value in settings.values():
            if not isinstance(value, str) or _BASE_SCORE.fullmatch(value) is None:
                raise ModelError(f"{NAME}: expected numbers as parameters of the objective")
        found[key] = settings
    return found


def _forest(model: dict[str, Any], num_columns: int, num_groups: int) -> dict[str, Any]:
    trees, settings = model["trees"], model["gbtree_model_param"]
    if not isinstance(trees, list) or not 1 <= len(trees) <= MAX_TREES:
        raise ModelError(f"{NAME}: expected 1 to {MAX_TREES} trees")
    if _whole(settings["num_trees"]) != len(trees):
        raise ModelError(f"{NAME}: expected {len(trees)} trees, got {str(settings['num_trees'])[:20]}")
    if any(model.get("cats", {}).get(key) for key in ("enc", "feature_segments", "sorted_idx")):
        raise ModelError(f"{NAME}: expected no categories; encode them in the model's pipeline, or use onnx")
    parallel = _whole(settings.get("num_parallel_tree", "1"))
    groups = indices("tree_info", model["tree_info"], len(trees), num_groups - 1)
    if groups.min() < 0 or parallel < 1:
        raise ModelError(f"{NAME}: expected trees of {num_groups} groups")
    rest = {}
    if "iteration_indptr" in model:
        ends = model["iteration_indptr"]
        bounds = indices("iteration_indptr", ends, len(ends), len(trees))
        if bounds[0] != 0 or bounds[-1] != len(trees) or (np.diff(bounds) < 0).any():
            raise ModelError(f"{NAME}: expected iteration_indptr to rise from 0 to {len(trees)}")
        rest["iteration_indptr"] = bounds.tolist()
    return {
        "gbtree_model_param": {"num_parallel_tree": str(parallel), "num_trees": str(len(trees))},
        "tree_info": groups.tolist(),
        "trees": [_tree(tree, number, num_columns) for number, tree in enumerate(trees)],
        **({"cats": {"enc": [], "feature_segments": [], "sorted_idx": []}} if "cats" in model else {}),
        **rest,
    }


def _tree(tree: dict[str, Any], number: int, num_columns: int) -> dict[str, Any]:
    name, settings = f"{NAME}: tree {number}", tree["tree_param"]
    num_nodes = _whole(settings["num_nodes"])
    if not 1 <= num_nodes <= MAX_NODES or _whole(settings.get("size_leaf_vector", "1")) > 1:
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


def _whole(text: object) -> int:
    if not isinstance(text, str) or _NUMBER.fullmatch(text) is None:
        raise ModelError(f"{NAME}: expected a number as text, got {str(text)[:40]}")
    return int(text)
