"""Predictions from earlier values only, and evidence that stays fair although agents choose their points."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern

from fbo_flower.numerics.surrogates.innovations import LENGTHSCALE, NOISE_VARIANCE, foresight, innovations
from fbo_flower.numerics.surrogates.trend import agreement, deviations

RNG = np.random.default_rng(0)
X, Y, M = RNG.random((9, 3)), RNG.standard_normal(9), RNG.standard_normal(9)


def covariance(x):
    scale = LENGTHSCALE * np.sqrt(x.shape[1])
    return Matern(scale, nu=2.5)(x) + NOISE_VARIANCE * np.eye(len(x))


def test_innovations_are_errors_of_prediction_from_the_earlier_points_in_standard_deviations():
    k, found = covariance(X), innovations(X, np.column_stack([Y, M]))
    for t in range(1, len(X)):
        inverse, one = np.linalg.inv(k[:t, :t]), np.ones(t)
        mean = (one @ inverse @ Y[:t]) / (one @ inverse @ one)  # generalised least squares
        gain = inverse @ k[:t, t]
        prediction = mean + gain @ (Y[:t] - mean)
        variance = k[t, t] - gain @ k[:t, t] + (1 - gain.sum()) ** 2 / (one @ inverse @ one)
        assert found[t - 1, 0] == pytest.approx((Y[t] - prediction) / np.sqrt(variance))


def test_sums_over_all_points_are_those_of_generalised_least_squares():
    inverse, one = np.linalg.inv(covariance(X)), np.ones((9, 1))
    projected = inverse - inverse @ one @ one.T @ inverse / (one.T @ inverse @ one)
    scale = np.sqrt(Y @ projected @ Y / 8)
    np.testing.assert_allclose(foresight(X, Y, M), [M @ projected @ Y / scale, M @ projected @ M])


def test_evidence_is_the_sum_of_its_parts_and_does_not_depend_on_units():
    whole, late = foresight(X, Y, M), foresight(X, Y, M, first=5)
    directions = innovations(X, np.column_stack([Y, M]))
    errors = directions[:, 0] / np.sqrt((directions[:, 0] ** 2).mean())
    np.testing.assert_allclose(whole - late, [directions[:4, 1] @ errors[:4], (directions[:4, 1] ** 2).sum()])
    np.testing.assert_allclose(foresight(X, 3 * Y - 7, M + 5, first=5), late)
    np.testing.assert_array_equal(foresight(X, Y, M, first=9), 0.0)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_without_differences_between_values_there_is_no_evidence(n):
    np.testing.assert_array_equal(foresight(X[:n], np.full(n, 0.3), M[:n]), 0.0)


def unrelated_agents(seed, rounds=8, num_agents=6):
    """Evidence of agents that follow each other's best points on functions of their own.

    Returns z of the errors of prediction, summed over rounds, and of the regression on all values at the end.
    """
    rng = np.random.default_rng(seed)
    grid = rng.random((400, 2))
    draws = np.linalg.cholesky(Matern(0.3, nu=2.5)(grid) + 1e-8 * np.eye(400)) @ rng.standard_normal(
        (400, num_agents)
    )
    rows = [list(rng.choice(400, 3, replace=False)) for _ in range(num_agents)]
    sums = np.zeros(2)
    for number in range(rounds):
        best = [grid[rows[a][int(np.argmax(draws[rows[a], a]))]] for a in range(num_agents)]
        close = [closeness(grid, np.delete(best, a, axis=0)) for a in range(num_agents)]
        for a in range(num_agents):
            near = 1.0 - np.linalg.norm(grid - best[a], axis=1)  # where it looks: near the best points
            wish = close[a] + 2.0 * near + 0.3 * rng.standard_normal(400)
            wish[rows[a]] = -np.inf
            rows[a].append(int(np.argmax(wish)))
            y = draws[rows[a], a]
            sums += foresight(grid[rows[a]], y, close[a][rows[a]], first=len(y) - 1 if number else 0)
    plain = np.zeros(2)
    for a in range(num_agents):
        y = draws[rows[a], a]
        plain += agreement(close[a][rows[a]], (y - y.mean()) / y.std())
    return deviations(sums), deviations(plain)


def closeness(points, centres):
    squares = ((points[:, None] - centres) ** 2).sum(axis=2)
    return np.log(0.02 + np.exp(-squares / 0.04).mean(axis=1))


def test_evidence_of_unrelated_agents_is_a_standard_normal_whatever_points_they_choose():
    z, plain = np.array([unrelated_agents(seed) for seed in range(60)]).T
    assert abs(z.mean()) < 0.4  # three standard errors
    assert 0.7 < z.std() < 1.35
    assert plain.std() > 1.5  # the negative control: values at close points are alike
