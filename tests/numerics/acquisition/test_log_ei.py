import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fbo_flower.numerics.acquisition.expected_improvement import expected_improvement
from fbo_flower.numerics.acquisition.log_ei import LogImprovement
from fbo_flower.numerics.acquisition.normal import log_excess_and_slopes
from fbo_flower.numerics.surrogates import gp

RNG = np.random.default_rng(0)
X, Y = RNG.random((8, 3)), RNG.standard_normal(8)
HYPERPARAMETERS = gp.Hyperparameters("matern52", np.array([0.3, 0.5, 0.9]), 1.3, 1e-3)


def acquisition(best=0.7):
    return LogImprovement(gp.posterior(X, Y, HYPERPARAMETERS), best)


def test_it_is_the_logarithm_of_expected_improvement():
    z = RNG.random((40, 3))
    mean, variance = gp.posterior(X, Y, HYPERPARAMETERS).predict(z)
    exact = np.log(expected_improvement(mean, variance, 0.7))
    np.testing.assert_allclose(acquisition()(z), exact, atol=1e-8)
    np.testing.assert_allclose(acquisition().value_and_gradient(z)[0], exact, atol=1e-8)


def test_it_is_the_logarithm_of_the_integral_of_the_improvement():
    z = RNG.random((5, 3))
    mean, variance = gp.posterior(X, Y, HYPERPARAMETERS).predict(z)
    for value, mu, sigma in zip(acquisition()(z), mean, np.sqrt(variance), strict=True):
        low, high = 0.7, max(0.7, mu) + 12 * sigma
        integral, _ = quad(lambda f, mu=mu, s=sigma: (f - 0.7) * norm.pdf(f, mu, s), low, high, epsrel=1e-12)
        assert value == pytest.approx(np.log(integral), abs=1e-8)


@pytest.mark.parametrize("best", [0.7, -3.0, 40.0, 1e4], ids=["near", "below", "far", "very far"])
def test_gradient_is_that_of_central_differences_also_where_the_improvement_underflows(best):
    function, step = acquisition(best), 1e-6
    for z in RNG.random((6, 3)):
        value, gradient = function.value_and_gradient(z[None, :])
        np.testing.assert_allclose(value, function(z[None, :]), rtol=1e-12)
        moved = z + step * np.concatenate([np.eye(3), -np.eye(3)])
        values = function(moved)
        numeric = (values[:3] - values[3:]) / (2 * step)
        np.testing.assert_allclose(gradient[0], numeric, rtol=1e-4, atol=1e-4 * abs(numeric).max())


def test_values_are_finite_at_the_observed_points():
    value, gradient = acquisition().value_and_gradient(X)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


def test_without_observations_the_prior_is_improved():
    none = gp.posterior(X[:0], Y[:0], HYPERPARAMETERS)
    value, gradient = LogImprovement(none, 0.0).value_and_gradient(X)
    np.testing.assert_allclose(value, np.log(np.sqrt(1.3) * norm.pdf(0.0)))
    np.testing.assert_array_equal(gradient, 0.0)


def test_slopes_of_log_h_are_the_ratios_and_keep_their_asymptotes_in_the_tail():
    z = np.linspace(-5, 8, 50)
    h = norm.pdf(z) + z * norm.cdf(z)
    _, density, probability = log_excess_and_slopes(z)
    np.testing.assert_allclose(density, norm.pdf(z) / h, rtol=1e-6)
    np.testing.assert_allclose(probability, norm.cdf(z) / h, rtol=1e-6)
    far = np.array([-1e4, -1e3, -100.0])
    _, density, probability = log_excess_and_slopes(far)
    np.testing.assert_allclose(density, far**2 + 3, rtol=1e-3)
    np.testing.assert_allclose(probability, -far, rtol=1e-3)
