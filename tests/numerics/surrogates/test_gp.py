import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.kernels import KERNELS
from fbo_flower.numerics.threads import single_thread

NAMES = pytest.mark.parametrize("name", KERNELS)


def rng(seed=0):
    return np.random.default_rng(seed)


def hyperparameters(name):
    return gp.Hyperparameters(name, np.array([0.3, 0.6]), 1.3, 0.02)


def data(n, num_dims=2, seed=0):
    x = rng(seed).random((n, num_dims))
    y = np.sin(6.0 * x[:, 0]) + 0.1 * rng(seed + 1).standard_normal(n)
    return x, y


@NAMES
def test_likelihood_gradient_and_predictions_are_those_of_scikit_learn(name):
    x, y = data(15)
    h, z = hyperparameters(name), rng(3).random((6, 2))
    shape = RBF(h.lengthscales) if name == "rbf" else Matern(h.lengthscales, nu=2.5)
    kernel = ConstantKernel(h.outputscale) * shape + WhiteKernel(h.noise_variance)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(x, y)

    value, gradient = gp.log_marginal_likelihood(x, y, h)
    expected, derivatives = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(expected)
    ours = np.concatenate([gradient[2:3], gradient[:2], gradient[3:]])  # theirs: outputscale first
    np.testing.assert_allclose(ours, derivatives, rtol=1e-8)

    expected, covariance = theirs.predict(z, return_cov=True)
    process = gp.posterior(x, y, h)
    mean, variance = process.predict(z)
    noise = h.noise_variance * np.eye(6)  # scikit-learn predicts noisy observations
    np.testing.assert_array_equal(process.mean(z), mean)
    np.testing.assert_allclose(mean, expected, atol=1e-9)
    np.testing.assert_allclose(process.covariance(z) + noise, covariance, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(process.covariance(z)), atol=1e-9)


@given(st.sampled_from(KERNELS), st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32))
def test_the_gradients_agree_with_finite_differences(name, n, num_dims, seed):
    x, y = data(n, num_dims, seed)
    theta = rng(seed).normal(-0.5, 0.5, num_dims + 2)

    def likelihood(a):
        return gp.log_marginal_likelihood(x, y, gp.Hyperparameters.from_array(name, a))

    for function in (likelihood, gp.log_prior):
        numerical = approx_fprime(theta, lambda a, f=function: f(a)[0], 1e-6)
        np.testing.assert_allclose(function(theta)[1], numerical, rtol=1e-3, atol=1e-3)


def test_without_observations_the_posterior_is_the_prior():
    process = gp.posterior(np.zeros((0, 2)), np.zeros(0), hyperparameters("matern52"))
    mean, variance = process.predict(rng().random((4, 2)))
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(variance, 1.3)


@NAMES
@pytest.mark.parametrize("n", [0, 1, 12])
def test_the_gradient_of_a_path_agrees_with_finite_differences(name, n):
    path = gp.posterior(*data(n), hyperparameters(name)).sample_path(50, rng(2))
    z = rng(3).random((5, 2))
    values, gradients = path.value_and_gradient(z)
    np.testing.assert_allclose(values, path(z), atol=1e-10)
    for row, gradient in zip(z, gradients, strict=True):
        numerical = approx_fprime(row, lambda v: path(v[None])[0], 1e-7)
        np.testing.assert_allclose(gradient, numerical, rtol=1e-4, atol=1e-4)


# -- the law of paths ---------------------------------------------------------------------------------


@functools.cache
def standardised_paths(name, num_features, deviation_scale=1.0, num_paths=1500):
    """Paths at 5 points, whitened by the exact posterior: `(num_paths, 5)`, of mean 0 and covariance I."""
    process, z, generator = gp.posterior(*data(8), hyperparameters(name)), rng(4).random((5, 2)), rng(5)
    paths = np.array(
        [process.sample_path(num_features, generator, deviation_scale=deviation_scale)(z)
         for _ in range(num_paths)]
    )  # fmt: skip
    factor = deviation_scale * np.linalg.cholesky(process.covariance(z))
    return np.linalg.solve(factor, (paths - process.predict(z)[0]).T).T


def distance_from_normal(white):
    return stats.kstest((white**2).sum(axis=1), stats.chi2(5).cdf)


@pytest.mark.parametrize(("name", "num_features", "scale"), [("rbf", 64, 2.0), ("matern52", 256, 1.0)])
def test_paths_have_the_moments_of_the_exact_posterior(name, num_features, scale):
    white = standardised_paths(name, num_features, scale)
    assert np.abs(white.mean(axis=0)).max() < 4.5 / math.sqrt(len(white))
    np.testing.assert_allclose(np.cov(white.T), np.eye(5), atol=0.15)


@NAMES
def test_paths_of_many_features_are_normal_and_a_tenth_too_wide_would_be_noticed(name):
    white = standardised_paths(name, 2048, num_paths=1200)
    assert distance_from_normal(white).pvalue > 0.001
    assert distance_from_normal(1.1 * white).pvalue < 1e-6


def test_few_features_are_not_normal_and_the_distance_shrinks_with_their_number():
    # a mixture over the frequencies: exact moments, heavy tails
    few, usual = (distance_from_normal(standardised_paths("matern52", count)) for count in (64, 256))
    assert few.pvalue < 1e-6
    assert few.statistic > 1.5 * usual.statistic
    assert usual.statistic < 0.06


def test_a_deviation_scale_of_zero_gives_the_mean():
    process, z = gp.posterior(*data(8), hyperparameters("rbf")), rng(4).random((5, 2))
    path = process.sample_path(16, rng(), deviation_scale=0.0)
    np.testing.assert_allclose(path(z), process.predict(z)[0], atol=1e-10)


# -- fits ---------------------------------------------------------------------------------------------


@NAMES
def test_fit_recovers_the_hyperparameters_of_a_large_sample_within_its_own_uncertainty(name):
    truth = gp.Hyperparameters(name, np.array([0.2, 0.6]), 1.0, 0.01)
    x = rng(0).random((150, 2))
    drawn = gp.posterior(np.zeros((0, 2)), np.zeros(0), truth).sample_path(2000, rng(10))
    y = drawn(x) + 0.1 * rng(20).standard_normal(150)

    def gradient(theta):
        h = gp.Hyperparameters.from_array(name, theta)
        return gp.log_marginal_likelihood(x, y, h)[1] + gp.log_prior(theta)[1]

    with single_thread():
        fit = gp.fit(x, y, name, rng(4))
        mode, steps = fit.hyperparameters.to_array(), 1e-4 * np.eye(4)
        hessian = np.array([(gradient(mode + s) - gradient(mode - s)) / 2e-4 for s in steps])
    deviation = np.sqrt(np.diag(np.linalg.inv(-0.5 * (hessian + hessian.T))))
    errors = np.abs(mode - truth.to_array()) / deviation
    assert fit.converged
    assert errors.max() < 4.0
    assert deviation[[0, 1, 3]].max() < 0.5  # lengthscales and noise are really learned
    # negative control: the lengthscales of the other axes
    assert (np.abs(mode - truth.to_array()[[1, 0, 2, 3]]) / deviation)[:2].max() > 4.0


def test_fit_is_a_mode_and_a_warm_start_stays_there():
    x, y = data(30)
    fit = gp.fit(x, y, "rbf", rng())
    value, gradient = gp.log_marginal_likelihood(x, y, fit.hyperparameters)
    prior, prior_gradient = gp.log_prior(fit.hyperparameters.to_array())
    assert fit.value == pytest.approx(value + prior)
    np.testing.assert_allclose(gradient + prior_gradient, 0.0, atol=0.1)
    again = gp.fit(x, y, "rbf", rng(), start=fit.hyperparameters)
    assert again.iterations <= 2
    assert again.value == pytest.approx(fit.value, abs=1e-3)


def test_more_restarts_are_never_worse():
    x, y = data(6)
    values = [gp.fit(x, y, "matern52", rng(1), num_restarts=count).value for count in (1, 4)]
    assert values[1] >= values[0]


AWKWARD = {
    "no points": (np.zeros((0, 2)), np.zeros(0)),
    "one point": (np.full((1, 2), 0.5), np.zeros(1)),
    "three points": (rng(0).random((3, 2)), np.array([-1.2, 0.1, 1.1])),
    "constant": (rng(1).random((10, 2)), np.zeros(10)),
    "identical points": (np.full((10, 2), 0.3), np.zeros(10)),
    "contradicting duplicates": (np.full((10, 2), 0.3), rng(2).standard_normal(10)),
    "noise alone": (rng(3).random((20, 2)), rng(4).standard_normal(20)),
    "one outlier": (rng(5).random((20, 2)), np.r_[np.full(19, -0.23), 4.36]),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_fit_and_paths_stay_finite_on_awkward_data(case):
    x, y = AWKWARD[case]
    fit = gp.fit(x, y, "matern52", rng(), num_restarts=2)
    h = fit.hyperparameters
    assert math.isfinite(fit.value)
    assert fit.converged
    assert 0.01 <= h.lengthscales.min() <= h.lengthscales.max() <= 5.0
    assert 0.05 <= h.outputscale <= 20.0
    assert h.noise_variance >= 1e-6
    path = gp.posterior(x, y, h).sample_path(64, rng())
    values, gradients = path.value_and_gradient(rng(9).random((20, 2)))
    assert np.abs(values).max() < 20.0
    assert np.isfinite(gradients).all()


def test_three_points_leave_the_lengthscales_near_the_prior():
    ratios = []
    for seed in range(8):
        y = rng(seed).standard_normal(3)
        scales = gp.fit(rng(seed + 100).random((3, 2)), (y - y.mean()) / y.std(), "rbf", rng())
        ratios.extend(scales.hyperparameters.lengthscales / (0.3 * math.sqrt(2)))
    assert min(ratios) > 0.2
    assert max(ratios) < 5.0


def test_an_isotropic_fit_is_the_best_of_the_fits_with_equal_lengthscales():
    x, y = data(15, num_dims=3, seed=4)
    found = gp.fit(x, y, "matern52", rng(2), num_restarts=3, isotropic=True)
    assert len(set(found.hyperparameters.lengthscales.tolist())) == 1
    centre, precision = np.log(0.3 * math.sqrt(3)), 0.75**-2

    def value(theta):
        """Log likelihood with the prior of a single lengthscale."""
        prior = gp.log_prior(theta)[0] + precision * (theta[0] - centre) ** 2  # three of them counted
        return gp.log_marginal_likelihood(x, y, gp.Hyperparameters.from_array("matern52", theta))[0] + prior

    mode = found.hyperparameters.to_array()
    assert found.value == pytest.approx(value(mode))
    for shift in np.vstack([np.eye(3), -np.eye(3)]) * 0.05:
        assert value(mode + shift[[0, 0, 0, 1, 2]]) < found.value
    start = gp.Hyperparameters("matern52", np.array([0.2, 0.5, 0.8]), 1.0, 0.01)
    warm = gp.fit(x, y, "matern52", rng(0), start=start, isotropic=True)
    assert warm.value == pytest.approx(found.value, abs=1e-2)


@pytest.mark.parametrize(
    ("kernel", "scales", "message"),
    [("rbf", [0.1, -0.1], "positive"), ("cubic", [1.0], "kernel"), ("rbf", [[1.0]], "shape")],
)
def test_malformed_hyperparameters_are_refused(kernel, scales, message):
    with pytest.raises(ConfigError, match=message):
        gp.Hyperparameters(kernel, np.array(scales), 1.0, 0.1)


def test_malformed_data_and_no_start_are_refused():
    for shape in ((3, 2), (2, 4)):
        with pytest.raises(ConfigError, match="data"):
            gp.posterior(np.zeros(shape), np.zeros(2), hyperparameters("rbf"))
    with pytest.raises(ConfigError, match="num_restarts"):
        gp.fit(*data(3), "rbf", rng(), num_restarts=0)
