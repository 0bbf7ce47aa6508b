"""`log EI` of an agent with rows of others is that of one joint Gaussian, conditioned on all observations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fbo_flower.numerics.acquisition.expected_improvement import expected_improvement
from fbo_flower.numerics.acquisition.guided import GuidedImprovement, Shared
from fbo_flower.numerics.acquisition.log_ei import LogImprovement
from fbo_flower.numerics.optim.stacks import shape_of, stack_of
from fbo_flower.numerics.surrogates import gp, kernels
from fbo_flower.numerics.surrogates.gp_many import condition
from fbo_flower.numerics.surrogates.trend import KERNEL, LEAST_NOISE, Rows

BEST, NUM_ROWS = 0.4, 7
HYPERPARAMETERS = gp.Hyperparameters("matern52", np.array([0.3, 0.5, 0.8]), 1.4, 1e-3)
SCALES = np.array([0.6, 0.4, 0.9])  # of the rows' kernel
Z = np.random.default_rng(9).random((50, 3))
SHARES, TAUS, NUMBERS = (0.0, 0.15, 0.6, 0.95), (0.0, 0.3, 20.0), (0, 1, 9)
CASES = list(itertools.product(SHARES, TAUS, NUMBERS))


def observations(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points `(n, 3)` and values `(n,)`."""
    rng = np.random.default_rng([seed, n])
    return rng.random((n, 3)), rng.standard_normal(n)


def rows_of(seed: int, m: int = NUM_ROWS) -> Rows:
    rng = np.random.default_rng([seed, 1000 + m])
    return Rows(rng.random((m, 3)), rng.standard_normal(m), SCALES * (1.0 + 0.1 * seed))


def alone(seed: int, n: int = 9) -> GuidedImprovement:
    x, y = observations(seed, n)
    return GuidedImprovement(condition(x[None], y[None], [HYPERPARAMETERS])[0], BEST)


def guided(
    seed: int, n: int = 9, share: float = 0.6, tau: float = 0.3, m: int = NUM_ROWS
) -> GuidedImprovement:
    """Return the function as an agent makes it."""
    x, y = observations(seed, n)
    shared = Shared(rows_of(seed, m), share, tau)
    mean, covariance = shared.prior(x)
    process = condition(x[None], (y - mean)[None], [HYPERPARAMETERS], covariance[None])[0]
    return GuidedImprovement(process, BEST, shared)


def conditioned(
    seed: int, n: int, share: float, tau: float, z: np.ndarray = Z
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance at `z (k, 3)` of `g + h`, from the covariance of all `M + n + k` values."""
    x, y = observations(seed, n)
    rows, h = rows_of(seed), HYPERPARAMETERS
    places = np.concatenate([rows.x, x, z])
    num_rows, seen = len(rows.x), len(rows.x) + n
    joint = share * kernels.kernel(KERNEL, places, places, rows.lengthscales)  # g, which all observe
    own = h.outputscale * kernels.kernel(h.kernel, places[num_rows:], places[num_rows:], h.lengthscales)
    joint[num_rows:, num_rows:] += own + tau  # h, which the agent's values and the function have
    noise = np.concatenate([np.full(num_rows, 1.0 - share + LEAST_NOISE), np.full(n, h.noise_variance)])
    observed, cross = joint[:seen, :seen] + np.diag(noise), joint[:seen, seen:]
    solved = np.linalg.solve(observed, cross)
    mean = solved.T @ np.concatenate([rows.z, y])
    return mean, joint.diagonal()[seen:] - (cross * solved).sum(axis=0)


# -- with the rows of others ------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "tau", "n"), CASES)
def test_values_and_means_are_those_of_the_joint_gaussian_of_rows_and_own_values(share, tau, n) -> None:
    function, (mean, variance) = guided(1, n, share, tau), conditioned(1, n, share, tau)
    np.testing.assert_allclose(function.mean(Z), mean, rtol=1e-9, atol=1e-9)
    expected = np.log(expected_improvement(mean, variance, BEST))
    np.testing.assert_allclose(function(Z), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(stack_of([function]).scores(Z[None])[0], function(Z))
    np.testing.assert_allclose(function.value_and_gradient(Z)[0], expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("share", "tau", "n"), CASES)
def test_gradients_are_those_of_finite_differences(share, tau, n) -> None:
    function, step = guided(2, n, share, tau), 1e-6
    moves = step * np.concatenate([np.eye(3), -np.eye(3)])
    values = function((Z[:, None, :] + moves).reshape(-1, 3)).reshape(len(Z), 6)
    numeric = (values[:, :3] - values[:, 3:]) / (2 * step)
    gradients = function.value_and_gradient(Z)[1]
    np.testing.assert_allclose(gradients, numeric, rtol=1e-5, atol=1e-6 * max(np.abs(numeric).max(), 1.0))


@pytest.mark.parametrize("n", [1, 9])
def test_means_at_own_points_are_those_of_the_residual_process_and_the_trend(n) -> None:
    function, (x, _) = guided(3, n), observations(3, n)
    assert function.shared is not None
    trend, _ = function.shared.prior(x)
    expected = conditioned(3, n, 0.6, 0.3, x)[0]
    np.testing.assert_allclose(function.process.means + trend, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(function.mean(x), expected, rtol=1e-9, atol=1e-9)


def test_rows_that_share_nothing_change_nothing() -> None:
    few, other = guided(4, share=0.0), guided(4, share=0.0)
    assert other.shared is not None
    other = GuidedImprovement(other.process, BEST, Shared(rows_of(5), 0.0, 0.3))
    np.testing.assert_allclose(few(Z), other(Z), rtol=1e-10, atol=1e-10)
    changed = GuidedImprovement(guided(4).process, BEST, Shared(rows_of(5), 0.6, 0.3))
    assert np.abs(guided(4)(Z) - changed(Z)).max() > 0.01


# -- alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", NUMBERS)
def test_alone_it_is_log_expected_improvement(n) -> None:
    function, (x, y) = alone(1, n), observations(1, n)
    posterior = gp.posterior(x, y, HYPERPARAMETERS)
    plain = LogImprovement(posterior, BEST)
    expected, slopes = plain.value_and_gradient(Z)
    np.testing.assert_allclose(function(Z), plain(Z), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(stack_of([function]).scores(Z[None])[0], plain(Z), rtol=1e-8, atol=1e-8)
    values, gradients = function.value_and_gradient(Z)
    np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(gradients, slopes, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(function.mean(Z), posterior.mean(Z), rtol=1e-9, atol=1e-9)


# -- where the variance is cut off ------------------------------------------------------------------------


@pytest.mark.parametrize("share", [None, 0.0, 0.6])
def test_there_is_no_gradient_of_the_variance_where_it_is_cut_off(share) -> None:
    exact = gp.Hyperparameters("matern52", np.full(3, 30.0), 1.0, 1e-6)
    x, y = np.random.default_rng(4).random((12, 3)), np.zeros(12)
    shared, mean, covariance = None, np.zeros(12), None
    if share is not None:
        shared = Shared(Rows(x, np.zeros(12), np.full(3, 30.0)), share, 0.1)
        mean, covariance = shared.prior(x)
    added = None if covariance is None else covariance[None]
    function = GuidedImprovement(condition(x[None], (y - mean)[None], [exact], added)[0], 0.5, shared)
    values, gradients = function.value_and_gradient(x)
    assert np.isfinite(values).all()
    assert np.isfinite(gradients).all()


# -- side by side -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["alone", "guided", "guided without own values"])
def test_functions_in_a_stack_have_bit_for_bit_the_values_that_they_have_alone(kind: str) -> None:
    makers = {
        "alone": alone,
        "guided": lambda seed: guided(seed, share=0.1 + 0.1 * seed, tau=0.2 * seed),
        "guided without own values": lambda seed: guided(seed, 0, share=0.1 + 0.1 * seed),
    }
    functions = [makers[kind](seed) for seed in range(6)]
    z = np.random.default_rng(8).random((6, 20, 3))
    stack, rows = stack_of(functions), np.array([4, 1])
    values, gradients = stack.value_and_gradient(z)
    taken = stack.take(rows)
    np.testing.assert_array_equal(taken.values(z[rows]), stack.values(z)[rows])
    np.testing.assert_array_equal(taken.value_and_gradient(z[rows])[1], gradients[rows])
    for place, function in enumerate(functions):
        np.testing.assert_array_equal(stack.values(z)[place], function(z[place]))
        np.testing.assert_array_equal(stack.scores(z)[place], function(z[place]))
        one, slope = function.value_and_gradient(z[place])
        np.testing.assert_array_equal(values[place], one)
        np.testing.assert_array_equal(gradients[place], slope)


def test_functions_of_another_form_are_not_stacked() -> None:
    function = guided(5)
    assert shape_of(function) == shape_of(guided(6, share=0.0, tau=20.0))
    assert shape_of(alone(5)) == shape_of(alone(6))
    h = HYPERPARAMETERS
    smooth = gp.Hyperparameters("rbf", h.lengthscales, h.outputscale, h.noise_variance)
    x, y = observations(5, 9)
    others = [
        alone(5), guided(5, 8), guided(5, m=NUM_ROWS + 1),
        GuidedImprovement(condition(x[None], y[None], [smooth])[0], BEST, function.shared),
    ]  # fmt: skip
    assert not [other for other in others if shape_of(function) == shape_of(other)]
