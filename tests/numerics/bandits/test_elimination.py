"""Elimination of cells and of arms, and the neural bandit."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from fbo_flower.numerics.bandits import elimination, ucb
from fbo_flower.numerics.bandits.elimination import NEVER, Constants, merge, transition_depth


def setting(seed, **options):
    """Return a generator, options of a small network, and features of the arms of a line."""
    rng, options = np.random.default_rng(seed), ucb.NeuralOptions(width=7, **options)
    return rng, options, ucb.neural_features(ucb.random_arms(1, rng), options, rng)


def test_constants_of_the_paper_are_the_formulas():
    constants = Constants(budget=20000, delta=0.1)
    assert constants.log_term == pytest.approx(math.log(200000))
    # c^2 L = .12206: one pull as long as 4^h stays below 8.19
    assert [constants.pulls(h) for h in range(8)] == [1, 1, 2, 8, 32, 125, 500, 2000]
    assert constants.pulls_per_client(5, 10) == 13
    assert float(constants.radius(4)) == pytest.approx(0.1 * math.sqrt(math.log(200000) / 4))
    assert math.isinf(float(constants.radius(0)))


def counted(nu, rho, gap, rule):
    """The definition: how many depths vary by the gap or more."""
    depth = 0
    while nu * rho**depth >= gap if rule == "literal" else nu * rho**depth > gap:
        depth += 1
        if nu * rho**depth == 0.0:
            return NEVER
    return depth - 1 if rule == "literal" else depth


@pytest.mark.parametrize("rule", ["literal", "ceil"])
def test_transition_depth_by_logarithms_is_the_count_of_the_definition(rule):
    for nu in (1.0, 1e6):
        for rho in (1e-6, 0.25, 2**-0.25):
            for gap in (5e-324, 0.01, 0.125, 0.25, 1.0, 2e6):
                assert transition_depth(nu, rho, gap, rule) == counted(nu, rho, gap, rule)
    assert transition_depth(1.0, 0.5, 0.0, rule) == NEVER


def test_elimination_is_strict_and_measured_from_the_first_best_and_the_lower_bound_recommends():
    mean = np.array([0.0, 1.0, 1.0, 0.25])
    radius = np.array([0.25, 0.125, 0.5, 0.25])
    # the first best is cell 1: lower bound .875; cell 0 reaches .875 with variation .625, exactly
    assert elimination.eliminated(mean, radius, 0.625).tolist() == [False] * 4
    assert elimination.eliminated(mean, radius, 0.624).tolist() == [True, False, False, False]
    # were cell 2 the reference, its lower bound .5 would let cell 3 live
    assert elimination.eliminated(mean, radius, 0.25).tolist() == [True, False, False, True]
    protected = np.array([True, False, False, False])
    assert elimination.eliminated(mean, radius, 0.25, protected).tolist() == [False, False, False, True]
    assert elimination.recommend(np.array([0.9, 0.8, 0.8]), np.array([0.5, 0.1, 0.1])) == 1


def test_merging_counts_what_the_variance_of_the_mean_is_worth():
    equal = merge([[0.2, 0.4], [0.4, 1.0]], [[3, 5], [3, 5]])
    np.testing.assert_allclose(equal.mean, [0.3, 0.7])
    assert equal.count.tolist() == [6, 10]
    means = [[0.2, 9.0, 9.0], [0.4, 1.0, 9.0], [0.6, 0.5, 9.0]]
    merged = merge(means, [[1, 0, 0], [2, 4, 0], [4, 4, 0]])
    np.testing.assert_allclose(merged.mean, [0.4, 0.75, np.nan])
    np.testing.assert_allclose(merged.count, [9 / (1 + 1 / 2 + 1 / 4), 8, 0])  # M'^2 / sum(1 / T_m)
    assert merged.num_clients.tolist() == [3, 2, 0]


@pytest.mark.parametrize(("num_clients", "trim"), [(1, 0.2), (4, 0.34), (9, 0.2), (4, 0.5)])
def test_a_robust_centre_is_that_of_scipy_and_only_of_clients_that_pulled_the_cell(num_clients, trim):
    means = np.random.default_rng(num_clients).normal(size=(num_clients, 7))
    absent = np.vstack([means, np.full((2, 7), 900.0)])
    counts = np.repeat([3] * num_clients + [0, 0], 7).reshape(-1, 7)
    merged = merge(absent, counts, trim)
    expected = np.median(means, axis=0) if trim == 0.5 else stats.trim_mean(means, trim, axis=0)
    np.testing.assert_allclose(merged.mean, expected, atol=1e-12)
    assert merged.num_clients.tolist() == [num_clients] * 7
    np.testing.assert_allclose(merged.count, 3 * num_clients * elimination.efficiency(trim))
    assert np.isnan(merge(absent, 0 * counts, trim).mean).all()


def test_fed1_ucb_formulas():
    arms = ucb.random_arms(2, np.random.default_rng(0))
    assert (arms.shape, len(np.unique(arms[:, 0]))) == ((400, 2), 20), "a random grid"
    assert ucb.random_arms(10, np.random.default_rng(0)).shape == (1000, 10)
    assert ucb.phase_length(20000) == 100
    radius = ucb.fed1_radius(np.array([100, 200]), 10, 20000)
    np.testing.assert_allclose(radius, np.sqrt(4 * math.log(20000) / np.array([1000, 2000])))
    survivors = ucb.fed1_survivors(np.array([0.9, 0.7, 0.5]), np.full(3, 0.1))
    assert survivors.tolist() == [True, False, False]  # .7 + .1 does not exceed .9 - .1


def test_network_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    weights, x = rng.standard_normal(20 * 4 + 1), rng.random((7, 2))
    for row, exact in zip(x, ucb.network_gradients(weights, x, 20), strict=True):
        numeric = approx_fprime(weights, lambda w, row=row: ucb.network(w, row[None], 20)[0], 1e-7)
        np.testing.assert_allclose(exact, numeric, atol=1e-5)


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
    rng, options, features = setting(0)
    counts, trained = rng.integers(0, 3, (3, 20)), features.start + 0.1 * rng.standard_normal((3, 22))
    totals = counts * rng.random((3, 20))
    found = ucb.neural_train(features, trained, counts, totals)
    for m, weights in enumerate(found):
        expected = plain_steps(trained[m], features.arms, counts[m], totals[m], options)
        np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("t", [0, 20])
def test_the_arm_has_the_largest_mean_of_both_bounds(t):
    rng, options, features = setting(1, mix_until=40, nu_a=2.0, nu_b=3.0)
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
