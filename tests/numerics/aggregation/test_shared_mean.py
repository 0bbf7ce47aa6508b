"""The shared-mean process: sums over agents give the posterior and the likelihood of all data together."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fbo_flower.numerics.aggregation import shared_mean
from fbo_flower.numerics.aggregation import shared_mean as sm


def dense(model, points, other=None):
    """Prior covariance of the shared part and of one agent's function, written down without sums."""
    other = points if other is None else other
    shared = (1 - model.residual) * model.features(points) @ model.features(other).T
    return shared, model.covariance(points, other)


def agents(seed, dim, num_agents=3, size=7):
    rng = np.random.default_rng(seed)
    data = []
    for m in range(num_agents):
        n = size + m
        data.append((rng.random((n, dim)), rng.standard_normal(n), rng.integers(1, 4, n).astype(float)))
    return data


def joint(model, data):
    """Covariance of all observations of all agents: shared parts off the diagonal."""
    rows = []
    for m, (x, _, counts) in enumerate(data):
        row = []
        for k, (other, _, _) in enumerate(data):
            shared, own = dense(model, x, other)
            row.append(own + np.diag(model.noise_variance / counts) if m == k else shared)
        rows.append(row)
    return np.block(rows)


@pytest.mark.parametrize(("dim", "residual"), [(1, 0.02), (3, 1.0)])
def test_the_likelihood_from_sums_is_that_of_the_joint_normal(dim, residual):
    model, data = sm.SharedMeanModel(dim, 0.3, 0.05, residual), agents(dim, dim)
    total = sm.nothing(dim)
    for x, y, counts in data:
        total = total + sm.evidence(model, x, y, counts)
    y = np.concatenate([y for _, y, _ in data])
    expected = multivariate_normal(np.zeros(len(y)), joint(model, data)).logpdf(y)
    assert sm.log_likelihood(model, total) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("residual", "size"), [(0.02, 7), (0.1, 0)])
def test_the_belief_is_the_joint_normal_conditioned_on_all_data(residual, size):
    model, data = sm.SharedMeanModel(2, 0.3, 0.05, residual), agents(5, 2, size=size)
    z = np.random.default_rng(1).random((9, 2))
    evidence = [sm.evidence(model, x, y, counts) for x, y, counts in data]
    others = evidence[1] + evidence[2] + sm.nothing(2)
    mean, variance = sm.belief(model, *data[0], others).predict(z)
    cross = np.hstack([dense(model, z, x)[1 if m == 0 else 0] for m, (x, _, _) in enumerate(data)])
    y = np.concatenate([y for _, y, _ in data])
    weights = np.linalg.solve(joint(model, data), cross.T)
    np.testing.assert_allclose(mean, weights.T @ y, atol=1e-6)
    np.testing.assert_allclose(variance, 1.0 - np.einsum("ij,ji->i", cross, weights), atol=1e-6)


def test_the_likelihood_of_repeated_observations_is_that_of_single_ones():
    rng = np.random.default_rng(3)
    x, counts = rng.random((4, 2)), np.array([1.0, 3.0, 2.0, 1.0])
    every = [rng.standard_normal(int(n)) for n in counts]
    means = np.array([v.mean() for v in every])
    within = sum(float(((v - v.mean()) ** 2).sum()) for v in every)
    table = sm.log_likelihoods(2, x, means, counts, within)
    rows = np.repeat(x, counts.astype(int), axis=0)
    for i, scale in enumerate(sm.LENGTHSCALES[:2]):
        model = sm.SharedMeanModel(2, scale * math.sqrt(2), 0.0, 1.0)
        for j, noise in enumerate(sm.NOISES):
            covariance = model.covariance(rows, rows) + noise * np.eye(len(rows))
            expected = multivariate_normal(np.zeros(len(rows)), covariance).logpdf(np.concatenate(every))
            assert table[i, j] == pytest.approx(expected, rel=1e-6)


def test_the_design_of_all_agents_together_is_one_sobol_sequence():
    together = np.concatenate([shared_mean.design(2, 4, place, 0, 4, 7) for place in range(4)])
    assert len(np.unique(np.floor(together * 4), axis=0)) == 16  # one point in each of 4 x 4 boxes
    later = shared_mean.design(2, 4, 1, 2, 2, 7)
    np.testing.assert_array_equal(later, shared_mean.design(2, 4, 1, 0, 4, 7)[2:])


def test_exchanges_and_first_points_are_as_many_as_documented():
    following = [shared_mean.next_exchange(num_pulls) for num_pulls in (1, 3, 4, 8, 20)]
    assert following == [2, 4, 5, 10, 25], "a quarter more pulls"
    sizes = [shared_mean.design_size(*given) for given in ((1, 1), (2, 4), (2, 5), (3, 100))]
    assert sizes == [8, 3, 3, 2], "four of all agents together for each coefficient"
