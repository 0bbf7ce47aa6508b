"""Batches, and the values of single points: the knowledge gradient, entropy search, their joint maximum."""

import math

import numpy as np
import pytest
from acquisition_cases import every_batch, fantasies, frazier, gaussian_process, mesh, random_belief
from scipy.integrate import quad
from scipy.stats import norm, truncnorm

from fbo_flower.numerics.acquisition import knowledge_gradient as kg
from fbo_flower.numerics.acquisition.batch import maximise_batch, replaced
from fbo_flower.numerics.acquisition.entropy_search import (
    BatchMaxValueEntropy,
    max_value_entropy,
    sample_maxima,
    variance_below,
)
from fbo_flower.numerics.acquisition.expected_improvement import BatchExpectedImprovement, centred_draws
from fbo_flower.numerics.acquisition.joint_design import own_gain
from fbo_flower.numerics.acquisition.knowledge_gradient import BatchKnowledgeGradient

KINDS = pytest.mark.parametrize("kind", ["kg", "ei", "es"])


def central(kind, mean, factor, noise_variance, num_agents, rng):
    if kind == "es":
        maxima = sample_maxima(mean, factor, 32, rng)
        return BatchMaxValueEntropy(mean, factor, noise_variance, maxima, num_agents)
    draws = centred_draws(64, num_agents, rng)
    if kind == "ei":
        return BatchExpectedImprovement(mean, factor, mean.max(), draws)
    return BatchKnowledgeGradient(mean, factor, noise_variance, draws)


def problem(kind, seed, num_points, num_agents):
    """A random central acquisition, agents that differ from the centre, and a weight."""
    rng = np.random.default_rng([seed, num_points])
    mean, factor, noise_variance = random_belief(seed, num_points)
    acquisition, local = central(kind, mean, factor, noise_variance, num_agents, rng), []
    for _ in range(num_agents):
        own = mean + 0.3 * rng.standard_normal(num_points), factor * rng.uniform(0.5, 1.5)
        local.append(own_gain(kind, *own, noise_variance, 32, rng))
    return acquisition, np.array(local), float(rng.choice([0.0, 0.5, 1.0, 1.5, 3.0]))


@pytest.mark.parametrize(("kind", "count"), [("kg", 12), ("ei", 4), ("es", 4)])
def test_two_starts_find_the_maximum_of_exhaustive_search(kind, count):
    missed = 0
    for seed in range(count):
        num_points = int(np.random.default_rng(seed).integers(4, 13))
        acquisition, local, beta = problem(kind, seed, num_points, 2 + seed % 2)
        batches, values = every_batch(acquisition, len(local))
        largest = (values + beta * local[np.arange(len(local)), batches].sum(axis=1)).max()
        _, best = maximise_batch(acquisition, local, beta, 2, np.random.default_rng(seed))
        missed += best < largest - 1e-9 * abs(best)
    assert missed <= 1


@KINDS
def test_reported_values_are_those_of_the_batch_whichever_agent_is_asked(kind):
    acquisition, local, beta = problem(kind, 1, 50, 3)
    best, largest = maximise_batch(acquisition, local, beta, 3, np.random.default_rng(0))
    own = local[np.arange(3), best].sum()
    for agent in range(3):
        value = acquisition.values(best, agent, best[agent : agent + 1])[0]
        assert largest == pytest.approx(value + beta * own, rel=1e-9)
    design = np.array([3, 17, 3])  # with a duplicate
    values = [acquisition.values(design, agent, design[agent : agent + 1])[0] for agent in range(3)]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


@KINDS
@pytest.mark.parametrize(("num_points", "num_agents"), [(1, 3), (40, 1), (40, 12)])
def test_smallest_sets_and_federations_work(kind, num_points, num_agents):
    acquisition, local, _ = problem(kind, 4, num_points, num_agents)
    best, largest = maximise_batch(acquisition, local, 1.0, 2, np.random.default_rng(0))
    assert best.shape == (num_agents,)
    assert np.isfinite(largest)
    if num_agents == 1:
        value = acquisition.values(np.array([0]), 0, np.arange(num_points)) + local[0]
        assert largest == pytest.approx(value.max(), rel=1e-9, abs=1e-15)


# -- points under way, against brute-force conditioning ----------------------------------------------


NUM_POINTS = 12


def test_the_choice_is_the_best_one_after_conditioning_on_every_fantasy():
    mean, factor, noise_variance = random_belief(0, NUM_POINTS)
    rng = np.random.default_rng(0)
    pending, draws = rng.choice(NUM_POINTS, size=2, replace=False), centred_draws(16, 3, rng)
    acquisition = BatchKnowledgeGradient(mean, factor, noise_variance, draws)
    belief = mean, factor @ factor.T, noise_variance
    means = [fantasies(*belief, [*pending, z], draws) for z in range(NUM_POINTS)]
    expected = np.max(means, axis=2).mean(axis=1) - mean.max()
    found = acquisition.values(np.append(pending, 0), 2, np.arange(NUM_POINTS))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)
    own = rng.random((1, NUM_POINTS))
    chosen, largest = maximise_batch(acquisition, own, 0.1, 1, rng, pending)
    worth = expected + 0.1 * own[0]
    assert largest == pytest.approx(worth.max(), rel=1e-9)
    assert chosen.tolist() == [np.argmax(worth)]


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_point_has_the_value_of_the_scalar_algorithm(seed, noisy, monkeypatch):
    mean, factor, noise_variance = random_belief(seed, 3 + 15 * seed)
    covariance, noise_variance = factor @ factor.T, noise_variance * noisy
    total = covariance.diagonal() + noise_variance
    slopes = np.divide(covariance, np.sqrt(total), out=np.zeros_like(covariance), where=total > 0)
    exact = [frazier(mean, slopes[:, x]) for x in range(len(mean))]
    for block in (kg.BLOCK, 100):  # blocks of points give what all points give at once
        monkeypatch.setattr(kg, "BLOCK", block)
        found = kg.knowledge_gradient_from_factor(mean, factor, noise_variance)
        np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-14)


def test_hopeless_gains_keep_their_order():
    # far below the best mean: gains of 1e-80 and less, which differences of expectations would lose
    mean = np.array([0.0, -20.0, -20.5, -21.0])
    gains = kg.knowledge_gradient_from_factor(mean, np.diag([0.0, 1.0, 1.0, 1.0]), 0.0)
    assert gains[1] > gains[2] > gains[3] > 0
    assert gains[1] < 1e-80


# -- of a batch --------------------------------------------------------------------------------------


LONG = kg.LATER + 4


def draws_of(number, dimension):
    return centred_draws(number, dimension, np.random.default_rng(0))


def check(belief, draws, design, agent, candidates):
    """Values are those of the formula, one batch at a time."""
    mean, factor, noise_variance = belief
    values = BatchKnowledgeGradient(*belief, draws).values(design, agent, candidates)
    for value, points in zip(values, replaced(design, agent, candidates), strict=True):
        means = fantasies(mean, factor @ factor.T, noise_variance, points, draws[:, : len(design)])
        assert value == pytest.approx(means.max(axis=1).mean() - mean.max(), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize(("length", "agent"), [(1, 0), (4, 0), (4, 2), (LONG, 0), (LONG, LONG - 1)])
def test_values_are_those_of_the_formula_for_one_batch_at_a_time(length, agent, monkeypatch):
    if length - agent > kg.LATER:  # by one factor per candidate, not by columns
        monkeypatch.setattr(BatchKnowledgeGradient, "_stacked", None)
    for seed in range(2):
        design = np.random.default_rng(seed).integers(25, size=length)
        check(random_belief(seed, 25), draws_of(32, length), design, agent, np.array([0, 24, design[0]]))


def test_points_left_out_of_the_maximum_never_were_maximisers():
    """Late beliefs, where many are left out: the formula has no such shortcut."""
    rng = np.random.default_rng(0)
    belief, draws = (*gaussian_process(mesh(8), 0.3, 40, 0.01, rng), 0.01), draws_of(64, 3)
    assert BatchKnowledgeGradient(*belief, draws)._num_tops < 64
    for design in rng.integers(64, size=(10, 3)):
        check(belief, draws, design, 1, design[1:2])


def test_guesses_are_bounds_of_the_value_with_the_agent_last():
    mean, factor = gaussian_process(mesh(8), 0.25, 10, 0.02, np.random.default_rng(0))
    acquisition, design = BatchKnowledgeGradient(mean, factor, 0.02, draws_of(64, 3)), np.array([5, 40, 0])
    guess, values = acquisition.guess(design, 2), acquisition.values(design, 2, np.arange(64))
    assert (guess <= values + 1e-12).all()
    assert np.median(guess / values) > 0.9


@pytest.mark.parametrize("noise_variance", [0.0, 0.1])
@pytest.mark.parametrize("factor", [np.ones((1, 1)), np.ones((3, 1)), np.zeros((3, 0))])
def test_nothing_is_learnt_from_one_point_from_certainty_or_from_a_common_shift(factor, noise_variance):
    mean = np.arange(float(len(factor)))
    assert kg.knowledge_gradient_from_factor(mean, factor, noise_variance).tolist() == [0.0] * len(factor)
    acquisition = BatchKnowledgeGradient(mean, factor, noise_variance, draws_of(16, 3))
    _, largest = maximise_batch(acquisition, np.zeros((3, len(factor))), 0.0, 1, np.random.default_rng(0))
    assert largest == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("length", [2, LONG])
def test_a_second_noiseless_look_at_one_point_tells_nothing(length):
    mean, factor, _ = random_belief(1, 10)
    acquisition = BatchKnowledgeGradient(mean, factor, 0.0, draws_of(64, length))
    once = acquisition.values(np.array([4]), 0, np.array([4]))
    np.testing.assert_allclose(acquisition.values(np.full(length, 4), 0, np.array([4])), once, rtol=1e-6)


def test_variance_of_a_cut_normal_is_that_of_scipy_and_has_its_limits():
    gamma = np.array([-30.0, -8.0, -1.0, 0.0, 0.3, 2.0, 9.0])
    np.testing.assert_allclose(variance_below(gamma), [truncnorm.var(-math.inf, g) for g in gamma], rtol=1e-6)
    far = np.array([-math.inf, -1e5, -500.0, 60.0, math.inf])
    np.testing.assert_allclose(variance_below(far), [1e-6, 1e-6, 4e-6, 1, 1], rtol=1e-3)


def information(gamma, learnt):
    """`H(y) - H(y | f < gamma)` by quadrature, `y = rho f + sqrt(1 - rho^2) e`, `rho^2 = learnt`."""
    rho, rest = math.sqrt(learnt), math.sqrt(1 - learnt)

    def term(y):  # of the density of y given f < gamma: f | y ~ N(rho y, 1 - rho^2)
        value = norm.pdf(y) * norm.cdf((gamma - rho * y) / rest) / norm.cdf(gamma)
        return -value * math.log(value) if value > 0 else 0.0

    return 0.5 * math.log(2 * math.pi * math.e) - quad(term, -12, 12, limit=500)[0]


@pytest.mark.parametrize(("gamma", "learnt"), [(-1.0, 0.97), (2.5, 0.2)])
def test_one_observation_is_worth_no_more_than_its_information_and_nearly_as_much(gamma, learnt):
    bound = max_value_entropy(np.zeros(1), np.ones(1), 1 / learnt - 1, np.array([gamma]))[0]
    exact = information(gamma, learnt)
    assert 0.75 * exact <= bound <= exact + 1e-9


def test_maxima_are_those_of_draws_of_the_posterior():
    maxima = sample_maxima(np.zeros(2), np.eye(2), 50_000, np.random.default_rng(0))
    assert maxima.mean() == pytest.approx(1 / math.sqrt(math.pi), abs=4 * maxima.std() / math.sqrt(50_000))
    certain = sample_maxima(np.array([1.0, 3.0]), np.zeros((2, 0)), 2, np.random.default_rng(0))
    assert certain.tolist() == [3, 3]


def test_a_batch_is_worth_its_points_less_what_they_share():
    mean, factor = gaussian_process(mesh(6), 0.3, 4, 0.05, np.random.default_rng(0))
    maxima = sample_maxima(mean, factor, 64, np.random.default_rng(1))
    acquisition = BatchMaxValueEntropy(mean, factor, 0.05, maxima, 3)
    single = max_value_entropy(mean, np.square(factor).sum(axis=1), 0.05, maxima)
    alone = acquisition.values(np.array([0]), 0, np.arange(36))
    np.testing.assert_allclose(alone, single, rtol=1e-9, atol=1e-14)
    values = acquisition.values(np.array([3, 0, 30]), 1, np.arange(36))
    for candidate in (0, 17, 35):
        batch = [3, candidate, 30]
        joint = factor[batch] @ factor[batch].T + 0.05 * np.eye(3)
        scale = np.sqrt(np.diag(joint))
        shared = 0.5 * np.linalg.slogdet(joint / np.outer(scale, scale))[1]
        assert values[candidate] == pytest.approx(single[batch].sum() + shared, rel=1e-9)
    assert (values <= single[[3, 30]].sum() + single + 1e-12).all()


def test_certain_points_tell_nothing_and_noiseless_duplicates_are_avoided():
    assert max_value_entropy(np.zeros(2), np.zeros(2), 0.0, np.array([-1.0, 0.0])).tolist() == [0.0, 0.0]
    acquisition = BatchMaxValueEntropy(np.zeros(3), np.diag([1.0, 0.9, 0.0]), 0.0, np.array([1.0]), 2)
    values = acquisition.values(np.array([0, 0]), 1, np.arange(3))
    assert np.isfinite(values).all()
    assert values.argmax() == 1
    assert values.argmin() == 0
