"""fmtbo: what travels, whose hyperparameters count, and the paper's claim in small."""

from __future__ import annotations

import numpy as np
import pytest
from contract import MIXED, SQUARE, AlgorithmContract, Run, hills
from peer_runs import assert_slopes, same_trials
from scipy.integrate import quad
from scipy.stats import norm, spearmanr

from fbo_flower.algorithms import ExpectedImprovement
from fbo_flower.algorithms.ei.local import KERNEL
from fbo_flower.algorithms.records import Phase
from fbo_flower.numerics.acquisition.expected_improvement import LogImprovement
from fbo_flower.numerics.surrogates import gp
from studies.peers.fmtbo import (
    FMTBO,
    LogMixtureImprovement,
    dissimilarities,
    public_points,
    ranks_of,
    shared_hyperparameters,
)

SMALL = {"num_candidates": 64, "num_points": 30}


class TestContract(AlgorithmContract):
    def make(self):
        return FMTBO(**SMALL)


def test_a_single_agent_and_agents_that_ignore_the_others_do_what_ei_does():
    for count, weight in ((1, 0.5), (3, 0.0)):
        same_trials(FMTBO(global_weight=weight, **SMALL), ExpectedImprovement(num_candidates=64), count)


@pytest.mark.parametrize("space", [SQUARE, MIXED], ids=["square", "mixed"])
def test_an_agent_sends_its_fit_and_the_ranks_of_public_points_under_it(space):
    run = Run.begin(FMTBO(**SMALL), space=space, objective=hills(space, 0.0)).steps(3)
    algorithm = run.algorithm
    points = public_points(space, algorithm.num_points, run.state.seed)
    for exchange in run.exchanges[-3:]:
        agent = run.agents[exchange.agent].agent_state
        x, y = algorithm.observations(agent)
        theta = exchange.report.arrays["theta"]
        np.testing.assert_array_equal(theta, agent.arrays["hyperparameters"])
        model = gp.posterior(x, y, gp.Hyperparameters.from_array(KERNEL, theta))
        predicted = model.predict(space.features(points))[0]
        assert (np.diff(predicted[np.argsort(exchange.report.arrays["ranks"])]) >= 0).all()


def test_each_agent_receives_the_mean_over_agents_that_rank_alike():
    run = Run.begin(FMTBO(**SMALL), num_agents=4, seed=3).steps(2)
    sent = {e.agent: e.report.arrays for e in run.exchanges[-4:]}
    _, tasks = run.algorithm.ask(run.state, Phase.TRAIN, 3, list("0123"), np.random.default_rng(0))
    for own in "0123":
        weights = [max(0.0, spearmanr(sent[a]["ranks"], sent[own]["ranks"]).statistic) for a in "0123"]
        expected = sum(w * sent[a]["theta"] for w, a in zip(weights, "0123", strict=True)) / sum(weights)
        np.testing.assert_allclose(tasks[own].arrays["theta"], expected, atol=1e-12)


# -- rank dissimilarities against scipy's spearman, and averages of hyperparameters b ------------


def test_the_dissimilarity_is_half_of_one_minus_spearmans_correlation():
    drawn = np.random.default_rng(1).standard_normal((6, 30))
    ranks = np.array([ranks_of(row) for row in drawn])
    expected = [(1 - spearmanr(row, drawn[0]).statistic) / 2 for row in drawn]
    np.testing.assert_allclose(dissimilarities(ranks, ranks[0]), expected, atol=1e-12)
    assert dissimilarities(ranks[:1], ranks[0])[0] == 0
    assert dissimilarities(29 - ranks[:1], ranks[0])[0] == 1


def test_agents_that_rank_no_better_than_chance_have_no_weight():
    theta = np.array([[0.0, 0.0], [1.0, 2.0], [9.0, 9.0], [9.0, 9.0]])
    mean, weights = shared_hyperparameters(theta, np.array([0.0, 0.25, 0.5, 0.9]))
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(mean, [1 / 3, 2 / 3])


# -- log ei of a mixture -------------------------------------------------------------------------


RNG = np.random.default_rng(0)
X, Y = RNG.random((8, 3)), RNG.standard_normal(8)
Z = RNG.random((5, 3))


def posterior(scale: float) -> gp.Posterior:
    return gp.posterior(X, Y, gp.Hyperparameters("matern52", np.array([scale, 2 * scale, 0.5]), 1.3, 0.01))


BOTH = [posterior(0.3), posterior(0.9)]


def test_mean_and_variance_are_those_of_draws_from_the_mixture():
    draws = np.random.default_rng(1)
    mean, variance = LogMixtureImprovement(BOTH, [0.3, 0.7], 0.0).predict(Z)
    for place, z in enumerate(Z):
        which = draws.random(400_000) < 0.3
        (m1,), (v1,) = BOTH[0].predict(z[None, :])
        (m2,), (v2,) = BOTH[1].predict(z[None, :])
        noise = draws.standard_normal(400_000)
        drawn = np.where(which, m1 + np.sqrt(v1) * noise, m2 + np.sqrt(v2) * noise)
        assert mean[place] == pytest.approx(drawn.mean(), abs=0.01)
        assert variance[place] == pytest.approx(drawn.var(), rel=0.02)


def test_it_is_the_logarithm_of_the_expected_improvement_under_these_moments():
    found = LogMixtureImprovement(BOTH, [0.5, 0.5], 0.4)
    for z, value in zip(Z, found(Z), strict=True):
        (m,), (v,) = found.predict(z[None, :])
        law = norm(m, np.sqrt(v))
        expected = quad(lambda f, law=law: (f - 0.4) * law.pdf(f), 0.4, m + 12 * np.sqrt(v))[0]
        assert value == pytest.approx(np.log(expected), abs=1e-6)


def test_the_gradient_is_that_of_the_value():
    found = LogMixtureImprovement(BOTH, [0.25, 0.75], 0.4)
    values, _ = found.value_and_gradient(Z)
    np.testing.assert_allclose(values, found(Z), rtol=1e-9)
    assert_slopes(found, Z, 1e-4)


def test_a_mixture_of_equal_processes_is_that_process():
    one = LogImprovement(BOTH[0], 0.2)
    np.testing.assert_allclose(LogMixtureImprovement([BOTH[0]] * 2, [0.5, 0.5], 0.2)(Z), one(Z), rtol=1e-7)
