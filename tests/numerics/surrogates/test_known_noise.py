from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates import gp, kernels, known_noise

H = gp.Hyperparameters("matern52", np.array([0.4, 0.7]), 1.3, 0.02)


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((7, 2)), rng.standard_normal(7), rng.random(7) * 0.5


def covariance(x: np.ndarray, variances: np.ndarray) -> np.ndarray:
    k = H.outputscale * kernels.kernel(H.kernel, x, x, H.lengthscales)
    return k + np.diag(H.noise_variance + variances)


def likelihood(
    x: np.ndarray, y: np.ndarray, variances: np.ndarray, theta: np.ndarray
) -> tuple[float, np.ndarray]:
    values, gradients = gp.log_marginal_likelihoods(
        gp.pair_differences(x[None]), y[None], H.kernel, theta[None], np.diag(variances)[None]
    )
    return values[0], gradients[0]


def test_the_likelihood_is_that_of_the_normal_density() -> None:
    x, y, variances = data()
    value, _ = likelihood(x, y, variances, H.to_array())
    assert value == pytest.approx(multivariate_normal(np.zeros(7), covariance(x, variances)).logpdf(y))


def test_its_gradient_is_that_of_finite_differences() -> None:
    given, theta, step = data(), H.to_array(), 1e-6
    _, gradient = likelihood(*given, theta)
    for axis, unit in enumerate(np.eye(4) * step):
        numeric = (likelihood(*given, theta + unit)[0] - likelihood(*given, theta - unit)[0]) / (2 * step)
        assert gradient[axis] == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_without_known_variances_it_is_the_ordinary_process() -> None:
    x, y, _ = data()
    fitted = known_noise.fit(x, y, np.zeros(7), "matern52")
    expected = gp.fit(x, y, "matern52", np.random.default_rng(0)).hyperparameters
    np.testing.assert_allclose(fitted.to_array(), expected.to_array(), atol=1e-2)


def test_a_fit_is_a_mode_of_likelihood_and_prior() -> None:
    x, y, variances = data()
    theta = known_noise.fit(x, y, variances, H.kernel).to_array()
    np.testing.assert_allclose(likelihood(x, y, variances, theta)[1] + gp.log_prior(theta)[1], 0.0, atol=0.02)


def test_without_observations_the_process_is_the_prior() -> None:
    nothing = np.empty((0, 2)), np.empty(0), np.empty(0)
    np.testing.assert_allclose(known_noise.fit(*nothing, H.kernel).to_array(), gp.prior(2)[0])
    assert known_noise.condition(*nothing, H).inverse.shape == (0, 0)


def test_the_posterior_is_that_of_the_conditional_normal_law() -> None:
    x, y, variances = data()
    process = known_noise.condition(x, y, variances, H)
    inverse = np.linalg.inv(covariance(x, variances))
    np.testing.assert_allclose(process.inverse, inverse, rtol=1e-8, atol=1e-9)
    k = H.outputscale * kernels.kernel(H.kernel, x, x, H.lengthscales)
    np.testing.assert_allclose(process.means, k @ inverse @ y, rtol=1e-8, atol=1e-9)
    z = np.random.default_rng(1).random((3, 2))
    cross = H.outputscale * kernels.kernel(H.kernel, z, x, H.lengthscales)
    np.testing.assert_allclose(
        known_noise.cross_covariance(z, process) @ process.alpha, cross @ inverse @ y, rtol=1e-8
    )


def test_an_observation_with_a_large_variance_counts_little() -> None:
    x = np.array([[0.5, 0.5], [0.5, 0.5]])
    means = known_noise.condition(x, np.array([1.0, -1.0]), np.array([0.0, 100.0]), H).means
    assert means[0] > 0.9


@pytest.mark.parametrize("variances", [np.zeros(6), np.full(7, -1.0), np.full(7, np.nan)])
def test_wrong_variances_are_refused(variances: np.ndarray) -> None:
    x, y, _ = data()
    with pytest.raises(ConfigError, match="variances"):
        known_noise.condition(x, y, variances, H)
