"""`log EI` of an agent with rows of others is that of one joint Gaussian, conditioned on all observations."""

import numpy as np
import pytest

from fbo_flower.numerics.acquisition.expected_improvement import LogImprovement, expected_improvement
from fbo_flower.numerics.acquisition.guided import GuidedImprovement, Shared
from fbo_flower.numerics.optim.functions import shape_of, stack_of
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.gp import condition
from fbo_flower.numerics.surrogates.trend import KERNEL, LEAST_NOISE, SharedRows

BEST, NUM_ROWS = 0.4, 7
H = gp.Hyperparameters("matern52", np.array([0.3, 0.5, 0.8]), 1.4, 1e-3)
SCALES = np.array([0.6, 0.4, 0.9])  # of the rows' kernel
Z = np.random.default_rng(9).random((50, 3))
CASES = [(0.0, 0.3, 9), (0.6, 0.0, 9), (0.6, 0.3, 0), (0.95, 20.0, 1)]


def observations(seed, n):
    """Return points `(n, 3)` and values `(n,)`."""
    rng = np.random.default_rng([seed, n])
    return rng.random((n, 3)), rng.standard_normal(n)


def rows_of(seed, m=NUM_ROWS):
    rng = np.random.default_rng([seed, 1000 + m])
    return SharedRows(rng.random((m, 3)), rng.standard_normal(m), SCALES * (1.0 + 0.1 * seed))


def function_of(x, y, shared, h=H):
    """Return the function as an agent makes it."""
    if shared is None:
        return GuidedImprovement(condition(x[None], y[None], [h])[0], BEST)
    mean, covariance = shared.prior(x)
    return GuidedImprovement(condition(x[None], (y - mean)[None], [h], covariance[None])[0], BEST, shared)


def alone(seed, n=9):
    return function_of(*observations(seed, n), None)


def guided(seed, n=9, share=0.6, tau=0.3, m=NUM_ROWS):
    return function_of(*observations(seed, n), Shared(rows_of(seed, m), share, tau))


@pytest.mark.parametrize(("share", "tau", "n"), CASES)
def test_values_means_and_gradients_are_those_of_the_joint_gaussian_of_rows_and_own_values(share, tau, n):
    (x, y), rows, function = observations(1, n), rows_of(1), guided(1, n, share, tau)
    places, seen = np.concatenate([rows.x, x, Z]), NUM_ROWS + n
    joint = share * gp.kernel(KERNEL, places, places, rows.lengthscales)  # g, which all observe
    own = H.outputscale * gp.kernel(H.kernel, places[NUM_ROWS:], places[NUM_ROWS:], H.lengthscales)
    joint[NUM_ROWS:, NUM_ROWS:] += own + tau  # h, which the agent's values and the function have
    noise = np.concatenate([np.full(NUM_ROWS, 1.0 - share + LEAST_NOISE), np.full(n, H.noise_variance)])
    solved = np.linalg.solve(joint[:seen, :seen] + np.diag(noise), joint[:seen, seen:])
    mean = solved.T @ np.concatenate([rows.z, y])
    variance = joint.diagonal()[seen:] - (joint[:seen, seen:] * solved).sum(axis=0)
    np.testing.assert_allclose(function.mean(Z), mean, rtol=1e-9, atol=1e-9)
    expected = np.log(expected_improvement(mean, variance, BEST))
    np.testing.assert_allclose(function(Z), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(stack_of([function]).scores(Z[None])[0], function(Z))
    values, gradients = function.value_and_gradient(Z)
    np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-7)

    moves = 1e-6 * np.concatenate([np.eye(3), -np.eye(3)])
    moved = function((Z[:, None, :] + moves).reshape(-1, 3)).reshape(len(Z), 6)
    numeric = (moved[:, :3] - moved[:, 3:]) / 2e-6
    np.testing.assert_allclose(gradients, numeric, rtol=1e-5, atol=1e-6 * max(np.abs(numeric).max(), 1.0))

    if n:  # at own points the mean is that of the residual process and the trend
        assert function.shared is not None
        trend = function.process.means + function.shared.prior(x)[0]
        np.testing.assert_allclose(function.mean(x), trend, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [0, 9])
def test_alone_it_is_log_expected_improvement(n):
    function, posterior = alone(1, n), gp.posterior(*observations(1, n), H)
    expected, slopes = LogImprovement(posterior, BEST).value_and_gradient(Z)
    values, gradients = function.value_and_gradient(Z)
    for found in (function(Z), values):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(gradients, slopes, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(function.mean(Z), posterior.mean(Z), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("share", [None, 0.0, 0.6])
def test_there_is_no_gradient_of_the_variance_where_it_is_cut_off(share):
    exact = gp.Hyperparameters("matern52", np.full(3, 30.0), 1.0, 1e-6)
    x = np.random.default_rng(4).random((12, 3))
    shared = None if share is None else Shared(SharedRows(x, np.zeros(12), np.full(3, 30.0)), share, 0.1)
    for part in function_of(x, np.zeros(12), shared, exact).value_and_gradient(x):
        assert np.isfinite(part).all()


KINDS = {
    "alone": alone,
    "guided": lambda seed: guided(seed, share=0.1 + 0.1 * seed, tau=0.2 * seed),
    "guided without own values": lambda seed: guided(seed, 0, share=0.1 + 0.1 * seed),
}


@pytest.mark.parametrize("kind", KINDS)
def test_functions_in_a_stack_have_bit_for_bit_the_values_that_they_have_alone(kind):
    functions = [KINDS[kind](seed) for seed in range(6)]
    z = np.random.default_rng(8).random((6, 20, 3))
    stack = stack_of(functions)
    alone = [function.value_and_gradient(points) for function, points in zip(functions, z, strict=True)]
    for found, expected in zip(stack.value_and_gradient(z), zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(found, expected)
    for name in ("values", "scores"):
        found = getattr(stack, name)(z)
        np.testing.assert_array_equal(found, [f(points) for f, points in zip(functions, z, strict=True)])
        np.testing.assert_array_equal(getattr(stack.take(np.array([4])), name)(z[4:5]), found[4:5])


def test_functions_of_another_form_are_not_stacked():
    function = guided(5)
    assert shape_of(function) == shape_of(guided(6, share=0.0, tau=20.0))
    assert shape_of(alone(5)) == shape_of(alone(6))
    smooth = gp.Hyperparameters("rbf", H.lengthscales, H.outputscale, H.noise_variance)
    others = [alone(5), guided(5, 8), guided(5, m=NUM_ROWS + 1),
              function_of(*observations(5, 9), function.shared, smooth)]  # fmt: skip
    assert not [other for other in others if shape_of(function) == shape_of(other)]
