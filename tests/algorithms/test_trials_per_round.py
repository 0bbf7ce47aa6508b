"""Several trials between two exchanges, and several at once: what changes, and what must not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import SQUARE, Run, assert_same, hills, same
from one_task import done, observed
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

from fbo_flower.algorithms import (
    DPFTS,
    FTS,
    ExpectedImprovement,
    RandomSearch,
    ThompsonSampling,
    make_algorithm,
)
from fbo_flower.algorithms.ei.local import fit_of
from fbo_flower.algorithms.ei.pool import Pool
from fbo_flower.algorithms.fts.fts import Advice
from fbo_flower.algorithms.messages import STEPS
from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.algorithms.requests import Fit
from fbo_flower.algorithms.run_task import TaskResult, as_measured
from fbo_flower.algorithms.senders import own_probability
from fbo_flower.clients import client_app
from fbo_flower.errors import WireError
from fbo_flower.numerics.privacy import Account
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS, transform
from fbo_flower.numerics.surrogates.trend import level_sums
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import STRATEGIES
from fbo_flower.study import Study

PATHS = {"num_candidates": 64, "num_path_features": 32}
SMALL: dict[str, dict[str, Any]] = {
    "random": {},
    "ts": PATHS,
    "ei": {"num_candidates": 64},
    "fts": {**PATHS, "num_features": 20},
    "dp-fts": {**PATHS, "num_features": 12, "schedule": 0.3},
    "fed-ei": {"num_candidates": 64, "secure_sums": 0},
    "rgpe": {**PATHS, "num_features": 12, "num_draws": 10},
    "taf": {**PATHS, "num_features": 12},
}


# -- the same steps, fewer exchanges -------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [RandomSearch, ThompsonSampling, ExpectedImprovement])
def test_an_agent_alone_makes_the_same_trials_in_fewer_exchanges(algorithm):
    def objective(config, context):
        return None if context.trial in (1, 5) else hills(SQUARE)(config, context)

    options = {} if algorithm is RandomSearch else {"num_candidates": 64}
    one = Run.begin(algorithm(**options), objective=objective).steps(13)
    four = Run.begin(algorithm(trials_per_round=4, **options), objective=objective).steps(4)
    assert_same(one.histories(), four.histories(), "histories", "An agent alone learns nothing by exchanges.")
    assert [e.task.num_trials for e in four.exchanges if e.agent == "0"] == [3, 4, 4, 4]


@pytest.mark.parametrize(("name", "sizes"), [("fts", [3, 3, 3]), ("fed-ei", [2, 0, 3])])  # 0: the pool begins
def test_three_trials_per_round_are_three_in_every_table(name, sizes):
    options = {"trials_per_round": 3, **SMALL[name]}
    study = simulate(
        "gp-samples", agents=3, algorithm=make_algorithm(name, options), num_rounds=3, engine="inline"
    )
    for agent in "012":
        mine = study.trials.where(agent=agent)
        assert mine["trial"].tolist() == list(range(sum(sizes)))
        assert mine["round"].tolist() == [r for r, size in enumerate(sizes, 1) for _ in range(size)]
    assert study.rounds["tasks"].tolist() == [3, 3, 3]
    best = [max(study.trials["value"][study.trials["round"] <= r]) for r in study.rounds["round"]]
    assert study.rounds["best"].tolist() == best


def test_a_late_joiner_of_fed_ei_uses_the_others_rows_in_all_of_its_first_trials():
    run = Run.begin(make_algorithm("fed-ei", {"trials_per_round": 4, **SMALL["fed-ei"]}), late=["2"])
    run.steps(3, present=["0", "1"]).step()
    first = next(e for e in run.exchanges if e.agent == "2")
    assert first.task.num_trials == 4
    assert "rows" in first.task.arrays
    drawn = Run.begin(RandomSearch()).step().histories()["2"].points
    assert not any(same(point, other) for point in first.history.points for other in drawn), "none is random"


# -- the coin of every step ----------------------------------------------------------------------------


@pytest.mark.parametrize("advice", ["single", "portfolio", "sums"])
def test_every_step_has_a_coin_of_its_own_iteration(advice):
    # 360 tosses; chi-squared would be over 5 in a step with probability .025: 4 standard errors
    common: dict[str, Any] = {"trials_per_round": 4, "schedule": "1-1/t"}
    if advice == "sums":
        algorithm: Any = DPFTS(**SMALL["dp-fts"] | common)
        state, trial = Run.begin(algorithm).steps(2).state, 7
        tosses = [algorithm._advice(state, trial, generator(seed)) for seed in range(360)]
        assert algorithm._advice(state, 0, generator(0)) == {}, "an initial design has no coins"
    else:
        algorithm = FTS(advice=advice, **common, **SMALL["fts"])
        run = Run.begin(algorithm, num_agents=6).steps(2)
        agents, trial = list(run.agents), run.state.progress.of("0")
        asked = (algorithm.ask(run.state, Phase.TRAIN, 3, agents, generator(s, "ask")) for s in range(60))
        tosses = [task.arrays for _, tasks in asked for task in tasks.values()]
    steps = np.concatenate([arrays.get(STEPS, np.empty(0, dtype=np.int64)) for arrays in tosses])
    shares, first = np.bincount(steps, minlength=4) / 360, trial - algorithm.num_initial + 1
    expected = np.array([1 - own_probability("1-1/t", first + step) for step in range(4)])
    error = np.sqrt(expected * (1 - expected) / 360)
    assert (np.abs(shares - expected) < 4 * error).all()
    assert (np.abs(shares - expected[::-1]) > 4 * error).any(), "the order of the steps counts"


def test_advised_steps_maximise_their_own_message_and_the_others_are_thompson_sampling():
    algorithm = FTS(trials_per_round=4, schedule=0.5, **SMALL["fts"])
    one = FTS(schedule=0.5, **SMALL["fts"])
    run = Run.begin(algorithm, num_agents=4).steps(3)
    compared = {True: 0, False: 0}
    for exchange in (e for e in run.exchanges if e.server_round == 3):
        agent, task = run.agents[exchange.agent], exchange.task
        # the same steps, one task each, with what `of_step` finds in the task of all
        again = Run.begin(algorithm, num_agents=4).steps(2).agents[exchange.agent]
        for trial in range(task.trial, task.end):
            arrays = Advice.of_step(task, trial, 4).arrays
            compared["weights" in arrays] += 1
            again.answer(one, dataclasses.replace(task, trial=trial, num_trials=1, arrays=arrays))
        assert_same(agent.log, again.log, "history", "A step does what it would do in a task of its own.")
    assert min(compared.values()) > 1, "both kinds of steps"


def test_an_advised_initial_design_goes_over_into_steps_with_coins():
    algorithm = FTS(trials_per_round=4, initial_design="advised", schedule=1.0, **SMALL["fts"])
    state = Run.begin(dataclasses.replace(algorithm, schedule=0.5), num_agents=4).steps(2).state
    _, tasks = algorithm.ask(state, Phase.TRAIN, 3, ["9"], generator(0))
    assert tasks["9"].num_trials == 4
    assert tasks["9"].arrays[STEPS].tolist() == [0, 1, 2], "three without a coin, then p_t = 1"


@pytest.mark.parametrize("noise", ["central", "local"])
def test_noise_is_counted_by_exchanges_and_not_by_trials(noise):
    options = {**SMALL["dp-fts"], "noise": noise, "sampling_rate": 1.0, "noise_multiplier": 2.0}
    spent = {}
    for number, rounds in ((1, 7), (3, 3)):
        run = Run.begin(DPFTS(trials_per_round=number, **options)).steps(rounds)
        assert {len(history) for history in run.histories().values()} == {9}
        count = run.state.num_releases if noise == "central" else max(run.state.num_messages.values())
        spent[number] = run.algorithm.results(run.state).privacy["epsilon"]
        assert spent[number] == pytest.approx(Account({2.0: count}).epsilon(1e-3))
    assert count <= 3
    assert spent[3] < 0.7 * spent[1]


# -- hostile tasks and replies -------------------------------------------------------------------------


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


def played(options: dict[str, Any], changes: list[Any], at: int = 3, node_configs: Any = None) -> Study:
    """Play four rounds of fts; replies tell other numbers of trials in round `at`, but one agent's."""
    calls: list[tuple[str, int]] = []

    def objective(config, context):
        calls.append((context.agent, context.trial))
        return hills(SQUARE)(config, context)

    def telling(number: object) -> Any:
        def change(content):
            content["config"]["num-trials"] = number
            return content

        return Fault("malformed", [at], change=change)

    faults = {agent: telling(number) for agent, number in enumerate(changes)}
    app, number = client_app(objective, SQUARE, seed=1, disclose="trials"), max(3, len(changes) + 1)
    strategy = STRATEGIES["fts"](num_agents=number, seed=1, round_timeout=5.0, **SMALL["fts"], **options)
    grid = InProcessGrid(app, number, faults=faults, node_configs=node_configs)
    study = strategy.start(grid, num_rounds=4).study
    assert len(calls) == len(set(calls)), "nothing was evaluated twice"
    return study


def test_a_reply_about_another_number_of_trials_than_it_shows_is_refused():
    numbers = [0, -1, 2, 4, "3", 3.0, True, b""]
    study = played({"trials_per_round": 3}, numbers)
    assert study.rounds["refused"].tolist() == [0, 0, len(numbers), 0]
    for agent in range(len(numbers)):
        mine = study.trials.where(agent=str(agent))
        assert mine["round"].tolist() == [1] * 3 + [2] * 3 + [4] * 3, "the work was not lost"
    one_per_round = played({}, [2], at=1)
    assert one_per_round.rounds["refused"].tolist() == [1, 0, 0, 0]


def test_the_last_exchange_is_smaller_if_the_operators_limit_does_not_divide(tmp_path: Path):
    limits = {1: {"max_trials": 8, "journal": str(tmp_path / "1.db"), "disclose": "trials"}}
    study = played({"trials_per_round": 3}, [], node_configs=limits)
    mine = study.trials.where(agent="1")
    assert mine["trial"].tolist() == list(range(8))
    assert mine["round"].tolist() == [1] * 3 + [2] * 3 + [3] * 2
    assert study.rounds["failures"].tolist() == [0] * 4, "then it is not asked again"
    assert len(study.trials.where(agent="0")) == 12


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


@pytest.mark.parametrize("name", ["random", "ts", "ei", "fts", "fed-ei", "taf"])
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


def test_a_batch_of_fed_ei_begins_with_a_row_of_the_pool():
    _, batches = do("fed-ei", 3)
    rows = SQUARE.snap(pool().arrays["rows"][:, :-1])
    found = [(rows == point).all(axis=1).any() for point in np.concatenate(batches)]
    assert found == [True, *[False] * 6]
    assert hill(batches[0][:1]).min() > np.median(hill(rows)), "the model expects most of it"


def test_without_fantasies_expected_improvement_proposes_one_place_twice():
    """The control: a pending point that the model ignores attracts the next proposal."""
    algorithm = make_algorithm("ei", {**SMALL["ei"], "num_initial": 4, "min_distance": 0.0})

    def batches(trial, number):
        task = Task(Phase.TRAIN, 2, trial, number)
        return done(algorithm, task, observed(START, hill(START)), hill, number)[1]

    ignored = np.linalg.norm(batches(4, 1)[0] - batches(5, 1)[0])
    apart = np.linalg.norm(np.diff(batches(4, 2)[0], axis=0))
    assert ignored < 0.02
    assert apart > 0.05


def test_a_failed_design_is_followed_by_random_points():
    algorithm = make_algorithm("ei", {**SMALL["ei"], "num_initial": 2, "trials_per_round": 4})
    failed = observed(np.full((2, 2), 0.5), np.full(2, np.nan))
    _, batches = done(algorithm, Task(Phase.TRAIN, 2, 2, 4), failed, hill, 4)
    assert len(np.unique(batches[0], axis=0)) == 4


# -- what is believed -----------------------------------------------------------------------------------


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


def test_before_the_first_success_nothing_is_believed():
    state = AgentState(SQUARE, Trials.empty(2))
    task = Task(Phase.TRAIN, 1, 0, 2)
    assert np.isnan(ThompsonSampling().expected_values(task, state, np.zeros((2, 2)))).all()


def test_hyperparameters_are_fitted_once_in_a_batch(monkeypatch: pytest.MonkeyPatch):
    fitted: list[int] = []
    compute = Fit.compute
    monkeypatch.setattr(
        Fit,
        "compute",
        staticmethod(lambda requests: fitted.extend(len(r.y) for r in requests) or compute(requests)),
    )
    do("ei", 3, num_trials=6)
    assert fitted == [4, 7], "of real observations only, once in each batch"
