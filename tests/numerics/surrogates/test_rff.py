import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates import kernels, rff

NOISE = 0.05
DRAWS = pytest.mark.parametrize(
    "draw", [rff.sample_weights, rff.sample_weights_primal, rff.sample_weights_dual]
)


def rng(seed=0):
    return np.random.default_rng(seed)


def regression(n, num_features=6, seed=0):
    features = rff.draw_features(num_features, 0.4, 2, rng(seed))
    x = rng(seed + 1).random((n, 2))
    return features(x), np.sin(5.0 * x[:, 0]) + 0.1 * rng(seed + 2).standard_normal(n)


def mahalanobis_p_value(draws, mean, covariance):
    """Kolmogorov and Smirnov's test that squared distances of the draws are chi-squared."""
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    return stats.kstest((whitened**2).sum(axis=0), stats.chi2(len(mean)).cdf).pvalue


def test_rows_of_the_features_have_norm_one():
    features = rff.draw_features(20, np.array([0.1, 1.0]), 2, rng())
    np.testing.assert_allclose(np.linalg.norm(features(rng(1).random((9, 2))), axis=1), 1.0)


@settings(deadline=None)
@given(st.floats(-1e4, 1e4), st.integers(1, 40))
def test_cosines_agree_with_numpys(offset, n):
    features = rff.RandomFeatures(rng().standard_normal((500, 2)) * 10, offset + rng().random(500))
    x = rng(n).random((n, 2))
    np.testing.assert_allclose(features.cosines(x), np.cos(features.angles(x)), atol=1e-11)
    small = rff.RandomFeatures(features.frequencies, rng().uniform(0, 2 * np.pi, 500))
    np.testing.assert_allclose(small.cosines(x), np.cos(small.angles(x)), atol=2e-14)


@pytest.mark.parametrize("name", kernels.KERNELS)
def test_the_error_of_the_kernel_shrinks_with_the_square_root_of_the_number_of_features(name):
    x, lengthscales = rng(5).random((15, 2)), np.array([0.3, 0.6])
    exact = kernels.kernel(name, x, x, lengthscales)
    errors = []
    for num_features in (100, 400, 1600, 6400):
        squares = []
        for seed in range(8):
            phi = rff.draw_features(num_features, lengthscales, 2, rng(seed), name).cosines(x)
            squares.append(np.mean((phi @ phi.T * (2 / num_features) - exact) ** 2))
        errors.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log([100, 400, 1600, 6400]), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4
    assert errors[-1] < 0.015


def test_the_spectrum_of_one_kernel_does_not_fit_the_other():
    x = rng(5).random((15, 2))
    phi = rff.draw_features(6400, 0.3, 2, rng(), "matern52").cosines(x)
    error = np.sqrt(np.mean((phi @ phi.T * (2 / 6400) - kernels.kernel("rbf", x, x, np.full(2, 0.3))) ** 2))
    assert error > 0.03


def test_the_gradient_goes_through_the_normalisation():
    features = rff.draw_features(7, 0.3, 3, rng())
    weights, x = rng(1).standard_normal(7), rng(2).random((4, 3))
    values, gradients = features.value_and_gradient(x, weights)
    np.testing.assert_allclose(values, features(x) @ weights)
    for row, gradient in zip(x, gradients, strict=True):
        numerical = approx_fprime(row, lambda v: features(v[None])[0] @ weights)
        np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [0, 4, 6, 30])
def test_weight_posterior_is_bayesian_linear_regression(n):
    phi, y = regression(n)
    nu, inverse = rff.weight_posterior(phi, y, NOISE)
    precision = np.eye(6) + phi.T @ phi / NOISE  # of omega ~ N(0, I) given y
    np.testing.assert_allclose(NOISE * inverse, np.linalg.inv(precision), atol=1e-12)
    np.testing.assert_allclose(nu, np.linalg.solve(precision, phi.T @ y / NOISE), atol=1e-10)


@DRAWS
@pytest.mark.parametrize("n", [0, 4, 30])
def test_drawn_weights_have_the_law_of_the_posterior(draw, n):
    phi, y = regression(n)
    nu, inverse = rff.weight_posterior(phi, y, NOISE)
    generator = rng(3)
    draws = np.array([draw(phi, y, NOISE, generator) for _ in range(3000)])
    covariance = NOISE * inverse

    assert mahalanobis_p_value(draws, nu, covariance) > 0.001
    deviations = np.sqrt(np.diag(covariance))
    assert np.abs((draws.mean(axis=0) - nu) / deviations).max() < 4.5 / np.sqrt(3000)
    whitening = np.linalg.inv(np.linalg.cholesky(covariance))
    np.testing.assert_allclose(whitening @ np.cov(draws.T) @ whitening.T, np.eye(6), atol=0.12)


@DRAWS
@pytest.mark.parametrize("n", [4, 30])
def test_the_same_test_refuses_wrong_noise_and_wrong_pairs(draw, n):
    phi, y = regression(n)
    nu, inverse = rff.weight_posterior(phi, y, NOISE)
    generator = rng(3)
    louder = np.array([draw(phi, y, 1.5 * NOISE, generator) for _ in range(3000)])
    assert mahalanobis_p_value(louder, nu, NOISE * inverse) < 1e-6
    mispaired = np.array([draw(phi, np.roll(y, 1), NOISE, generator) for _ in range(3000)])
    assert mahalanobis_p_value(mispaired, nu, NOISE * inverse) < 1e-6


@pytest.mark.parametrize("n", [0, 3, 6, 25])
def test_log_marginal_likelihood_is_the_normal_density(n):
    phi, y = regression(n)
    expected = 0.0
    if n:
        expected = stats.multivariate_normal(cov=phi @ phi.T + NOISE * np.eye(n)).logpdf(y)
    assert rff.log_marginal_likelihood(phi, y, NOISE) == pytest.approx(expected)


def test_the_same_generator_gives_the_same_features():
    first, again = (rff.draw_features(5, 0.5, 2, rng(9), "matern52") for _ in range(2))
    np.testing.assert_array_equal(first.frequencies, again.frequencies)
    np.testing.assert_array_equal(first.phases, again.phases)
    assert first.num_features == 5


@pytest.mark.parametrize(
    ("frequencies", "phases"),
    [
        (np.zeros((3, 2)), np.zeros(2)),
        (np.zeros(3), np.zeros(3)),
        (np.zeros((0, 2)), np.zeros(0)),
        (np.full((3, 2), np.nan), np.zeros(3)),
        (np.zeros((3, 2), dtype=np.float32), np.zeros(3)),
    ],
)
def test_malformed_features_are_refused(frequencies, phases):
    with pytest.raises(ConfigError, match="expected"):
        rff.RandomFeatures(frequencies, phases)


@pytest.mark.parametrize("lengthscales", [0.0, -1.0, np.nan, np.ones(3)])
def test_malformed_lengthscales_are_refused(lengthscales):
    with pytest.raises(ConfigError, match="lengthscales"):
        rff.draw_features(5, lengthscales, 2, rng())


def test_points_of_another_dimension_are_refused():
    with pytest.raises(ConfigError, match="points"):
        rff.draw_features(5, 0.5, 2, rng())(np.zeros((4, 3)))


def test_wrong_numbers_of_observations_and_noise_are_refused():
    phi, y = regression(4)
    with pytest.raises(ConfigError, match="regression"):
        rff.sample_weights(phi, y[:3], NOISE, rng())
    with pytest.raises(ConfigError, match="noise_variance"):
        rff.sample_weights(phi, y, 0.0, rng())
