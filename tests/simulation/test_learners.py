from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.models import carries_rows, pack, unpack
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems.learners import LEARNERS, make_learner
from fbo_flower.space import Float, Int

X, Y = load_breast_cancer(return_X_y=True)
TRAIN, TEST = slice(0, 120), slice(120, None)
CONFIGS: dict[str, dict[str, Any]] = {
    "elastic-net": {"alpha": 0.4, "lambda": 0.01},
    "svm": {"C": 10.0, "sigma": 0.01},
    "forest": {"trees": 100, "min_node_size": 5, "sample_fraction": 0.5},
}


def fitted(name: str, x: Any = X[TRAIN], y: Any = Y[TRAIN], **more: Any) -> Any:
    return make_learner(name, class_weight=bool(more)).make_model({**CONFIGS[name], **more}).fit(x, y)


def test_the_spaces_are_the_papers() -> None:
    spaces = {name: dict(make_learner(name, max_trees=5000).space.parameters) for name in LEARNERS}
    assert spaces == {
        "elastic-net": {"alpha": Float(0, 1), "lambda": Float(2**-10, 2**10, log=True)},
        "svm": {"C": Float(2**-15, 2**15, log=True), "sigma": Float(2**-15, 2**15, log=True)},
        "forest": {
            "trees": Int(100, 5000, log=True),
            "min_node_size": Int(1, 50),
            "sample_fraction": Float(0.1, 1.0),
        },
    }
    assert make_learner("forest").space.parameters["trees"] == Int(100, 500, log=True)
    assert make_learner("svm", class_weight=True).space.parameters["odds"] == Float(1 / 16, 16, log=True)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_corner_of_a_space_can_be_fitted(name: str) -> None:
    learner = make_learner(name, class_weight=True, max_trees=101)
    for corner in np.ndindex(*(2,) * learner.space.dimension):
        model = learner.make_model(learner.space.decode(np.array(corner, dtype=float))).fit(X[:40], Y[:40])
        assert set(np.unique(model.predict(X[TEST]))) <= {0, 1}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_is_the_same_pipeline_built_by_hand(name: str) -> None:
    by_hand = {
        "elastic-net": LogisticRegression(
            C=1 / (120 * 0.01), l1_ratio=0.4, solver="saga", tol=1e-8, max_iter=100_000
        ),
        "svm": SVC(C=10.0, gamma=0.01),
        "forest": RandomForestClassifier(100, min_samples_split=6, max_samples=60, random_state=0),
    }
    expected = make_pipeline(StandardScaler(), by_hand[name]).fit(X[TRAIN], Y[TRAIN]).predict(X[TEST])
    model = fitted(name)
    assert type(model) is Pipeline
    assert np.mean(model.predict(X[TEST]) == expected) == 1.0


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_trained_on_complete_rows_predicts_for_rows_with_missing_cells(name: str) -> None:
    holes = X[TEST].copy()
    holes[generator(0, "holes").random(holes.shape) < 0.3] = np.nan
    model = fitted(name)
    filled = np.where(np.isnan(holes), np.median(X[TRAIN], axis=0), holes)
    assert np.array_equal(model.predict(holes), model.predict(filled))


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("value", [np.nan, 7.0])
def test_a_column_that_is_empty_or_constant_at_the_openbox_is_without_effect_elsewhere(
    name: str, value: float
) -> None:
    train, test = (np.column_stack([x, np.full(len(x), value)]) for x in (X[TRAIN], X[TEST]))
    test[:, -1] = 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predicted = fitted(name, train).predict(test)
    assert np.array_equal(predicted, fitted(name).predict(X[TEST]))


@pytest.mark.parametrize("name", LEARNERS)
def test_training_repeats_and_a_model_crosses_the_wire_and_says_whether_it_holds_rows(name: str) -> None:
    model = fitted(name)
    packed = pack(model, 2**30)
    assert packed.tobytes() == pack(fitted(name), 2**30).tobytes()
    assert np.array_equal(unpack(packed).predict(X[TEST]), model.predict(X[TEST]))
    assert bool(carries_rows(model, X[TRAIN])) == make_learner(name).carries_rows


@pytest.mark.parametrize("name", LEARNERS)
def test_odds_of_one_change_nothing_and_high_odds_find_more_of_the_positive_class(name: str) -> None:
    noisy = generator(0, "flip").permutation(Y)[TRAIN]  # hard to tell, so that weights matter
    plain, even, low, high = (
        fitted(name, X[TRAIN], noisy, **odds).predict(X[TEST])
        for odds in ({}, {"odds": 1.0}, {"odds": 1 / 16}, {"odds": 16.0})
    )
    if name != "forest":  # whose rows are drawn by their weights, with other draws if there are any
        assert np.array_equal(plain, even)
    assert low.sum() < high.sum()


def test_an_unknown_learner_too_few_trees_or_a_missing_parameter_are_refused() -> None:
    with pytest.raises(ConfigError, match="learner: expected one of elastic-net, svm, forest, got 'knn'"):
        make_learner("knn")
    with pytest.raises(ConfigError, match="max_trees: expected more than 100, got 100"):
        make_learner("forest", max_trees=100)
    for name in LEARNERS:
        with pytest.raises(ObjectiveError, match="expected a number in the configuration, got None"):
            make_learner(name).make_model({})
