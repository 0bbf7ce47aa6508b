import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fbo_flower.numerics.acquisition.expected_improvement import expected_improvement
from fbo_flower.numerics.acquisition.log_ei import LogImprovement, moments
from fbo_flower.numerics.surrogates import gp

RNG = np.random.default_rng(0)
X, Y, Z = RNG.random((8, 3)), RNG.standard_normal(8), RNG.random((12, 3))
PROCESSES = {
    kernel: gp.posterior(X, Y, gp.Hyperparameters(kernel, np.array([0.3, 0.5, 0.9]), 1.3, 1e-3))
    for kernel in ("matern52", "rbf")
}
PROCESS = PROCESSES["matern52"]


def slopes(function, z, step=1e-6):
    columns = [(function(z + shift) - function(z - shift)) / (2 * step) for shift in step * np.eye(3)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("kernel", PROCESSES)
def test_moments_are_the_prediction_and_their_gradients_its_slopes(kernel):
    process = PROCESSES[kernel]
    mean, stddev, mean_slope, stddev_slope = moments(process, Z)
    expected_mean, variance = process.predict(Z)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-10)
    np.testing.assert_allclose(stddev, np.sqrt(variance), atol=1e-8)
    np.testing.assert_allclose(mean_slope, slopes(lambda z: process.predict(z)[0], Z), atol=1e-5)
    np.testing.assert_allclose(stddev_slope, slopes(lambda z: np.sqrt(process.predict(z)[1]), Z), atol=1e-5)


def test_it_is_the_logarithm_of_expected_improvement():
    mean, variance = PROCESS.predict(Z)
    exact, function = np.log(expected_improvement(mean, variance, 0.7)), LogImprovement(PROCESS, 0.7)
    np.testing.assert_allclose(function(Z), exact, atol=1e-8)
    np.testing.assert_allclose(function.value_and_gradient(Z)[0], exact, atol=1e-8)
    for value, mu, sigma in zip(exact[:3], mean, np.sqrt(variance), strict=False):
        high = max(0.7, mu) + 12 * sigma
        integral, _ = quad(lambda f, mu=mu, s=sigma: (f - 0.7) * norm.pdf(f, mu, s), 0.7, high, epsrel=1e-12)
        assert value == pytest.approx(np.log(integral), abs=1e-8)


@pytest.mark.parametrize("best", [0.7, -3.0, 40.0, 1e4], ids=["near", "below", "far", "very far"])
def test_gradient_is_that_of_central_differences_also_where_the_improvement_underflows(best):
    function = LogImprovement(PROCESS, best)
    value, gradient = function.value_and_gradient(Z)
    np.testing.assert_allclose(value, function(Z), rtol=1e-12)
    numeric = slopes(function, Z)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4 * abs(numeric).max())


def test_values_are_finite_at_the_observed_points_and_without_any_the_prior_is_improved():
    for part in LogImprovement(PROCESS, 0.7).value_and_gradient(X):
        assert np.isfinite(part).all()
    none = gp.posterior(X[:0], Y[:0], PROCESS.hyperparameters)
    value, gradient = LogImprovement(none, 0.0).value_and_gradient(X)
    np.testing.assert_allclose(value, np.log(np.sqrt(1.3) * norm.pdf(0.0)))
    np.testing.assert_array_equal(gradient, 0.0)
