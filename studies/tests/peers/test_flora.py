"""flora: one exchange, consent, secure sums, who is missing, and the configuration that all evaluate."""

from __future__ import annotations

import numpy as np
import pytest
from contract import MIXED, SQUARE, AlgorithmContract, Run
from peer_runs import assert_leave_with_trials_only, assert_slopes, finish, study_of

from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Phase
from fbo_flower.clients.guards import consented
from fbo_flower.numerics.surrogates.rff import draw_features
from studies.peers.flora import COMBINATIONS, FLoRA, combined, statistics

SMALL = {"num_candidates": 64, "num_features": 20, "secure_sums": 0}


class TestContract(AlgorithmContract):
    num_rounds = 6

    def make(self):
        return FLoRA(budget=7, **SMALL)


def test_all_agents_evaluate_one_configuration_as_their_last_trial():
    run = finish(Run.begin(FLoRA(budget=6, **SMALL), num_agents=4))
    points = [history.points for history in run.histories().values()]
    assert [len(p) for p in points] == [6] * 4
    last = np.array([p[-1] for p in points])
    np.testing.assert_array_equal(last, np.repeat(last[:1], 4, axis=0))
    assert run.algorithm.results(run.state).found == {"shared": SQUARE.decode(last[0])}
    assert run.server_round == 3 + 1 + 1  # 3, 1, 1 local trials, the exchange, the shared configuration


@pytest.mark.parametrize(
    ("combine", "space"), [("single", MIXED), ("uncertainty", SQUARE), ("max-min", MIXED)]
)
def test_the_configuration_is_the_best_of_many_on_the_combined_surface(combine, space):
    algorithm = FLoRA(budget=7, combine=combine, **SMALL)
    run = finish(Run.begin(algorithm, space=space))
    sums = [run.state.told[agent] for agent in run.agents]
    for agent, (gram, _) in zip(run.agents.values(), sums, strict=True):
        phi = run.state.features(space.features(agent.agent_state.history.points[:-1]))
        np.testing.assert_allclose(gram, statistics(phi, np.zeros(6))[0], atol=1e-6)
    surface = combined(combine, run.state.features, sums, algorithm.ridge, algorithm.caution)
    many = surface(space.features(space.snap(np.random.default_rng(0).random((4096, space.dimension)))))
    (found,) = surface(space.features(run.state.shared[None, :]))
    assert found > np.quantile(many, 0.999)


def test_without_consent_no_surface_leaves_and_without_any_the_study_ends():
    algorithm = FLoRA(budget=4, **SMALL)
    run = Run.begin(algorithm).step()
    state, tasks = algorithm.ask(run.state, Phase.TRAIN, 3, ["0", "1", "2"], np.random.default_rng(0))
    assert all(task.values == {"share": True} for task in tasks.values())
    reports = {name: run.agents[name].answer(algorithm, task) for name, task in tasks.items()}
    assert_leave_with_trials_only(algorithm, reports["0"], {"gram", "moment"})
    silent = {name: consented(algorithm, report, "none") for name, report in reports.items()}
    state = algorithm.tell(state, Phase.TRAIN, Replies(silent))
    state, tasks = algorithm.ask(state, Phase.TRAIN, 4, ["0", "1", "2"], np.random.default_rng(0))
    assert not tasks
    assert algorithm.finished(state)


def test_secure_sums_give_the_same_configuration_as_surfaces_in_the_clear():
    options = {"budget": 5, "num_features": 20, "num_candidates": 64, "combine": "uncertainty"}
    clear, secure = (study_of("flora", 4, **options, secure_sums=k) for k in (0, 3))
    np.testing.assert_allclose(clear.trials["value"], secure.trials["value"], rtol=1e-4)
    assert len(secure.trials["value"]) == 4 * 5


def test_the_exchange_does_not_wait_for_a_silent_agent_which_gets_the_configuration_too():
    run = Run.begin(FLoRA(budget=5, **SMALL), num_agents=4).step().step(lost=["3"])
    run.step(lost=["3"])
    assert run.state.shared is None
    assert len(run.state.told) == 3
    run.steps(3)
    assert len(run.histories()["3"]) == 5
    assert run.algorithm.finished(run.state)


# -- combined surfaces against regressions on the observations themselves, and gradie ------------


RNG = np.random.default_rng(0)
FEATURES = draw_features(30, 0.5, 3, RNG)
DATA = [(RNG.random((n, 3)), RNG.standard_normal(n)) for n in (4, 9, 15)]
SUMS = [statistics(FEATURES(x), y) for x, y in DATA]
Z = RNG.random((6, 3))
RIDGE, CAUTION = 0.1, 1.5


def surface(combine):
    return combined(combine, FEATURES, SUMS, RIDGE, CAUTION)


def regression(x, y, z):
    """Mean and standard deviation of a Gaussian process with the kernel `phi^T phi`, in the dual form."""
    phi, at = FEATURES(x), FEATURES(z)
    gram = phi @ phi.T + RIDGE * np.eye(len(y))
    cross = at @ phi.T
    mean = cross @ np.linalg.solve(gram, y)
    variance = (at * at).sum(axis=1) - (cross * np.linalg.solve(gram, cross.T).T).sum(axis=1)
    return mean, np.sqrt(variance)


def test_a_single_model_is_the_regression_on_all_observations():
    mean, stddev = regression(*(np.concatenate(part) for part in zip(*DATA, strict=True)), Z)
    np.testing.assert_allclose(surface("single")(Z), mean, atol=1e-9)
    np.testing.assert_allclose(surface("uncertainty")(Z), mean - CAUTION * stddev, atol=1e-9)


def test_max_min_is_the_worst_agents_prediction_and_average_weights_by_observations():
    means = np.array([regression(x, y, Z)[0] for x, y in DATA])
    np.testing.assert_allclose(surface("max-min")(Z), means.min(axis=0), atol=1e-9)
    np.testing.assert_allclose(surface("average")(Z), np.array([4, 9, 15]) @ means / 28, atol=1e-9)


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_values_and_gradients_agree(combine):
    found = surface(combine)
    np.testing.assert_allclose(found.value_and_gradient(Z)[0], found(Z), atol=1e-4)  # single precision
    assert_slopes(found, Z, 1e-3)
