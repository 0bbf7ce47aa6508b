import math

import numpy as np
import pytest

from fbo_flower.numerics.bandits import ucb


def test_arms_are_a_random_grid_in_low_dimensions():
    assert ucb.random_arms(1, np.random.default_rng(0)).shape == (20, 1)
    arms = ucb.random_arms(2, np.random.default_rng(0))
    assert arms.shape == (400, 2)
    assert len(np.unique(arms[:, 0])) == len(np.unique(arms[:, 1])) == 20
    assert ucb.random_arms(10, np.random.default_rng(0)).shape == (1000, 10)


def test_fed1_ucb_formulas():
    assert ucb.phase_length(20000) == 100
    radius = ucb.fed1_radius(np.array([100, 200]), 10, 20000)
    np.testing.assert_allclose(radius, np.sqrt(4 * math.log(20000) / np.array([1000, 2000])))
    survivors = ucb.fed1_survivors(np.array([0.9, 0.7, 0.5]), np.full(3, 0.1))
    assert survivors.tolist() == [True, False, False]  # .7 + .1 does not exceed .9 - .1


def test_network_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    weights, x = rng.standard_normal(20 * 4 + 1), rng.random((7, 2))
    exact = ucb.network_gradients(weights, x, 20)
    for k in range(len(weights)):
        step = np.zeros(len(weights))
        step[k] = 1e-6
        numeric = (ucb.network(weights + step, x, 20) - ucb.network(weights - step, x, 20)) / 2e-6
        np.testing.assert_allclose(exact[:, k], numeric, atol=1e-6)


def plain_steps(weights, arms, counts, totals, options):
    """Gradient steps on the mean squared error over arms, each with its mean reward and its count."""
    seen = np.flatnonzero(counts)
    y, n = totals[seen] / counts[seen], counts[seen]
    for _ in range(options.train_steps):
        residual = n * (ucb.network(weights, arms[seen], options.width) - y)
        slope = 2 * residual @ ucb.network_gradients(weights, arms[seen], options.width) / n.sum()
        weights = weights - options.learning_rate * (slope + options.regulariser / n.sum() * weights)
    return weights


def test_clients_that_are_trained_together_learn_what_each_learns_alone():
    rng, options = np.random.default_rng(0), ucb.NeuralOptions(width=7)
    features = ucb.neural_features(ucb.random_arms(1, rng), options, rng)
    counts, trained = rng.integers(0, 3, (3, 20)), features.start + 0.1 * rng.standard_normal((3, 22))
    totals = counts * rng.random((3, 20))
    found = ucb.neural_train(features, trained, counts, totals)
    for m, weights in enumerate(found):
        expected = plain_steps(trained[m], features.arms, counts[m], totals[m], options)
        np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("t", [0, 20, 40])
def test_the_arm_has_the_largest_mean_of_both_bounds(t):
    rng, options = np.random.default_rng(1), ucb.NeuralOptions(width=7, mix_until=40, nu_a=2.0, nu_b=3.0)
    features = ucb.neural_features(ucb.random_arms(1, rng), options, rng)
    g, lam, alpha = features.gradients, options.regulariser, options.alpha(t)
    for _ in range(20):
        rows, weights = rng.integers(20, size=9), features.start + rng.standard_normal(22)
        inverses = [np.linalg.inv(lam * np.eye(22) + g[r].T @ g[r]) for r in (rows, rows[:4])]
        response = rng.standard_normal(9) @ g[rows]
        spread = [np.sqrt(lam * np.diag(g @ inverse @ g.T)) for inverse in inverses]
        bound_a = g @ inverses[0] @ response + 2.0 * spread[0]
        bound_b = ucb.network(weights, features.arms, 7) + 3.0 * spread[1]
        expected = np.argmax((1 - alpha) * bound_a + alpha * bound_b)
        assert ucb.neural_choose(features, t, inverses[0], response, weights, inverses[1]) == expected


def test_the_weight_of_the_networks_grows_from_0_to_1():
    options = ucb.NeuralOptions()
    assert [options.alpha(t) for t in (0, 3, 353, 703, 5000)] == [0.0, 0.0, 0.5, 1.0, 1.0]
