from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates import gp, kernels, known_noise

H = gp.Hyperparameters("matern52", np.array([0.4, 0.7]), 1.3, 0.02)
RNG = np.random.default_rng(0)
X, Y, VARIANCES = RNG.random((7, 2)), RNG.standard_normal(7), RNG.random(7) * 0.5
K = H.outputscale * kernels.kernel(H.kernel, X, X, H.lengthscales)
COVARIANCE = K + np.diag(H.noise_variance + VARIANCES)


def likelihood(theta: np.ndarray) -> tuple[float, np.ndarray]:
    values, gradients = gp.log_marginal_likelihoods(
        gp.pair_differences(X[None]), Y[None], H.kernel, theta[None], np.diag(VARIANCES)[None]
    )
    return values[0], gradients[0]


def test_the_likelihood_is_that_of_the_normal_density_and_its_gradient_that_of_finite_differences() -> None:
    value, gradient = likelihood(H.to_array())
    assert value == pytest.approx(multivariate_normal(np.zeros(7), COVARIANCE).logpdf(Y))
    numeric = approx_fprime(H.to_array(), lambda theta: likelihood(theta)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)


def test_a_fit_is_a_mode_and_without_known_variances_that_of_the_ordinary_process() -> None:
    theta = known_noise.fit(X, Y, VARIANCES, H.kernel).to_array()
    np.testing.assert_allclose(likelihood(theta)[1] + gp.log_prior(theta)[1], 0.0, atol=0.02)
    plain = known_noise.fit(X, Y, np.zeros(7), "matern52")
    expected = gp.fit(X, Y, "matern52", np.random.default_rng(0)).hyperparameters
    np.testing.assert_allclose(plain.to_array(), expected.to_array(), atol=1e-2)


def test_without_observations_the_process_is_the_prior() -> None:
    nothing = np.empty((0, 2)), np.empty(0), np.empty(0)
    np.testing.assert_allclose(known_noise.fit(*nothing, H.kernel).to_array(), gp.prior(2)[0])
    assert known_noise.condition(*nothing, H).inverse.shape == (0, 0)


def test_the_posterior_is_that_of_the_conditional_normal_law() -> None:
    process, inverse = known_noise.condition(X, Y, VARIANCES, H), np.linalg.inv(COVARIANCE)
    np.testing.assert_allclose(process.inverse, inverse, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(process.means, K @ inverse @ Y, rtol=1e-8, atol=1e-9)
    z = np.random.default_rng(1).random((3, 2))
    cross = H.outputscale * kernels.kernel(H.kernel, z, X, H.lengthscales)
    found = known_noise.cross_covariance(z, process) @ process.alpha
    np.testing.assert_allclose(found, cross @ inverse @ Y, rtol=1e-8)


@pytest.mark.parametrize("variances", [np.zeros(6), np.full(7, -1.0), np.full(7, np.nan)])
def test_wrong_variances_are_refused(variances: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="variances"):
        known_noise.condition(X, Y, variances, H)
