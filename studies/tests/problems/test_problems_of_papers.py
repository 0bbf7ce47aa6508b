"""The problems of the papers, by what is true of every problem and each by itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amounts import examples
from every_problem import *  # noqa: F403
from every_problem import NEED_DATA, context, some_config
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import needs_data

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import make_problem
from studies.problems import LandmineSVM, ParkinsonsLR
from studies.problems.california_trees import districts, features_and_values, regions
from studies.problems.data import CALIFORNIA_FILE, DATA_VARIABLE, data_file
from studies.problems.landmine_svm import roc_auc
from studies.problems.parkinsons_lr import fit_logistic_regression


@pytest.mark.parametrize(
    ("name", "option", "value", "expected"),
    [
        ("landmine-svm", "scale", "cubic", "'linear' or 'log'"),
        ("parkinsons-lr", "noisy", 1, "true or false"),
        ("parkinsons-lr", "num_epochs", True, "an integer"),
        ("parkinsons-lr", "num_epochs", 0, "at least 1"),
        ("parkinsons-lr", "train_fraction", 0.0, "between 0 and 1"),
        ("parkinsons-lr", "target", "age", "'total_UPDRS' or 'motor_UPDRS'"),
    ],
)
def test_an_option_of_a_papers_problem_that_cannot_be_used_is_refused_by_name(
    name: str, option: str, value: object, expected: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: .*expected .*{expected}.*, got"):
        make_problem(name, None, 0, {option: value})


@pytest.mark.parametrize("name", ["digits-svm", "breast-cancer-mlp", *NEED_DATA])
def test_the_optimum_of_a_problem_on_real_data_is_unknown(name: str) -> None:
    assert make_problem(name, 3, 0, {}).optimum(1) is None


@pytest.mark.parametrize(("name", "natural"), [("landmine-svm", 29), ("parkinsons-lr", 42)])
@pytest.mark.parametrize("extra", [1, 11])
def test_more_agents_than_the_data_has_are_refused(name: str, natural: int, extra: int) -> None:
    message = f"^{name}: expected at most {natural} agents, got {natural + extra}$"
    with pytest.raises(ConfigError, match=message):
        make_problem(name, natural + extra, 0, {})


@needs_data
@pytest.mark.parametrize("name", ["landmine-svm", "parkinsons-lr"])
def test_fewer_agents_are_the_first_ones(name: str) -> None:
    few, many = make_problem(name, 2, 0, {}), make_problem(name, None, 0, {})
    config = some_config(few)
    assert few.true_value(config, 1) == many.true_value(config, 1)


@pytest.mark.parametrize("name", NEED_DATA)
def test_without_data_the_evaluation_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    problem = make_problem(name, 3, 0, {})
    with pytest.raises(ConfigError, match="FBO_FLOWER_DATA, which is not set"):
        problem(some_config(problem), context(0))


@given(
    labels=st.lists(st.booleans(), min_size=2, max_size=40),
    scores=st.lists(st.integers(-3, 3), min_size=40, max_size=40),
)
@settings(max_examples=examples(80))
def test_roc_auc_agrees_with_scikit_learn_with_and_without_ties(
    labels: list[bool], scores: list[int]
) -> None:
    from sklearn.metrics import roc_auc_score

    labels = [True, False, *labels]
    tied = np.array(scores[: len(labels)], dtype=float)
    labels = labels[: len(tied)]
    distinct = tied + np.linspace(0, 0.5, len(tied))
    for values in (tied, distinct):
        assert roc_auc(labels, values) == pytest.approx(roc_auc_score(labels, values), abs=1e-12)


def test_roc_auc_of_hand_worked_rankings() -> None:
    assert roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75
    assert roc_auc([0, 1], [0.5, 0.5]) == 0.5
    assert roc_auc([1, 1, 0], [3, 2, 1]) == 1.0
    assert roc_auc([1, 1, 0], [1, 2, 3]) == 0.0


def test_roc_auc_of_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="expected both classes, got 3 positive and 0 negative"):
        roc_auc([1, 1, 1], [1, 2, 3])


def test_the_linear_landmine_space_is_the_papers() -> None:
    assert LandmineSVM(29, 0).space.decode([0.5, 0.5]) == pytest.approx(
        {"C": 0.5 * (10 - 1e-4) + 1e-4, "gamma": 0.5 * (10 - 1e-2) + 1e-2}
    )


def test_the_logarithmic_landmine_space_has_the_same_bounds() -> None:
    space = LandmineSVM(29, 0, scale="log").space
    assert space.decode([0, 0]) == pytest.approx({"C": 1e-4, "gamma": 1e-2})
    assert space.decode([1, 1]) == pytest.approx({"C": 10, "gamma": 10})
    assert space.decode([0.5, 0.5]) == pytest.approx({"C": 10**-1.5, "gamma": 10**-0.5})


@needs_data
def test_landmine_scores_are_those_of_scikit_learn_on_the_authors_split() -> None:
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    with np.load(Path(os.environ[DATA_VARIABLE]) / "landmine_authors_split.npz") as data:
        train, test = data["field_train"] == 6, data["field_test"] == 6
        model = SVC(C=3.0, gamma=0.7).fit(data["X_train"][train], data["y_train"][train])
        expected = roc_auc_score(data["y_test"][test], model.decision_function(data["X_test"][test]))
    value = LandmineSVM(29, 0).true_value({"C": 3.0, "gamma": 0.7}, 6)
    assert value == pytest.approx(expected, abs=1e-12)


@needs_data
def test_landmine_values_do_not_depend_on_the_seed_or_the_scale() -> None:
    config = {"C": 3.0, "gamma": 0.7}
    problem = LandmineSVM(29, 0)
    assert problem.true_value(config, 2) == replace(problem, seed=5).true_value(config, 2)
    assert problem.true_value(config, 2) == replace(problem, scale="log").true_value(config, 2)


@pytest.mark.parametrize("drop", ["y_test", "field"])
def test_a_landmine_file_of_another_content_is_refused(
    drop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = ("train", "test")
    arrays = {f"{name}_{half}": np.arange(28.0) for name in ("X", "y", "field") for half in halves}
    arrays.pop(drop, None)
    np.savez(tmp_path / "landmine_authors_split.npz", allow_pickle=False, **arrays)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"landmine_authors_split\.npz: expected (the arrays y_test|fields 0)"
    ):
        LandmineSVM(29, 0).true_value({"C": 1.0, "gamma": 1.0}, 0)


def test_batches_of_all_rows_descend_the_gradient_of_the_loss() -> None:
    rng = generator(0, "data")
    x, y = rng.standard_normal((30, 4)), (rng.random(30) < 0.5).astype(float)

    def loss(parameters: np.ndarray) -> float:
        margins = (2 * y - 1) * (x @ parameters[:4] + parameters[4])
        return float(np.logaddexp(0, -margins).mean() + 0.5 * 0.1 * parameters[:4] @ parameters[:4])

    expected = np.zeros(5)
    for _ in range(3):
        steps = 1e-6 * np.eye(5)
        gradient = np.array([(loss(expected + s) - loss(expected - s)) / 2e-6 for s in steps])
        expected = expected - 0.05 * gradient
    weights, intercept = fit_logistic_regression(
        x, y, batch_size=30, l2=0.1, learning_rate=0.05, num_epochs=3, rng=generator(1)
    )
    assert np.append(weights, intercept) == pytest.approx(expected, abs=1e-9)


def test_many_full_batches_reach_the_optimum_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = generator(0, "data")
    x = rng.standard_normal((60, 3))
    y = (x[:, 0] + rng.standard_normal(60) > 0.3).astype(float)
    model = LogisticRegression(C=1 / (60 * 0.1), tol=1e-10).fit(x, y)
    weights, intercept = fit_logistic_regression(
        x, y, batch_size=60, l2=0.1, learning_rate=0.5, num_epochs=2000, rng=generator(1)
    )
    assert weights == pytest.approx(model.coef_[0], abs=1e-5)
    assert intercept == pytest.approx(model.intercept_[0], abs=1e-5)


def test_the_size_of_a_batch_matters_and_margins_do_not_overflow() -> None:
    rng = generator(0, "data")
    x, y = 1e4 * rng.standard_normal((50, 2)), (rng.random(50) < 0.5).astype(float)
    with np.errstate(all="raise"):
        fits = [
            fit_logistic_regression(
                x, y, batch_size=b, l2=0.01, learning_rate=0.1, num_epochs=5, rng=generator(1)
            )[0]
            for b in (20, 50)
        ]
    assert not np.allclose(fits[0], fits[1])


@needs_data
def test_every_parkinsons_subject_has_balanced_classes_of_its_own() -> None:
    from studies.problems.parkinsons_lr import _subject

    for target in ("total_UPDRS", "motor_UPDRS"):
        problem = make_problem("parkinsons-lr", None, 0, {"target": target})
        assert isinstance(problem, ParkinsonsLR)
        path = str(data_file("parkinsons_updrs.csv.gz"))
        for partition in range(42):
            train, validation = _subject(problem, path, partition)
            assert train.x.shape[1] == validation.x.shape[1] == 17
            assert 0.35 < train.y.mean() < 0.65
            assert 0.35 < validation.y.mean() < 0.65
            assert np.allclose(train.x.mean(axis=0), 0)
            assert np.allclose(train.x.std(axis=0), 1)


@needs_data
def test_noise_comes_from_the_context_only_when_asked_for() -> None:
    plain, noisy = ParkinsonsLR(42, 0), ParkinsonsLR(42, 0, noisy=True)
    config = {"batch_size": 20, "l2": 1e-6, "learning_rate": 0.1}
    assert len({plain(config, context(9, seed)) for seed in range(10)}) == 1
    assert len({noisy(config, context(9, seed)) for seed in range(10)}) > 1
    assert plain.true_value(config, 9) == plain(config, context(9))
    assert noisy.true_value(config, 9) is None


@needs_data
def test_regions_of_california_are_compact_and_share_out_all_districts() -> None:
    table = districts(str(data_file(CALIFORNIA_FILE)))
    parts = regions(table, 5)
    assert {len(part) for part in parts} == {645}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(table)))
    spread = np.mean([table[part, :2].var(axis=0).sum() for part in parts])
    assert spread < 0.1 * table[:, :2].var(axis=0).sum()


@needs_data
def test_an_ensemble_of_trees_is_the_one_that_its_configuration_names() -> None:
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor

    x, y = features_and_values(districts(str(data_file(CALIFORNIA_FILE))))
    rows = regions(districts(str(data_file(CALIFORNIA_FILE))), 5)[4]
    order = rows[generator(1, "california-trees", "split", 4).permutation(645)]
    shared = {"num_trees": 7, "max_depth": 3, "max_features": 0.5, "min_leaf": 2}
    named = {"n_estimators": 7, "max_depth": 3, "max_features": 0.5, "min_samples_leaf": 2, "random_state": 4}
    boosting = {"ensemble": "boosting", "learning_rate": 0.3, "subsample": 0.8}
    for config, model in (
        (boosting, GradientBoostingRegressor(learning_rate=0.3, subsample=0.8, **named)),
        ({"ensemble": "forest", "max_samples": 0.6}, RandomForestRegressor(max_samples=0.6, **named)),
    ):
        model.fit(x[order[:200]], y[order[:200]])
        found = make_problem("california-trees", None, 1).true_value({**config, **shared}, 4)
        assert found == pytest.approx(model.score(x[order[200:]], y[order[200:]]))
