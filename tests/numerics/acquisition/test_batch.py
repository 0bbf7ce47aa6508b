import functools

import numpy as np
import pytest
from acquisition_cases import every_batch, gaussian_process, mesh, random_belief

from fbo_flower.numerics.acquisition import batch
from fbo_flower.numerics.acquisition.batch import WithPending, maximise_batch
from fbo_flower.numerics.acquisition.entropy_search import BatchMaxValueEntropy, sample_maxima
from fbo_flower.numerics.acquisition.expected_improvement import BatchExpectedImprovement, centred_draws
from fbo_flower.numerics.acquisition.joint_design import joint_design, own_gain
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


@functools.cache
def exhausted(kind, seed):
    """A random problem, and the maximum of exhaustive search."""
    num_points = int(np.random.default_rng(seed).integers(4, 13))
    acquisition, local, beta = problem(kind, seed, num_points, 2 + seed % 2)
    batches, values = every_batch(acquisition, len(local))
    return acquisition, local, beta, (values + beta * local[np.arange(len(local)), batches].sum(axis=1)).max()


def missed(kind, count, num_starts):
    """How often the maximum of exhaustive search is not found, over random problems."""
    number = 0
    for seed in range(count):
        *parts, largest = exhausted(kind, seed)
        best = batch.maximise_batch(*parts, num_starts, np.random.default_rng(seed))
        number += best.value < largest - 1e-9 * abs(best.value)
    return number


@pytest.mark.parametrize(("kind", "count"), [("kg", 24), ("ei", 6), ("es", 6)])
def test_two_starts_find_the_maximum_of_exhaustive_search(kind, count):
    assert missed(kind, count, 2) <= 1


def test_a_search_of_single_moves_alone_misses_maxima(monkeypatch):
    """The negative control of the test above: it does not pass for any search."""
    monkeypatch.setattr(batch._Search, "swap", lambda self, design, value: (design, value))
    monkeypatch.setattr(batch._Search, "pair", lambda self, design, value: (design, value))
    assert missed("kg", 24, 1) > 2


@pytest.mark.parametrize(("beta", "seed"), [(0.0, 0), (1.5, 2)])
def test_the_short_search_of_many_agents_reaches_the_value_of_the_full_one(monkeypatch, beta, seed):
    """Judged by 2048 other draws: what the full search gains beyond 1 % is fitted to its own draws."""
    rng = np.random.default_rng(seed)
    mean, factor = gaussian_process(mesh(12), 0.2, 12, 0.02, rng)
    own = [mean + 0.2 * rng.standard_normal(144) for _ in range(16)]
    local = np.array([own_gain("kg", values, factor, 0.02, 32, rng) for values in own])
    acquisition = central("kg", mean, factor, 0.02, 16, rng)
    judge = BatchKnowledgeGradient(mean, factor, 0.02, centred_draws(2048, 16, np.random.default_rng(9)))

    def search():
        found = batch.maximise_batch(acquisition, local, beta, 1, np.random.default_rng(0))
        own = local[np.arange(16), found.index].sum()
        return judge.values(found.index, 15, found.index[15:])[0] + beta * own

    short = search()
    monkeypatch.setattr(batch, "FEW", 16)
    assert short >= 0.99 * search()


@KINDS
def test_reported_values_are_those_of_the_batch_whichever_agent_is_asked(kind):
    acquisition, local, beta = problem(kind, 1, 50, 3)
    best = batch.maximise_batch(acquisition, local, beta, 3, np.random.default_rng(0))
    for agent in range(3):
        value = acquisition.values(best.index, agent, best.index[agent : agent + 1])[0]
        assert best.central == pytest.approx(value, rel=1e-9)
    own = local[np.arange(3), best.index].sum()
    assert best.value == pytest.approx(value + beta * own, rel=1e-9)
    design = np.array([3, 17, 3])  # with a duplicate
    values = [acquisition.values(design, agent, design[agent : agent + 1])[0] for agent in range(3)]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


@KINDS
@pytest.mark.parametrize(("num_points", "num_agents"), [(1, 1), (1, 3), (40, 1), (2, 5)])
def test_smallest_sets_and_federations_work(kind, num_points, num_agents):
    acquisition, local, _ = problem(kind, 4, num_points, num_agents)
    best = batch.maximise_batch(acquisition, local, 1.0, 2, np.random.default_rng(0))
    assert best.index.shape == (num_agents,)
    assert np.isfinite(best.value)
    if num_agents == 1:
        value = acquisition.values(np.array([0]), 0, np.arange(num_points)) + local[0]
        assert best.value == pytest.approx(value.max(), rel=1e-9, abs=1e-15)


@KINDS
@pytest.mark.parametrize("noise_variance", [0.0, 0.1])
def test_certain_points_are_no_trouble(kind, noise_variance):
    rng, factor = np.random.default_rng(0), np.diag([0.0, 1.0, 0.0, 0.5])
    acquisition = central(kind, np.array([1.0, 0.9, 0.0, 1.0]), factor, noise_variance, 3, rng)
    best = batch.maximise_batch(acquisition, np.zeros((3, 4)), 0.0, 2, rng)
    assert np.isfinite(best.value)
    assert {1, 3} <= set(best.index.tolist())


def test_factors_of_many_matrices_reproduce_them_even_if_they_are_singular():
    roots = np.random.default_rng(0).standard_normal((50, 4, 4))
    roots[:20, 2] = roots[:20, 0]  # a duplicated point
    roots[10:30, :, 2:] = 0.0  # of rank 2
    roots[5] = 0.0
    matrices = roots @ roots.transpose(0, 2, 1)
    lower = batch.stacked_cholesky(matrices)
    np.testing.assert_allclose(lower @ lower.transpose(0, 2, 1), matrices, atol=1e-6)
    assert not np.triu(lower, 1).any()


class FavouredPair:
    """A central value that wants both of two points, whoever takes which."""

    num_points, num_agents = 40, 2

    def guess(self, design, agent):
        return self.values(design, agent, np.arange(40))

    def values(self, design, agent, candidates):
        batches = batch.replaced(design, agent, candidates)
        return 5.0 * np.array([len({3, 30} & set(row)) for row in batches.tolist()])


def test_agents_that_prefer_each_others_points_exchange_them():
    local = np.zeros((2, 40))
    local[0, 3], local[1, 3] = 0.1, 1.0  # the first agent comes first and takes what the second wants more
    best = batch.maximise_batch(FavouredPair(), local, 1.0, 1, np.random.default_rng(0))
    assert best.index.tolist() == [30, 3]
    assert best.value == pytest.approx(11.0)


# -- points under way, against brute-force conditioning ----------------------------------------------


NUM_POINTS = 12


def conditioned(mean, covariance, noise_variance, points, values):
    """Mean `(S,)` and covariance `(S, S)` given observed values: the textbook's formula."""
    inner = covariance[np.ix_(points, points)] + noise_variance * np.eye(len(points))
    gain = np.linalg.solve(inner, covariance[points]).T
    return mean + gain @ (values - mean[points]), covariance - gain @ covariance[points]


def gain_given_fantasies(mean, covariance, noise_variance, pending, candidate, draws):
    """Condition on one fantasy after the other, then on the candidate's: the mean gain of the maximum."""
    total = 0.0
    inner = covariance[np.ix_(pending, pending)] + noise_variance * np.eye(len(pending))
    lower = np.linalg.cholesky(inner)
    for draw in draws:
        fantasy = mean[pending] + lower @ draw[:-1]
        mu, sigma = conditioned(mean, covariance, noise_variance, pending, fantasy)
        spread = np.sqrt(max(sigma[candidate, candidate], 0.0) + noise_variance)
        seen = mu[[candidate]] + spread * draw[-1]
        total += conditioned(mu, sigma, noise_variance, np.array([candidate]), seen)[0].max()
    return total / len(draws) - mean.max()


@pytest.mark.parametrize("seed", range(2))
def test_the_choice_is_the_best_one_after_conditioning_on_every_fantasy(seed):
    mean, factor, noise_variance = random_belief(seed, NUM_POINTS)
    rng = np.random.default_rng(seed)
    pending, draws = rng.choice(NUM_POINTS, size=2, replace=False), centred_draws(16, 3, rng)
    acquisition = WithPending(BatchKnowledgeGradient(mean, factor, noise_variance, draws), pending)
    assert (acquisition.num_points, acquisition.num_agents) == (NUM_POINTS, 1)
    belief = mean, factor @ factor.T, noise_variance
    expected = np.array([gain_given_fantasies(*belief, pending, z, draws) for z in range(NUM_POINTS)])
    found = acquisition.values(np.zeros(1, dtype=np.int64), 0, np.arange(NUM_POINTS))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)
    own = rng.random((1, NUM_POINTS))
    best = maximise_batch(acquisition, own, 0.1, 1, rng)
    assert best.value == pytest.approx((expected + 0.1 * own[0]).max(), rel=1e-9)


@KINDS
def test_where_an_observation_is_exact_no_point_under_way_is_chosen_again(kind):
    points, rng = mesh(5), np.random.default_rng(0)
    distance = np.square(points[:, None] - points[None]).sum(axis=-1)
    factor = np.linalg.cholesky(np.exp(-0.5 * distance / 0.3**2) + 1e-9 * np.eye(25))
    mean = 0.3 * factor @ rng.standard_normal(25)
    pending = np.empty(0, dtype=np.int64)
    for _ in range(4):  # four agents, one after the other: each choice is under way for the next
        chosen = joint_design(kind, mean, factor, np.zeros((1, 25)), 0.0, 1e-8, rng, pending)
        assert chosen[0] not in pending
        pending = np.append(pending, chosen)
