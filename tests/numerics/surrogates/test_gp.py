"""Processes against scikit-learn and plain formulas; fits of many at once against SciPy's L-BFGS-B."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from fbo_flower.numerics.optim.functions import sample_paths
from fbo_flower.numerics.surrogates import fitting, gp, rff
from fbo_flower.numerics.surrogates import shared_hyperparameters as grid
from fbo_flower.numerics.surrogates.gp import KERNELS
from fbo_flower.numerics.surrogates.gp import kernel as kernel_of
from fbo_flower.numerics.surrogates.transforms import standardise

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
def test_predictions_are_those_of_scikit_learn(name):
    x, y = data(15)
    h, z = hyperparameters(name), rng(3).random((6, 2))
    shape = RBF(h.lengthscales) if name == "rbf" else Matern(h.lengthscales, nu=2.5)
    kernel = ConstantKernel(h.outputscale) * shape
    theirs = GaussianProcessRegressor(kernel, alpha=h.noise_variance, optimizer=None)
    expected, covariance = theirs.fit(x, y).predict(z, return_cov=True)
    process = gp.posterior(x, y, h)
    np.testing.assert_array_equal(process.mean(z), process.predict(z)[0])
    np.testing.assert_allclose(process.predict(z), [expected, np.diag(covariance)], atol=1e-9)
    np.testing.assert_allclose(process.covariance(z), covariance, atol=1e-9)


@given(st.sampled_from(KERNELS), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.integers(0, 2**32))
def test_likelihoods_are_normal_densities_and_gradients_finite_differences(name, n, num_dims, adds, seed):
    x, y = data(n, num_dims, seed)
    theta, root = rng(seed).normal(-0.5, 0.5, num_dims + 2), rng(seed).standard_normal((n, n))
    added = root @ root.T if adds else None

    def likelihoods(y, theta):
        more = None if added is None else np.stack([added] * len(y))
        differences = np.stack([gp.pair_differences(x[None])[0]] * len(y))
        return gp.log_marginal_likelihoods(differences, y, name, theta, more)

    (value,), (gradient,) = likelihoods(y[None], theta[None])
    h = gp.Hyperparameters.from_array(name, theta)
    covariance = prior_covariance(x, x, h) + h.noise_variance * np.eye(n) + (0.0 if added is None else added)
    density = stats.multivariate_normal(np.zeros(n), covariance).logpdf(y)
    assert value == pytest.approx(density, rel=1e-6)
    numerical = approx_fprime(theta, lambda a: likelihoods(y[None], a[None])[0][0], 1e-6)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-3, atol=1e-3)
    values, _ = likelihoods(np.stack([y * 0.0 + 1.0, y]), np.stack([theta - 0.3, theta]))
    assert values[1] == value  # others do not change a bit


@pytest.mark.parametrize(("n", "more"), [(0, False), (7, False), (7, True)])
def test_each_of_many_processes_is_conditioned_by_the_formula(n, more):
    x, y, drawn = processes("matern52", n)
    root, variances, z = rng(5).standard_normal((5, n, n)), rng(6).random((5, n)), rng(7).random((3, 3))
    added = root @ root.transpose(0, 2, 1)
    found = gp.condition(x, y, drawn, added, variances) if more else gp.condition(x, y, drawn)
    for b, (process, h) in enumerate(zip(found, drawn, strict=True)):
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
        one = slice(b, b + 1)
        alone = gp.condition(x[one], y[one], [h], *((added[one], variances[one]) if more else ()))[0]
        np.testing.assert_array_equal(alone.means, process.means)


# -- paths --------------------------------------------------------------------------------------------


def plain_path(x, y, h, num_features, rng, scale):
    """`f_0(z) + k(z, X) (K + s2 I)^-1 (y - f_0(X) - e)`, line by line."""
    features = rff.draw_features(num_features, h.lengthscales, x.shape[1], rng, h.kernel)
    weights = scale * np.sqrt(2 * h.outputscale / num_features) * rng.standard_normal(num_features)
    noise = scale * np.sqrt(h.noise_variance) * rng.standard_normal(len(x))
    covariance = prior_covariance(x, x, h) + h.noise_variance * np.eye(len(x))
    solved = np.linalg.solve(covariance, y - features.cosines(x) @ weights - noise)
    return lambda z: features.cosines(z) @ weights + prior_covariance(z, x, h) @ solved


@pytest.mark.parametrize(("kernel", "n", "scale"), [("matern52", 9, 0.4), ("rbf", 0, 1.0)])
def test_paths_are_drawn_by_the_formula(kernel, n, scale):
    x, y, drawn = processes(kernel, n)
    z = rng(4).random((20, 3))
    for b, path in enumerate(sample_paths(x, y, drawn, 32, [rng(3, b) for b in range(5)], scale)):
        expected = plain_path(x[b], y[b], drawn[b], 32, rng(3, b), scale)
        np.testing.assert_allclose(path(z), expected(z), rtol=0, atol=1e-9)


def many(num_processes, n, num_dims=2):
    x = rng(n).random((num_processes, n, num_dims))
    rate = rng(1).uniform(2, 8, (num_processes, 1))
    y = np.sin(rate * x[:, :, 0]) + 0.2 * rng(2).standard_normal((num_processes, n))
    return x, np.array([standardise(row) for row in y])


def log_posterior(x, y, name, theta, priors):
    """Log likelihood plus the log density of the normal priors, up to a constant, and its gradient."""
    value, gradient = gp.log_marginal_likelihood(x, y, gp.Hyperparameters.from_array(name, theta))
    deviation = np.array([*[priors.lengthscale_stddev] * x.shape[1], 0.5, priors.noise_stddev])
    centres = [*[fitting.LENGTHSCALE_CENTRE * math.sqrt(x.shape[1])] * x.shape[1], 1.0, priors.noise_centre]
    white = (theta - np.log(centres)) / deviation
    return value - 0.5 * white @ white, gradient - white / deviation


@pytest.mark.parametrize(
    ("name", "priors"), [("rbf", fitting.Priors()), ("matern52", fitting.Priors(0.3, 0.3, 1e-4))]
)
def test_a_climb_ends_where_the_gradient_is_nothing_or_points_out_of_the_bounds(name, priors):
    x, y = many(8, 25)
    y[0], x[1] = 0.0, x[1, :1]  # equal observations, equal points
    modes = fitting.fit(x, y, name, priors=priors)
    least, most = fitting.bounds(2).T
    assert ((modes.theta >= least) & (modes.theta <= most)).all()
    for b, theta in enumerate(modes.theta):
        value, slope = log_posterior(x[b], y[b], name, theta, priors)
        assert modes.values[b] == pytest.approx(value, rel=1e-6)
        outward = ((theta <= least) & (slope < 0)) | ((theta >= most) & (slope > 0))
        assert np.abs(np.where(outward, 0.0, slope)).max() < 0.05


def test_a_process_ends_where_it_would_alone_and_a_warm_start_stays_there():
    x, y = many(6, 20)
    together = fitting.fit(x, y, "matern52")
    for b in range(6):
        alone = fitting.fit_one(x[b], y[b], "matern52").to_array()
        np.testing.assert_allclose(alone, together.theta[b], rtol=1e-6, atol=1e-6)
    again = fitting.fit(x, y, "matern52", together.theta)
    assert again.evaluations.max() <= 3
    np.testing.assert_allclose(again.values, together.values, atol=1e-3)


AWKWARD = {
    "no points": (np.zeros((0, 2)), np.zeros(0)),
    "constant": (rng(1).random((10, 2)), np.zeros(10)),
    "contradicting duplicates": (np.full((10, 2), 0.3), rng(2).standard_normal(10)),
    "one outlier": (rng(5).random((20, 2)), np.r_[np.full(19, -0.23), 4.36]),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_fit_and_paths_stay_finite_on_awkward_data(case):
    x, y = AWKWARD[case]
    modes = fitting.fit(x[None], y[None], "matern52")
    h = gp.Hyperparameters.from_array("matern52", modes.theta[0])
    assert math.isfinite(modes.values[0])
    assert modes.evaluations[0] < fitting.MAX_EVALUATIONS
    assert 0.01 <= h.lengthscales.min() <= h.lengthscales.max() <= 5.0
    assert 0.05 <= h.outputscale <= 20.0
    assert h.noise_variance >= 1e-6
    (path,) = sample_paths(x[None], y[None], [h], 64, [rng()])
    values, gradients = path.value_and_gradient(rng(9).random((20, 2)))
    assert np.abs(values).max() < 20.0
    assert np.isfinite(gradients).all()


def test_with_known_variances_of_the_noise_a_fit_is_a_mode_of_their_likelihood():
    x, y = rng(0).random((7, 2)), rng(1).standard_normal(7)
    known = np.diag(rng(2).random(7) * 0.5)
    theta = fitting.fit_one(x, y, "matern52", known=fitting.Known(known)).to_array()
    mean, precision = fitting.prior(2)
    _, gradients = gp.log_marginal_likelihoods(
        gp.pair_differences(x[None]), y[None], "matern52", theta[None], known[None]
    )
    np.testing.assert_allclose(gradients[0] + (mean - theta) * precision, 0.0, atol=0.02)


def draw(n, lengthscale, noise_variance, rng):
    """Observations of a draw from the prior with outputscale 1; the last point repeats the first."""
    x = rng.random((n, 2))
    x[-1] = x[0]
    k = gp.kernel("rbf", x, x, np.full(2, lengthscale))
    f = np.linalg.cholesky(k + 1e-10 * np.eye(n)) @ rng.standard_normal(n)
    return x, f + np.sqrt(noise_variance) * rng.standard_normal(n)


def test_log_likelihoods_are_those_of_the_process_with_each_hyperparameters():
    x, y, shape = rng(0).random((7, 3)), rng(1).standard_normal(7), np.array([0.5, 1.0, 2.0])
    found = grid.log_likelihoods(x, y, "matern52", shape).reshape(grid.SHAPE)
    for i, j, k in ((0, 0, 11), (8, 4, 3)):
        lengthscales = grid.SCALES[i] * grid.reference(3) * shape
        h = gp.Hyperparameters("matern52", lengthscales, grid.OUTPUTSCALES[j], grid.NOISE_VARIANCES[k])
        assert found[i, j, k] == pytest.approx(gp.log_marginal_likelihood(x, y, h)[0], rel=1e-6)


def test_huge_drops_of_the_likelihood_leave_the_estimate_where_the_likelihood_is_large():
    """As where the noise is too small: a spline would overshoot there by more than the peak's height."""
    total = np.full(grid.SHAPE, -1e9)
    total[4:6, 2:4, 8:10] = 0.0
    axes = (grid.SCALES[4:6], grid.OUTPUTSCALES[2:4], grid.NOISE_VARIANCES[8:10])
    for found, (low, high) in zip(grid.estimate(total.ravel()), axes, strict=True):
        assert np.log(low) <= found <= np.log(high)


def test_many_observations_find_all_three_and_a_known_noise_decides_the_other_two():
    data = [draw(25, 0.25, 0.05, np.random.default_rng(agent)) for agent in range(16)]
    total = sum(grid.log_likelihoods(x, y, "rbf", np.ones(2)) for x, y in data)
    scale, outputscale, noise = grid.estimate(total)
    assert scale + np.log(grid.reference(2)) == pytest.approx(np.log(0.25), abs=0.15)
    assert outputscale == pytest.approx(0.0, abs=0.4)
    assert noise == pytest.approx(np.log(0.05), abs=0.4)
    rough, smooth = grid.estimate(total, 1e-6), grid.estimate(total, 0.05)
    assert rough[2] == pytest.approx(np.log(1e-6))
    assert smooth[2] == pytest.approx(np.log(0.05), abs=0.2)
    assert rough[0] < smooth[0]  # noise that must be structure is short
    assert grid.estimate(total, 0.0)[2] == pytest.approx(np.log(1e-6))


def test_an_agents_own_lengthscales_have_a_shape_and_no_size():
    x, y = many(1, 30)
    found, theta = grid.own(x[0], y[0], "matern52", 1.0, isotropic=False)
    shape = np.exp(theta[:2] - theta[:2].mean())
    assert abs(np.log(shape[0] / shape[1])) > 0.5  # the second input says nothing
    np.testing.assert_allclose(found, grid.log_likelihoods(x[0], y[0], "matern52", shape))
