"""Several trials between two exchanges, and several at once: what changes, and what must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract import SQUARE, Run, assert_same, hills, over_grid
from one_task import done, observed
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

from fbo_flower.algorithms import (
    ExpectedImprovement,
    RandomSearch,
    ThompsonSampling,
    make_algorithm,
)
from fbo_flower.algorithms.ei.local import fit_of
from fbo_flower.algorithms.ei.pool import Pool
from fbo_flower.algorithms.fts.fts import Advice
from fbo_flower.algorithms.messages import STEPS
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.run_task import TaskResult, as_measured
from fbo_flower.errors import WireError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS, transform
from fbo_flower.numerics.surrogates.trend import level_sums
from fbo_flower.simulation.grids import Fault

PATHS = {"num_candidates": 64, "num_path_features": 32}
SMALL: dict[str, dict[str, Any]] = {
    "random": {},
    "ts": PATHS,
    "ei": {"num_candidates": 64},
    "fts": {**PATHS, "num_features": 20},
    "dp-fts": {**PATHS, "num_features": 12, "schedule": 0.3},
    "fed-ei": {"num_candidates": 64, "secure_sums": 0},
}


@pytest.mark.parametrize("algorithm", [RandomSearch, ThompsonSampling, ExpectedImprovement])
def test_an_agent_alone_makes_the_same_trials_in_fewer_exchanges(algorithm):
    def objective(config, context):
        return None if context.trial in (1, 5) else hills(SQUARE)(config, context)

    options = {} if algorithm is RandomSearch else {"num_candidates": 64}
    one = Run.begin(algorithm(**options), objective=objective).steps(13)
    four = Run.begin(algorithm(trials_per_round=4, **options), objective=objective).steps(4)
    assert_same(one.histories(), four.histories(), "histories", "An agent alone learns nothing by exchanges.")
    assert [e.task.num_trials for e in four.exchanges if e.agent == "0"] == [3, 4, 4, 4]


@pytest.mark.parametrize(
    "arrays",
    [
        {"weights": np.ones((2, 3))},
        {"weights": np.ones((2, 3)), STEPS: np.array([0])},
        {"weights": np.ones((2, 3)), STEPS: np.array([1, 0])},
        {"point": np.ones((2, 3)), STEPS: np.array([1, 1])},
        {"point": np.ones((1, 3)), "weights": np.ones((2, 3)), STEPS: np.array([0, 1])},
    ],
)
def test_rows_that_do_not_belong_to_steps_are_refused(arrays):
    with pytest.raises(WireError, match=r"weights|steps|point"):
        Advice.of_step(Task(Phase.TRAIN, 1, 3, 2, arrays), 3, 2)


def test_a_reply_about_another_number_of_trials_than_it_shows_is_refused():
    def telling(number: object) -> Any:
        def change(content):
            content["config"]["num-trials"] = number
            return content

        return Fault("malformed", [3], change=change)

    numbers = [0, -1, 2, 4, "3", 3.0, True, b""]
    faults = {agent: telling(number) for agent, number in enumerate(numbers)}
    options = {**SMALL["fts"], "trials_per_round": 3, "seed": 1, "faults": faults}
    study = over_grid("fts", hills(SQUARE), SQUARE, 1 + len(numbers), 4, **options)
    assert study.rounds["refused"].tolist() == [0, 0, len(numbers), 0]
    for agent in range(len(numbers)):
        mine = study.trials.where(agent=str(agent))
        assert mine["trial"].tolist() == list(range(9))
        assert mine["round"].tolist() == [1] * 3 + [2] * 3 + [4] * 3, "the work was not lost"


START = generator(0, "points").random((4, 2))


def hill(points: np.ndarray) -> np.ndarray:
    return -np.sum((points - np.array([0.3, 0.6])) ** 2, axis=1)


def pool() -> Pool:
    """Return what agents of fed-ei get: 12 rows of others on the same hill."""
    points = generator(5, "points").random((12, 2))
    values = hill(points)
    rows = np.column_stack([points, (values - values.mean()) / values.std()])
    level = np.sum([level_sums(part, generator(6, "level")) for part in np.split(values, 2)], axis=0)
    lengthscales = np.array([0.5, 0.6])
    return Pool(rows=rows, lengthscales=lengthscales, level=level)


def do(name: str, at_once: int, num_trials: int = 7) -> tuple[TaskResult, list[np.ndarray]]:
    """An agent with four observations does one task."""
    algorithm = make_algorithm(name, {**SMALL[name], "num_initial": 4, "trials_per_round": num_trials})
    task = (pool() if name == "fed-ei" else Pool()).task(Phase.TRAIN, 2, 4, num_trials)
    return done(algorithm, task, observed(START, hill(START)), hill, at_once)


@pytest.mark.parametrize("name", ["random", "ei", "fts", "fed-ei"])
def test_a_task_is_done_in_batches_of_different_points_that_begin_as_single_steps_do(name: str):
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


@pytest.mark.parametrize("name", ["ts", "ei"])
def test_the_believed_value_is_the_posterior_mean_by_the_textbook(name: str):
    algorithm: Any = make_algorithm(name, {**SMALL[name], "y_transform": "standardise"})
    points = generator(1, "points").random((6, 2))
    values = 5.0 + 100.0 * hill(points)
    theta = gp.Hyperparameters("rbf" if name == "ts" else "matern52", np.array([0.4, 0.7]), 1.3, 1e-3)
    state = observed(points, values).write(hyperparameters=theta.to_array())
    where = generator(2, "points").random((3, 2))
    if name == "ei":  # it fits first
        request = fit_of(state, *algorithm.observations(state))
        theta = request.compute([request])[0]
    found = algorithm.expected_values(Task(Phase.TRAIN, 1, 6, 1), state, where)
    shape = RBF(theta.lengthscales) if name == "ts" else Matern(theta.lengthscales, nu=2.5)
    process = GaussianProcessRegressor(theta.outputscale * shape, alpha=theta.noise_variance, optimizer=None)
    means = process.fit(points, (values - values.mean()) / values.std()).predict(where)
    expected = np.clip(means * values.std() + values.mean(), values.min(), values.max())
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("name", Y_TRANSFORMS)
def test_an_observed_value_is_believed_as_it_is(name: str):
    values = np.array([0.3, -2.0, 5.0, 1.0, 0.9])
    transformed = transform(values, name)
    found = as_measured(transformed, transformed, values)
    for value, expected in zip(found, transformed, strict=True):
        assert transformed[values == value] == expected  # one of those that the transform ties
    inside = as_measured(np.array([-99.0, 99.0]), transformed, values)
    assert inside.max() == 5.0
    assert inside.min() >= -2.0
