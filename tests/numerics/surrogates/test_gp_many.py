"""Many fits at once, with the fits one by one as the oracle."""

import numpy as np
import pytest
from amounts import examples

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates import gp, gp_many
from fbo_flower.numerics.surrogates.kernels import KERNELS
from fbo_flower.numerics.surrogates.transforms import standardise

NAMES = pytest.mark.parametrize("name", KERNELS)


def rng(seed=0):
    return np.random.default_rng(seed)


def data(num_processes, n, num_dims=2):
    x = rng(n).random((num_processes, n, num_dims))
    rate = rng(1).uniform(2, 8, (num_processes, 1))
    y = np.sin(rate * x[:, :, 0]) + 0.2 * rng(2).standard_normal((num_processes, n))
    return x, np.array([standardise(row) for row in y])


def differences(x):
    rows, columns = np.tril_indices(x.shape[1], -1)
    return np.square(x[:, rows] - x[:, columns]).transpose(0, 2, 1)


@NAMES
@pytest.mark.parametrize(("n", "num_dims"), [(1, 1), (2, 3), (17, 2), (40, 4)])
def test_likelihoods_and_gradients_are_those_one_by_one(name, n, num_dims):
    x, y = data(6, n, num_dims)
    theta = rng(3).normal(-1.0, 0.7, (6, num_dims + 2))
    values, gradients = gp_many.log_marginal_likelihoods(differences(x), y, name, theta)
    for b in range(6):
        h = gp.Hyperparameters.from_array(name, theta[b])
        value, gradient = gp.log_marginal_likelihood(x[b], y[b], h)
        assert values[b] == pytest.approx(value, rel=1e-10)
        np.testing.assert_allclose(gradients[b], gradient, rtol=1e-7, atol=1e-9)


@NAMES
def test_a_climb_ends_where_the_gradient_is_nothing_or_points_out_of_the_bounds(name):
    x, y = data(12, 25)
    y[0], x[1] = 0.0, x[1, :1]  # equal observations, equal points
    modes = gp_many.fit(x, y, name)
    least, most = gp.bounds(2).T
    assert (modes.theta >= least).all()
    assert (modes.theta <= most).all()
    for b, theta in enumerate(modes.theta):
        value, gradient = gp.log_marginal_likelihood(x[b], y[b], gp.Hyperparameters.from_array(name, theta))
        prior, pull = gp.log_prior(theta)
        assert modes.values[b] == pytest.approx(value + prior, rel=1e-6)
        outward = ((theta <= least) & (gradient + pull < 0)) | ((theta >= most) & (gradient + pull > 0))
        assert np.abs(np.where(outward, 0.0, gradient + pull)).max() < 0.05
    assert (modes.evaluations > 1).all()
    assert (modes.evaluations < gp_many.MAX_EVALUATIONS).all()


@NAMES
def test_most_modes_are_those_found_one_by_one_and_the_others_are_no_worse_on_the_whole(name):
    number = examples(60, 24)
    x, y = data(number, 25)
    modes = gp_many.fit(x, y, name)
    plain = np.array([gp.fit(x[b], y[b], name, rng()).value for b in range(number)])
    gain = modes.values - plain
    assert np.mean(np.abs(gain) < 1e-3) > 0.8
    assert gain.mean() > -0.15


def test_a_process_ends_where_it_would_alone():
    x, y = data(8, 20)
    together = gp_many.fit(x, y, "matern52")
    for b in range(8):
        alone = gp_many.fit(x[b : b + 1], y[b : b + 1], "matern52")
        np.testing.assert_allclose(alone.theta[0], together.theta[b], rtol=1e-6, atol=1e-6)
        assert alone.evaluations[0] == together.evaluations[b]


def test_one_matrix_that_is_singular_gets_its_jitter_and_the_others_none():
    good = np.array([[2.0, 0.5], [0.5, 1.0]])
    singular = -1e-12 * np.eye(2) + np.ones((2, 2))
    lower = gp_many.factors(np.tril([good, singular]))
    np.testing.assert_allclose(lower[0] @ lower[0].T, good, rtol=1e-14)
    np.testing.assert_array_equal(lower[1], cholesky(singular).lower)
    assert cholesky(singular).jitter > 0


@pytest.mark.parametrize(("x", "y"), [((3, 4), (3, 4)), ((2, 3, 1), (2, 4)), ((2, 3, 1), (3, 3))])
def test_shapes_that_do_not_fit_are_refused(x, y):
    with pytest.raises(ConfigError, match=r"expected x \(B, n, F\)"):
        gp_many.fit(np.zeros(x), np.zeros(y), "rbf")


def test_priors_move_the_modes_as_in_the_fit_of_one() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random((3, 8, 2)), rng.standard_normal((3, 8))
    priors = gp.Priors(lengthscale_stddev=0.3, noise_centre=1e-4)
    modes = gp_many.fit(x, y, "matern52", priors=priors)
    plain = [gp.fit(x[b], y[b], "matern52", rng, priors=priors).value for b in range(3)]
    np.testing.assert_allclose(modes.values, plain, atol=1e-3)


def test_without_observations_the_mode_is_that_of_the_prior() -> None:
    modes = gp_many.fit(np.empty((2, 0, 3)), np.empty((2, 0)), "rbf", np.ones((2, 5)))
    np.testing.assert_array_equal(modes.theta, np.tile(gp.prior(3)[0], (2, 1)))
