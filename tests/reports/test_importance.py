"""Importance of parameters: a forest's boxes against its predictions, and functions with known shares."""

import math

import numpy as np
import pytest
from made_study import made_study
from sklearn.tree import DecisionTreeRegressor

from fbo_flower.reports.importance import Axis, fit_forest, forest_importance, study_importance, tree_boxes
from fbo_flower.space import Categorical, Float, Int, SearchSpace

SPACE = SearchSpace(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "depth": Int(1, 4),
        "kind": Categorical(["a", "b"]),
        "idle": Float(0, 1),
        "extra": Float(0, 1, active_when={"kind": "b"}),
    }
)


def a_study(number):
    """Return trials of a loss that depends on lr most, on depth less, and not on the others."""
    rng = np.random.default_rng(3)
    rows = []
    for agent in range(2):
        for trial in range(number):
            config = SPACE.decode(rng.random(5))
            value = 100.0 * agent + math.log10(float(config["lr"])) + 0.5 * float(config["depth"])
            row = {"algorithm": "ts", "agent": str(agent), "trial": trial, "config": config}
            rows.append(row | {"value": -value})
    runs = [{"algorithm": "ts", "space": SPACE.to_json(), "minimize": True}]
    return made_study(runs, trials=rows)


def test_the_boxes_of_a_tree_predict_what_the_tree_predicts():
    rng = np.random.default_rng(0)
    points, probe = rng.random((200, 3)), rng.random((500, 3))
    tree = DecisionTreeRegressor(max_leaf_nodes=40).fit(points, np.sin(5 * points).sum(axis=1))
    boxes = tree_boxes(tree.tree_, 3)
    inside = ((boxes.low[None] <= probe[:, None]) & (probe[:, None] < boxes.high[None])).all(axis=2)
    assert (inside.sum(axis=1) == 1).all()
    np.testing.assert_allclose(inside @ boxes.values, tree.predict(probe))
    assert boxes.widths.prod(axis=1).sum() == pytest.approx(1)


def test_shares_of_a_smooth_additive_function_are_near_its_closed_form():
    # f = 2 x + y: variances 4/12 and 1/12
    rng = np.random.default_rng(1)
    points = rng.random((1500, 3))
    axes = [Axis(name) for name in ("x", "y", "z")]
    found = forest_importance(axes, points, 2 * points[:, 0] + points[:, 1])
    shares = {share.names[0]: share.mean for share in found.singles}
    assert shares["x"] == pytest.approx(0.8, abs=0.03)
    assert shares["y"] == pytest.approx(0.2, abs=0.03)
    assert shares["z"] < 0.01
    rng = np.random.default_rng(2)
    assert fit_forest(rng.random((400, 2)), rng.random(400))[1] < 0.1, "noise"
    assert all(pair.mean < 0.02 for pair in found.pairs)
    assert found.score > 0.95
    x = np.array([0.25, 0.75])
    np.testing.assert_allclose(found.surface("x", "y", x, x), 2 * x[:, None] + x[None], atol=0.08)


def test_parameters_of_a_study_are_ranked_whatever_the_levels_of_its_agents():
    assert study_importance(a_study(9)) is None, "too few trials"
    found = study_importance(a_study(150))
    assert [share.names[0] for share in found.singles[:2]] == ["lr", "depth"]
    assert found.singles[0].mean > 0.5
    assert found.singles[2].mean < 0.1
    low, high = found.surface("lr", "idle", np.array([0.1, 0.9]), np.array([0.5])).ravel()
    assert low < 0.35, "larger is better, also of a loss"
    assert high > 0.65


def test_each_integer_and_each_choice_has_the_same_part_of_its_axis():
    integer = Axis("depth", 1.0, 4.0, integer=Int(1, 4))
    np.testing.assert_allclose(integer.unit(np.array([1.0, 2, 3, 4])), [0.125, 0.375, 0.625, 0.875])
    choice = Axis("kind", 0.0, 2.0, choices=("a", "b"))
    np.testing.assert_allclose(choice.unit(np.array([0.0, 1.0, np.nan])), [0.25, 0.75, 0.5])
