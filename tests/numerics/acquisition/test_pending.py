"""Batches with points under way, against brute-force conditioning."""

import numpy as np
import pytest
from acquisition_cases import mesh, random_belief

from fbo_flower.numerics.acquisition.batch import WithPending, maximise_batch
from fbo_flower.numerics.acquisition.joint_design import joint_design
from fbo_flower.numerics.acquisition.joint_kg import BatchKnowledgeGradient
from fbo_flower.numerics.acquisition.normal import centred_draws

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


@pytest.mark.parametrize("seed", range(3))
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


@pytest.mark.parametrize("kind", ["kg", "ei", "es"])
@pytest.mark.parametrize("seed", range(2))
def test_where_an_observation_is_exact_no_point_under_way_is_chosen_again(kind, seed):
    points, rng = mesh(5), np.random.default_rng(seed)
    distance = np.square(points[:, None] - points[None]).sum(axis=-1)
    factor = np.linalg.cholesky(np.exp(-0.5 * distance / 0.3**2) + 1e-9 * np.eye(25))
    mean = 0.3 * factor @ rng.standard_normal(25)
    pending = np.empty(0, dtype=np.int64)
    for _ in range(4):  # four agents, one after the other: each choice is under way for the next
        chosen = joint_design(kind, mean, factor, np.zeros((1, 25)), 0.0, 1e-8, rng, pending)
        assert chosen[0] not in pending
        pending = np.append(pending, chosen)
