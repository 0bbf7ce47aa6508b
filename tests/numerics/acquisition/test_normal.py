import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fbo_flower.numerics.acquisition.normal import (
    centred_draws,
    excess,
    excess_ratios,
    log_cdf,
    log_excess,
    mills,
)


def log_excess_by_integration(z):
    """`E max(Z + z, 0) = phi(z) int_0^inf u exp(u z - u^2 / 2) du`, scaled to a width of 1 / |z|."""
    width = 1 / max(abs(z), 1.0)
    integral, _ = quad(
        lambda t: t * math.exp(t * width * z - (t * width) ** 2 / 2), 0, 60, epsabs=0, epsrel=1e-12
    )
    return norm.logpdf(z) + math.log(integral * width**2)


@pytest.mark.parametrize("z", [-1e4, -300.0, -40.01, -40.0, -39.99, -38.0, -20.0, -3.0, -1.0, 0.0, 0.5, 2.0])
def test_log_excess_is_the_logarithm_of_the_integral_deep_into_the_tail(z):
    exact = log_excess_by_integration(z)
    assert float(log_excess(np.array(z))) == pytest.approx(exact, rel=1e-12, abs=1e-11)


def test_excess_is_the_textbook_formula_and_precise_in_the_tail_where_that_is_noise():
    z = np.linspace(-3, 40, 200)
    np.testing.assert_allclose(excess(z), norm.pdf(z) + z * norm.cdf(z), rtol=1e-11)
    z = np.array([-10.0, -20.0, -37.0])
    exact = [math.exp(log_excess_by_integration(value)) for value in z]
    np.testing.assert_allclose(excess(z), exact, rtol=1e-10)
    assert np.abs((norm.pdf(z) + z * norm.cdf(z)) / exact - 1).max() > 1e-10


def test_extreme_arguments_give_limits_not_errors():
    far = excess(np.array([-np.inf, -1e300, 0.0]))
    np.testing.assert_array_equal(far, [0, 0, 1 / math.sqrt(2 * math.pi)])
    assert log_excess(np.array(-np.inf)) == -np.inf
    assert log_excess(np.array(-1e150)) == pytest.approx(-0.5e300)
    assert excess(np.array(1e300)) == 1e300
    assert mills(np.array(-np.inf)) == 0
    assert log_cdf(np.array(-1e10)) == pytest.approx(-0.5e20)


def test_slopes_are_the_ratios_and_keep_their_asymptotes_in_the_tail():
    z = np.concatenate([np.linspace(-5, 8, 50), [0.0, 36.0]])
    h = norm.pdf(z) + z * norm.cdf(z)
    value, density, probability = excess_ratios(z)
    np.testing.assert_allclose(value, np.log(h), rtol=1e-6)
    np.testing.assert_allclose(density, norm.pdf(z) / h, rtol=1e-6)
    np.testing.assert_allclose(probability, norm.cdf(z) / h, rtol=1e-6)
    # by logarithms: exact but for their cancellation
    z = np.concatenate([np.linspace(-60.0, 60.0, 997), [-40.0, 1e6]])
    for found, log_part in zip(excess_ratios(z)[1:], (norm.logpdf(z), log_cdf(z)), strict=True):
        np.testing.assert_allclose(found, np.exp(log_part - log_excess(z)), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(excess_ratios(z)[0], log_excess(z), rtol=2e-12, atol=1e-12)
    # far to the left phi / h = z^2 + 3 - 6 / z^2 + ..., where a difference of logarithms loses digits
    assert excess_ratios(np.array([-1e3]))[1][0] == pytest.approx(1e6 + 3 - 6e-6, rel=1e-14)
    assert excess_ratios(np.array([-1e3]))[2][0] == pytest.approx(1e3 + 2e-3, rel=1e-8)


def test_draws_have_mean_zero_and_the_moments_of_the_standard_normal():
    draws = centred_draws(256, 4, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(draws.T @ draws / 256, np.eye(4), atol=0.05)
    assert np.abs((draws**3).mean(axis=0)).max() < 0.2
    many = centred_draws(64, 40, np.random.default_rng(0))  # above the dimensions of the sequence
    assert many.shape == (64, 40)
    assert np.isfinite(many).all()
