"""Bodies of exported models, written by hand: a stump of each booster, that no library is needed for."""

import copy
import json

# column 1 below 0.5 (or missing) goes left: -1, otherwise 2
LIGHTGBM = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=2
objective=regression
feature_names=age sex weight
feature_infos=[18:93] [0:1] [41:133]
tree_sizes=300

Tree=0
num_leaves=3
num_cat=0
split_feature=1 0
split_gain=9 8
threshold=0.5 60
decision_type=10 10
left_child=1 -1
right_child=-2 -3
leaf_value=-1 2 3
leaf_weight=1 1 1
leaf_count=17 18 19
internal_value=0 0
internal_weight=3 2
internal_count=54 36
is_linear=0
shrinkage=0.5


end of trees

feature_importances:
sex=1

parameters:
[data: /home/somebody/patients.csv]
end of parameters

pandas_categorical:null
"""

_TREE = {
    "base_weights": [0.0, -1.0, 2.0], "categories": [], "categories_nodes": [], "categories_segments": [],
    "categories_sizes": [], "default_left": [1, 0, 0], "id": 0, "left_children": [1, -1, -1],
    "loss_changes": [7.0, 0.0, 0.0], "parents": [2147483647, 0, 0], "right_children": [2, -1, -1],
    "split_conditions": [0.5, -1.0, 2.0], "split_indices": [1, 0, 0], "split_type": [0, 0, 0],
    "sum_hessian": [54.0, 17.0, 37.0],
    "tree_param": {"num_deleted": "0", "num_feature": "3", "num_nodes": "3", "size_leaf_vector": "1"},
}  # fmt: skip
_XGBOOST = {
    "learner": {
        "attributes": {"note": "of patient 7"},
        "feature_names": ["age", "sex", "weight"],
        "feature_types": ["float", "float", "float"],
        "gradient_booster": {
            "model": {
                "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
                "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": "1"},
                "iteration_indptr": [0, 1],
                "tree_info": [0],
                "trees": [_TREE],
            },
            "name": "gbtree",
        },
        "learner_model_param": {
            "base_score": "[0E0]", "boost_from_average": "1", "num_class": "0", "num_feature": "3",
            "num_target": "1",
        },
        "objective": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
    },
    "version": [3, 2, 0],
}  # fmt: skip


def xgboost(**changes):
    """The stump as JSON, with values changed: `path__to__key=value`; a number in the path is an index."""
    root = copy.deepcopy(_XGBOOST)
    for path, value in changes.items():
        *steps, last = path.split("__")
        holder = root["learner"]
        for step in steps:
            holder = holder[int(step) if step.isdigit() else step]
        holder[int(last) if last.isdigit() else last] = value
    return json.dumps(root).encode()


def xgboost_tree(**changes):
    """The stump with keys of its tree changed."""
    return xgboost(**{f"gradient_booster__model__trees__0__{key}": v for key, v in changes.items()})


def lightgbm(*changes):
    """The stump as text, after replacements `(old, new)`, each of which must be there once."""
    text = LIGHTGBM
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()
