"""The problems of the papers, by what is true of every problem and each by itself."""

from __future__ import annotations

import os
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
from studies.problems import LandmineSVM
from studies.problems.california_trees import districts, features_and_values, regions
from studies.problems.data import CALIFORNIA_FILE, DATA_VARIABLE, data_file
from studies.problems.landmine_svm import roc_auc


@pytest.mark.parametrize(
    ("name", "option", "value", "expected"),
    [
        ("landmine-svm", "scale", "cubic", "'linear' or 'log'"),
        ("f1", "noise_variance", -1.0, "a non-negative number"),
        *(("breast-cancer-mlp", name, value, "") for name, value in (
            ("train_fraction", 1.0), ("num_epochs", 0), ("batch_size", 0))),
        *(("california-mlp", name, value, "") for name, value in (
            ("num_rows", 9), ("num_rows", 20_641), ("train_fraction", 0.0001))),
    ],
)  # fmt: skip
def test_an_option_of_a_papers_problem_that_cannot_be_used_is_refused_by_name(
    name: str, option: str, value: object, expected: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: .*expected .*{expected}.*, got"):
        make_problem(name, None, 0, {option: value})


@pytest.mark.parametrize("name", ["digits-svm", "breast-cancer-mlp", *NEED_DATA])
def test_the_optimum_of_a_problem_on_real_data_is_unknown(name: str) -> None:
    assert make_problem(name, 3, 0, {}).optimum(1) is None


@pytest.mark.parametrize("agents", [30, 40])
def test_more_agents_than_the_data_has_are_refused(agents: int) -> None:
    with pytest.raises(ConfigError, match=f"^landmine-svm: expected at most 29 agents, got {agents}$"):
        make_problem("landmine-svm", agents, 0, {})


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


def test_roc_auc_of_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="expected both classes, got 3 positive and 0 negative"):
        roc_auc([1, 1, 1], [1, 2, 3])


@pytest.mark.parametrize(
    ("scale", "middle"),
    [("linear", (0.5 * (10 - 1e-4) + 1e-4, 0.5 * (10 - 1e-2) + 1e-2)), ("log", (10**-1.5, 10**-0.5))],
)
def test_the_landmine_space_is_the_papers(scale: str, middle: tuple[float, float]) -> None:
    space = LandmineSVM(29, 0, scale=scale).space
    for u, (c, gamma) in ((0.0, (1e-4, 1e-2)), (0.5, middle), (1.0, (10, 10))):
        assert space.decode([u, u]) == pytest.approx({"C": c, "gamma": gamma})


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
