"""The problems of the papers, by what is true of every problem and each by itself."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
from every_problem import *  # noqa: F403
from every_problem import NEED_DATA, context, some_config
from every_xarmed import *  # noqa: F403
from real_data import needs_data

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import make_problem
from studies.problems import Ackley, BreastCancerMLP, CaliforniaMLP, LandmineSVM, Rastrigin10D, Rosenbrock
from studies.problems import mlp as network
from studies.problems.california_trees import districts, features_and_values, regions
from studies.problems.data import CALIFORNIA_FILE, DATA_VARIABLE, data_file
from studies.problems.landmine_svm import roc_auc


@pytest.mark.parametrize(
    ("name", "agents", "options", "expected"),
    [
        ("landmine-svm", None, {"scale": "cubic"}, "expected 'linear' or 'log', got"),
        ("breast-cancer-mlp", None, {"num_epochs": 0}, "num_epochs: expected at least 1, got"),
        ("landmine-svm", 30, {}, "expected at most 29 agents, got 30$"),
    ],
)
def test_what_a_papers_problem_cannot_be_is_refused_by_name(
    name: str, agents: int | None, options: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: .*{expected}"):
        make_problem(name, agents, 0, options)


@pytest.mark.parametrize("name", NEED_DATA)
def test_without_data_the_evaluation_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    problem = make_problem(name, 3, 0, {})
    with pytest.raises(ConfigError, match="FBO_FLOWER_DATA, which is not set"):
        problem(some_config(problem), context(0))


# -- landmines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 200])
def test_roc_auc_agrees_with_scikit_learn_with_and_without_ties(count: int) -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(count)
    labels = np.append([True, False], rng.random(count) > 0.8)
    for scores in (rng.standard_normal(len(labels)), rng.integers(-3, 4, len(labels))):
        assert roc_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


@needs_data
def test_landmine_scores_are_those_of_scikit_learn_on_the_authors_split() -> None:
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    problem = LandmineSVM(29, 0)
    config = problem.space.decode([0.3, 0.07])
    assert config == pytest.approx({"C": 1e-4 + 0.3 * (10 - 1e-4), "gamma": 1e-2 + 0.07 * (10 - 1e-2)})
    with np.load(Path(os.environ[DATA_VARIABLE]) / "landmine_authors_split.npz") as data:
        train, test = data["field_train"] == 6, data["field_test"] == 6
        model = SVC(**config).fit(data["X_train"][train], data["y_train"][train])
        expected = roc_auc_score(data["y_test"][test], model.decision_function(data["X_test"][test]))
    assert problem.true_value(config, 6) == pytest.approx(expected, abs=1e-12)


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
        ConfigError, match=r"landmine_authors_split\.npz: expected (arrays .*y_test|fields 0)"
    ):
        LandmineSVM(29, 0).true_value({"C": 1.0, "gamma": 1.0}, 0)


# -- California --------------------------------------------------------------------------------


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


@needs_data
def test_california_is_standardised_by_its_training_rows_and_better_than_the_mean() -> None:
    problem = CaliforniaMLP(4, 0)
    train, validation = problem.rows()
    assert train.x.shape == validation.x.shape == (1000, 8)
    np.testing.assert_allclose(train.x.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(train.x.std(axis=0), 1.0, atol=1e-10)
    value = problem.true_value({"learning_rate": 1e-2, "hidden_width": 16}, 0)
    assert -value < 0.6 * np.var(validation.y)


def test_a_california_file_with_other_columns_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(tmp_path / CALIFORNIA_FILE, "wt", encoding="utf-8") as file:
        file.write("longitude,latitude\n1,2\n3,4\n")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=r"expected the columns longitude, .* got longitude, latitude"):
        CaliforniaMLP(4, 77)({"learning_rate": 1e-2, "hidden_width": 8}, context(0))


# -- networks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("classify", [True, False])
def test_the_gradient_of_a_network_is_that_of_finite_differences(classify: bool) -> None:
    rng = generator(1, "network")
    x, width = rng.standard_normal((7, 3)), 4
    y = (rng.random(7) > 0.5).astype(float) if classify else rng.standard_normal(7)
    weights = rng.standard_normal(3 * width + 2 * width + 1)
    gradient = network._gradient(weights, x, y, width, classify)
    for i, step in enumerate(1e-6 * np.eye(len(weights))):
        up, down = (network.loss(network.predict(weights + s * step, x, width), y, classify) for s in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-6, abs=1e-7)


def test_a_network_reaches_the_loss_of_scikit_learns_on_rows_that_all_agents_share() -> None:
    from sklearn.neural_network import MLPClassifier

    problem = BreastCancerMLP(4, 0)
    train, validation = problem.rows()
    assert len(train.y) + len(validation.y) == 569
    assert not {row.tobytes() for row in train.x} & {row.tobytes() for row in validation.x}
    model = MLPClassifier(
        (16,), alpha=0.0, batch_size=32, learning_rate_init=3e-3, max_iter=20, tol=0, random_state=0
    )
    with pytest.warns(UserWarning, match="Maximum iterations"):
        model.fit(train.x, train.y)
    p = model.predict_proba(validation.x)[:, 1]
    theirs = -np.mean(validation.y * np.log(p) + (1 - validation.y) * np.log(1 - p))
    config = {"learning_rate": 3e-3, "hidden_width": 16}
    ours, same = (-problem.true_value(config, agent) for agent in (0, 3))
    assert ours == same == pytest.approx(theirs, rel=0.35)
    assert ours < 0.1  # guessing by prevalence: .66
    assert BreastCancerMLP(4, 4).true_value(config, 0) != -ours


# -- functions ---------------------------------------------------------------------------------


def test_the_optimum_of_rosenbrock_is_the_maximum_over_a_fine_mesh() -> None:
    problem, values = Rosenbrock(4, 0), Rosenbrock.function(*np.meshgrid(*[np.linspace(0, 1, 401)] * 2))
    assert problem.optimum(2) == np.max(values)


def test_values_worked_by_hand() -> None:
    ackley, rastrigin = Ackley(1, 0, shift_stddev=0.0), Rastrigin10D(1, 0, shift_stddev=0.0)
    corner = 20 * math.exp(-0.2) + math.e - math.e - 20
    lowest = abs(20 * math.exp(-0.2 * math.sqrt(0.5)) + math.exp(-1) - 20 - math.e)
    assert ackley.values(np.array([[0.5, 0.5], [1.0, 1.0]]), 0) == pytest.approx([1.0, 1 + corner / lowest])
    at = np.array([[0.5] * 10, [1.0] * 10, [0.25] * 10])
    assert rastrigin.values(at, 0) == pytest.approx([1.0, 0.95, 1 - 20.25 / 20])
