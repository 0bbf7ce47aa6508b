import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from fbo_flower.numerics.optim.functions import sample_paths
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.numerics.surrogates.gp import KERNELS
from fbo_flower.numerics.surrogates.gp import kernel as kernel_of

NAMES = pytest.mark.parametrize("name", KERNELS)


def rng(*key):
    return np.random.default_rng(key)


def hyperparameters(name):
    return gp.Hyperparameters(name, np.array([0.3, 0.6]), 1.3, 0.02)


def data(n, num_dims=2, seed=0):
    x = rng(seed).random((n, num_dims))
    y = np.sin(6.0 * x[:, 0]) + 0.1 * rng(seed + 1).standard_normal(n)
    return x, y


def processes(kernel, n=9):
    x, y = rng(0).random((5, n, 3)), rng(1).standard_normal((5, n))
    drawn = [gp.Hyperparameters(kernel, 0.2 + rng(2, b).random(3), 0.5 + 0.3 * b, 0.01 + b / 99)
             for b in range(5)]  # fmt: skip
    return x, y, drawn


def prior_covariance(z, x, h):
    return h.outputscale * kernel_of(h.kernel, z, x, h.lengthscales)


# -- likelihoods and posteriors -----------------------------------------------------------------------


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


@given(st.sampled_from(KERNELS), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.integers(0, 2**32))
def test_likelihoods_are_normal_densities_and_gradients_finite_differences(name, n, num_dims, adds, seed):
    x, y = data(n, num_dims, seed)
    theta, root = rng(seed).normal(-0.5, 0.5, num_dims + 2), rng(seed).standard_normal((n, n))
    added = root @ root.T if adds else None

    def likelihood(a):
        more = None if added is None else added[None]
        values, gradients = gp.log_marginal_likelihoods(
            gp.pair_differences(x[None]), y[None], name, a[None], more
        )
        return values[0], gradients[0]

    h = gp.Hyperparameters.from_array(name, theta)
    covariance = prior_covariance(x, x, h) + h.noise_variance * np.eye(n) + (0.0 if added is None else added)
    density = stats.multivariate_normal(np.zeros(n), covariance).logpdf(y)
    assert likelihood(theta)[0] == pytest.approx(density, rel=1e-6)
    numerical = approx_fprime(theta, lambda a: likelihood(a)[0], 1e-6)
    np.testing.assert_allclose(likelihood(theta)[1], numerical, rtol=1e-3, atol=1e-3)
    three = [np.stack([part] * 3) for part in (gp.pair_differences(x[None])[0], y, theta)]
    three[1][0], three[2][2] = 1.0, three[2][2] - 0.3  # others do not change a bit of the second one
    found = gp.log_marginal_likelihoods(
        *three[:2], name, three[2], None if added is None else np.stack([added] * 3)
    )
    assert found[0][1] == likelihood(theta)[0]
    np.testing.assert_array_equal(found[1][1], likelihood(theta)[1])


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("more", [False, True])
def test_each_of_many_processes_is_conditioned_by_the_formula(n, more):
    x, y, drawn = processes("matern52", n)
    root, variances = rng(5).standard_normal((5, n, n)), rng(6).random((5, n))
    added = root @ root.transpose(0, 2, 1)
    found = gp.condition(x, y, drawn, added, variances) if more else gp.condition(x, y, drawn)
    z = rng(7).random((3, 3))
    for b, process in enumerate(found):
        h = drawn[b]
        function = prior_covariance(x[b], x[b], h) + (added[b] if more else 0.0)
        inverse = np.linalg.inv(function + np.diag(h.noise_variance + variances[b] * more))
        np.testing.assert_allclose(process.alpha, inverse @ y[b], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(process.inverse, inverse, rtol=1e-7, atol=1e-7)
        np.testing.assert_array_equal(process.inverse, process.inverse.T)
        np.testing.assert_allclose(process.means, function @ inverse @ y[b], rtol=1e-7, atol=1e-9)
        cross = prior_covariance(z, x[b], h)
        mean, variance = process.predict(z)
        np.testing.assert_allclose(mean, cross @ inverse @ y[b], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(variance, h.outputscale - np.diag(cross @ inverse @ cross.T), atol=1e-9)
        parts = None if not more else added[b : b + 1], None if not more else variances[b : b + 1]
        alone = gp.condition(x[b : b + 1], y[b : b + 1], [h], *parts)[0]
        np.testing.assert_array_equal(alone.inverse, process.inverse)
        np.testing.assert_array_equal(alone.means, process.means)


def test_repeated_points_with_the_least_noise_can_be_conditioned():
    least = gp.Hyperparameters("rbf", np.array([1.0]), 1.0, 1e-6)
    found = gp.condition(np.full((2, 6, 1), 0.5), np.ones((2, 6)), [least, least])
    np.testing.assert_allclose(found[1].means, 1.0, rtol=1e-5)


# -- paths --------------------------------------------------------------------------------------------


def plain_path(x, y, h, num_features, rng, scale):
    """`f_0(z) + k(z, X) (K + s2 I)^-1 (y - f_0(X) - e)`, line by line."""
    features = rff.draw_features(num_features, h.lengthscales, x.shape[1], rng, h.kernel)
    weights = scale * np.sqrt(2 * h.outputscale / num_features) * rng.standard_normal(num_features)
    noise = scale * np.sqrt(h.noise_variance) * rng.standard_normal(len(x))
    covariance = prior_covariance(x, x, h) + h.noise_variance * np.eye(len(x))
    solved = np.linalg.solve(covariance, y - features.cosines(x) @ weights - noise)
    return lambda z: features.cosines(z) @ weights + prior_covariance(z, x, h) @ solved


@pytest.mark.parametrize(("kernel", "n", "scale"), [("rbf", 9, 1.0), ("matern52", 9, 0.4), ("rbf", 0, 1.0)])
def test_paths_are_drawn_by_the_formula_and_gradients_agree_with_differences(kernel, n, scale):
    x, y, drawn = processes(kernel, n)
    z = rng(4).random((20, 3))
    for b, path in enumerate(sample_paths(x, y, drawn, 32, [rng(3, b) for b in range(5)], scale)):
        expected = plain_path(x[b], y[b], drawn[b], 32, rng(3, b), scale)
        np.testing.assert_allclose(path(z), expected(z), rtol=0, atol=1e-9)
        values, gradients = path.value_and_gradient(z)
        np.testing.assert_allclose(values, expected(z), atol=2e-5)  # single precision
        for row, gradient in zip(z[:3], gradients, strict=False):
            numerical = approx_fprime(row, lambda v, path=path: path(v[None])[0], 1e-7)
            np.testing.assert_allclose(gradient, numerical, rtol=1e-3, atol=1e-3)


LENGTHSCALES = np.array([0.2, 0.7, 1.5])


def points(n, seed=0):
    return np.random.default_rng(seed).random((n, 3))


@pytest.mark.parametrize(
    ("name", "oracle"), [("rbf", RBF(LENGTHSCALES)), ("matern52", Matern(LENGTHSCALES, nu=2.5))]
)
def test_kernels_and_slopes_are_those_of_scikit_learn(name, oracle):
    x1, x2 = points(7), points(5, seed=1)
    np.testing.assert_allclose(gp.kernel(name, x1, x2, LENGTHSCALES), oracle(x1, x2), atol=1e-13)
    assert gp.kernel(name, x1[:0], x2, LENGTHSCALES).shape == (0, 5)
    _, gradient = oracle(x1, eval_gradient=True)
    _, slope = gp.profile_and_slope(name, gp.squared_distances(x1, x1, LENGTHSCALES))
    scaled = (x1 / LENGTHSCALES).T
    ours = slope * (scaled[:, :, None] - scaled[:, None, :]) ** 2  # dk / d log l
    np.testing.assert_allclose(ours, np.moveaxis(gradient, -1, 0), atol=1e-13)
