"""Batches: points that differ, chosen before their values are known, and the same whatever ends first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract import SQUARE

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.ei.local import fit_of
from fbo_flower.algorithms.ei.pool import Pool
from fbo_flower.algorithms.records import AgentState, History, Outcome, Phase, Query, Task
from fbo_flower.algorithms.requests import Fit, alone
from fbo_flower.algorithms.run_task import TaskResult, run_task
from fbo_flower.algorithms.several_at_once import believed
from fbo_flower.algorithms.thompson import ThompsonSampling
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS, transform
from fbo_flower.numerics.surrogates.trend import Rows, level_sums

PATHS = {"num_candidates": 64, "num_path_features": 32}
CASES: dict[str, dict[str, Any]] = {
    "random": {},
    "ts": PATHS,
    "ei": {"num_candidates": 64},
    "fts": {**PATHS, "num_features": 20},
    "fed-ei with a pool": {"num_candidates": 64, "secure_sums": 0},
    "taf": {**PATHS, "num_features": 12},
}


def draws(purpose: str, *keys: int) -> np.random.Generator:
    return generator(3, "agent", "0", purpose, "train", *keys)


def hill(points: np.ndarray) -> np.ndarray:
    return -np.sum((points - np.array([0.3, 0.6])) ** 2, axis=1)


class Recorder:
    """Evaluates hills and remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[np.ndarray] = []

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        points = SQUARE.snap(query.points)
        self.batches.append(points)
        return Outcome(points, hill(points), first_trial + np.arange(len(points)))


def pool() -> Pool:
    """Return what agents of fed-ei get: 12 rows of others on the same hill."""
    points = generator(5, "points").random((12, 2))
    values = hill(points)
    rows = np.column_stack([points, (values - values.mean()) / values.std()])
    level = level_sums(values[:6]) + level_sums(values[6:])
    lengthscales = np.array([0.5, 0.6])
    evidence = Rows(points, rows[:, -1], lengthscales).log_evidence()
    return Pool(rows=rows, lengthscales=lengthscales, evidence=evidence, level=level)


def do(name: str, at_once: int, num_trials: int = 7) -> tuple[TaskResult, list[np.ndarray]]:
    """An agent with four observations does one task."""
    options = {**CASES[name], "num_initial": 4, "trials_per_round": num_trials}
    algorithm = make_algorithm(name.split(maxsplit=1)[0], options)
    start = generator(0, "points").random((4, 2))
    state = AgentState(SQUARE, History(start, hill(start), np.arange(4)))
    recorder = Recorder()
    content = pool() if "pool" in name else Pool()
    task = content.task(Phase.TRAIN, 2, 4, num_trials)
    return alone(run_task(algorithm, task, state, recorder, draws, at_once=at_once)), recorder.batches


@pytest.mark.parametrize("name", CASES)
def test_a_task_is_done_in_batches_of_different_points_that_begin_as_single_steps_do(name: str) -> None:
    result, batches = do(name, 3)
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert len(np.unique(np.concatenate(batches), axis=0)) == 7
    history = result.agent_state.history
    assert history.trials.tolist() == list(range(11))
    np.testing.assert_array_equal(history.values, hill(history.points))  # no fantasy is left
    assert result.report.num_trials == 7
    _, one = do(name, 1)
    assert [len(batch) for batch in one] == [1] * 7
    np.testing.assert_array_equal(one[0][0], batches[0][0])
    if name == "random":
        np.testing.assert_array_equal(np.concatenate(one), np.concatenate(batches))


def test_a_batch_of_fed_ei_begins_with_two_rows_of_the_pool() -> None:
    _, batches = do("fed-ei with a pool", 3)
    rows = SQUARE.snap(pool().arrays["rows"][:, :-1])
    found = [(rows == point).all(axis=1).any() for point in np.concatenate(batches)]
    assert found == [True, True, False, False, False, False, False]
    assert hill(batches[0][:2]).min() > np.median(hill(rows)), "the model expects most of them"


def test_without_fantasies_expected_improvement_proposes_one_place_twice() -> None:
    """The control: a pending point that the model ignores attracts the next proposal."""
    algorithm = make_algorithm("ei", {**CASES["ei"], "num_initial": 4, "min_distance": 0.0})
    start = generator(0, "points").random((4, 2))
    state = AgentState(SQUARE, History(start, hill(start), np.arange(4)))
    seen = [Recorder(), Recorder()]
    for trial, recorder in zip((4, 5), seen, strict=True):
        alone(run_task(algorithm, Task(Phase.TRAIN, 2, trial, 1), state, recorder, draws))
    ignored = np.linalg.norm(seen[0].batches[0] - seen[1].batches[0])
    both = Recorder()
    alone(run_task(algorithm, Task(Phase.TRAIN, 2, 4, 2), state, both, draws, at_once=2))
    apart = np.linalg.norm(both.batches[0][0] - both.batches[0][1])
    assert ignored < 0.02
    assert apart > 0.05


def test_a_failed_design_is_followed_by_random_points() -> None:
    algorithm = make_algorithm("ei", {**CASES["ei"], "num_initial": 2, "trials_per_round": 4})
    failed = History(np.full((2, 2), 0.5), np.full(2, np.nan), np.arange(2))
    state, recorder = AgentState(SQUARE, failed), Recorder()
    alone(run_task(algorithm, Task(Phase.TRAIN, 2, 2, 4), state, recorder, draws, at_once=4))
    assert len(np.unique(recorder.batches[0], axis=0)) == 4


# -- what is believed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ts", "ei"])
def test_the_believed_value_is_the_posterior_mean_by_the_textbook(name: str) -> None:
    algorithm: Any = make_algorithm(name, {**CASES[name], "y_transform": "standardise"})
    points = generator(1, "points").random((6, 2))
    values = 5.0 + 100.0 * hill(points)
    theta = gp.Hyperparameters("rbf" if name == "ts" else "matern52", np.array([0.4, 0.7]), 1.3, 1e-3)
    state = AgentState(SQUARE, History(points, values, np.arange(6)))
    state = state.write(hyperparameters=theta.to_array())
    where = generator(2, "points").random((3, 2))
    if name == "ts":
        found = alone(algorithm.believing(Task(Phase.TRAIN, 1, 6, 1), state, where))
    else:  # it fits first
        x, y = algorithm.observations(state)
        request = fit_of(state, x, y)
        theta = request.compute([request])[0]
        found = alone(algorithm.believing(Task(Phase.TRAIN, 1, 6, 1), state, where))
    y = (values - values.mean()) / values.std()
    covariance = kernel(points, points, theta) + theta.noise_variance * np.eye(6)
    means = kernel(where, points, theta) @ np.linalg.solve(covariance, y)
    expected = np.clip(means * values.std() + values.mean(), values.min(), values.max())
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def kernel(a: np.ndarray, b: np.ndarray, theta: gp.Hyperparameters) -> np.ndarray:
    squared = np.sum(((a[:, None] - b[None]) / theta.lengthscales) ** 2, axis=2)
    if theta.kernel == "rbf":
        return theta.outputscale * np.exp(-0.5 * squared)
    r = np.sqrt(5.0 * squared)
    return theta.outputscale * (1.0 + r + r**2 / 3.0) * np.exp(-r)


@pytest.mark.parametrize("name", Y_TRANSFORMS)
def test_an_observed_value_is_believed_as_it_is(name: str) -> None:
    values = np.array([0.3, -2.0, 5.0, 1.0, 0.9])
    transformed = transform(values, name)
    found = believed(transformed, transformed, values)
    for value, expected in zip(found, transformed, strict=True):
        assert transformed[values == value] == expected  # one of those that the transform ties
    inside = believed(np.array([-99.0, 99.0]), transformed, values)
    assert inside.max() == 5.0
    assert inside.min() >= -2.0


def test_before_the_first_success_nothing_is_believed() -> None:
    state = AgentState(SQUARE, History.empty(2))
    task = Task(Phase.TRAIN, 1, 0, 2)
    assert np.isnan(alone(ThompsonSampling().believing(task, state, np.zeros((2, 2))))).all()


def test_hyperparameters_are_fitted_once_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []
    compute = Fit.compute
    monkeypatch.setattr(
        Fit,
        "compute",
        staticmethod(lambda requests: fitted.extend(len(r.y) for r in requests) or compute(requests)),
    )
    do("ei", 3, num_trials=6)
    assert fitted == [4, 7], "of real observations only, once in each batch"
