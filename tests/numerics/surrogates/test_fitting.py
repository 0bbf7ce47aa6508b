"""Fits of many processes at once, with SciPy's L-BFGS-B on the plain formulas as the oracle."""

import math

import numpy as np
import pytest
from amounts import examples
from scipy.optimize import minimize

from fbo_flower.numerics.optim.functions import sample_paths
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.gp import KERNELS
from fbo_flower.numerics.surrogates.transforms import standardise

NAMES = pytest.mark.parametrize("name", KERNELS)


def rng(*key):
    return np.random.default_rng(key)


def path_of(x, y, h, num_features, generator):
    return sample_paths(x[None], y[None], [h], num_features, [generator])[0]


def many(num_processes, n, num_dims=2):
    x = rng(n).random((num_processes, n, num_dims))
    rate = rng(1).uniform(2, 8, (num_processes, 1))
    y = np.sin(rate * x[:, :, 0]) + 0.2 * rng(2).standard_normal((num_processes, n))
    return x, np.array([standardise(row) for row in y])


def log_posterior(x, y, name, theta, priors=fitting.DEFAULT_PRIORS):
    """Log likelihood plus the log density of the normal priors, up to a constant, and its gradient."""
    value, gradient = gp.log_marginal_likelihood(x, y, gp.Hyperparameters.from_array(name, theta))
    deviation = np.array([*[priors.lengthscale_stddev] * x.shape[1], 0.5, priors.noise_stddev])
    centres = [*[priors.lengthscale_centre * math.sqrt(x.shape[1])] * x.shape[1], 1.0, priors.noise_centre]
    white = (theta - np.log(centres)) / deviation
    return value - 0.5 * white @ white, gradient - white / deviation


def best_value(x, y, name, priors=fitting.DEFAULT_PRIORS):
    def loss(theta):
        value, gradient = log_posterior(x, y, name, theta, priors)
        return -value, -gradient

    start = fitting.prior(x.shape[1], priors)[0]
    return -minimize(loss, start, jac=True, method="L-BFGS-B", bounds=fitting.bounds(x.shape[1])).fun


@NAMES
def test_a_climb_ends_where_the_gradient_is_nothing_or_points_out_of_the_bounds(name):
    x, y = many(8, 25)
    y[0], x[1] = 0.0, x[1, :1]  # equal observations, equal points
    modes = fitting.fit(x, y, name)
    least, most = fitting.bounds(2).T
    assert ((modes.theta >= least) & (modes.theta <= most)).all()
    for b, theta in enumerate(modes.theta):
        value, slope = log_posterior(x[b], y[b], name, theta)
        assert modes.values[b] == pytest.approx(value, rel=1e-6)
        outward = ((theta <= least) & (slope < 0)) | ((theta >= most) & (slope > 0))
        assert np.abs(np.where(outward, 0.0, slope)).max() < 0.05
    assert ((modes.evaluations > 1) & (modes.evaluations < fitting.MAX_EVALUATIONS)).all()


@pytest.mark.parametrize(
    ("name", "priors"),
    [("rbf", fitting.Priors()), ("matern52", fitting.Priors()), ("matern52", fitting.Priors(0.3, 0.3, 1e-4))],
)
def test_most_modes_are_those_of_scipy_and_the_others_are_no_worse_on_the_whole(name, priors):
    number = examples(60, 24)
    x, y = many(number, 25)
    gain = fitting.fit(x, y, name, priors=priors).values
    gain -= [best_value(x[b], y[b], name, priors) for b in range(number)]
    assert np.mean(np.abs(gain) < 1e-3) > 0.8
    assert np.mean(gain < -1e-3) < 0.15
    assert gain.mean() > -1.0  # one of sixty may end in a mode that is worse by twenty-five


def test_a_process_ends_where_it_would_alone_and_a_warm_start_stays_there():
    x, y = many(6, 20)
    together = fitting.fit(x, y, "matern52")
    for b in range(6):
        alone = fitting.fit(x[b : b + 1], y[b : b + 1], "matern52")
        np.testing.assert_allclose(alone.theta[0], together.theta[b], rtol=1e-6, atol=1e-6)
        assert alone.evaluations[0] == together.evaluations[b]
    again = fitting.fit(x, y, "matern52", together.theta)
    assert again.evaluations.max() <= 3
    np.testing.assert_allclose(again.values, together.values, atol=1e-3)
    one = fitting.fit_one(x[0], y[0], "matern52")
    np.testing.assert_allclose(one.to_array(), together.theta[0], atol=1e-6)


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
    modes = fitting.fit(x[None], y[None], "matern52")
    h = gp.Hyperparameters.from_array("matern52", modes.theta[0])
    assert math.isfinite(modes.values[0])
    assert modes.evaluations[0] < fitting.MAX_EVALUATIONS
    assert 0.01 <= h.lengthscales.min() <= h.lengthscales.max() <= 5.0
    assert 0.05 <= h.outputscale <= 20.0
    assert h.noise_variance >= 1e-6
    values, gradients = path_of(x, y, h, 64, rng()).value_and_gradient(rng(9).random((20, 2)))
    assert np.abs(values).max() < 20.0
    assert np.isfinite(gradients).all()


def test_without_observations_the_mode_is_that_of_the_prior():
    modes = fitting.fit(np.empty((2, 0, 3)), np.empty((2, 0)), "rbf", np.ones((2, 5)))
    np.testing.assert_array_equal(modes.theta, np.tile(fitting.prior(3)[0], (2, 1)))


def test_with_known_variances_of_the_noise_a_fit_is_a_mode_of_their_likelihood():
    x, y = rng(0).random((7, 2)), rng(1).standard_normal(7)
    known = np.diag(rng(2).random(7) * 0.5)
    theta = fitting.fit_one(x, y, "matern52", known=fitting.Known(known)).to_array()
    mean, precision = fitting.prior(2)
    _, gradients = gp.log_marginal_likelihoods(
        gp.pair_differences(x[None]), y[None], "matern52", theta[None], known[None]
    )
    np.testing.assert_allclose(gradients[0] + (mean - theta) * precision, 0.0, atol=0.02)
    none = fitting.fit_one(x, y, "matern52", known=fitting.Known(0.0 * known))
    plain = fitting.fit_one(x, y, "matern52")
    np.testing.assert_allclose(none.to_array(), plain.to_array(), atol=1e-6)
