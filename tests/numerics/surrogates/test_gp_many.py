"""Many fits at once, with the fits one by one as the oracle."""

import numpy as np
import pytest
from amounts import examples

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates import gp, gp_many, rff
from fbo_flower.numerics.surrogates.kernels import KERNELS
from fbo_flower.numerics.surrogates.kernels import kernel as kernel_of
from fbo_flower.numerics.surrogates.transforms import standardise

NAMES = pytest.mark.parametrize("name", KERNELS)


def rng(*key):
    return np.random.default_rng(key)


def data(num_processes, n, num_dims=2):
    x = rng(n).random((num_processes, n, num_dims))
    rate = rng(1).uniform(2, 8, (num_processes, 1))
    y = np.sin(rate * x[:, :, 0]) + 0.2 * rng(2).standard_normal((num_processes, n))
    return x, np.array([standardise(row) for row in y])


@NAMES
@pytest.mark.parametrize(("n", "num_dims"), [(1, 1), (2, 3), (40, 4)])
def test_likelihoods_and_gradients_are_those_one_by_one(name, n, num_dims):
    x, y = data(6, n, num_dims)
    theta = rng(3).normal(-1.0, 0.7, (6, num_dims + 2))
    differences = gp.pair_differences(x)
    values, gradients = gp.log_marginal_likelihoods(differences, y, name, theta)
    for b in range(6):
        one = slice(b, b + 1)
        value, gradient = gp.log_marginal_likelihoods(differences[one], y[one], name, theta[one])
        np.testing.assert_array_equal(values[one], value)
        np.testing.assert_array_equal(gradients[one], gradient)


@NAMES
def test_a_climb_ends_where_the_gradient_is_nothing_or_points_out_of_the_bounds(name):
    x, y = data(8, 25)
    y[0], x[1] = 0.0, x[1, :1]  # equal observations, equal points
    modes = gp_many.fit(x, y, name)
    least, most = gp.bounds(2).T
    assert ((modes.theta >= least) & (modes.theta <= most)).all()
    for b, theta in enumerate(modes.theta):
        value, gradient = gp.log_marginal_likelihood(x[b], y[b], gp.Hyperparameters.from_array(name, theta))
        prior, pull = gp.log_prior(theta)
        assert modes.values[b] == pytest.approx(value + prior, rel=1e-6)
        outward = ((theta <= least) & (gradient + pull < 0)) | ((theta >= most) & (gradient + pull > 0))
        assert np.abs(np.where(outward, 0.0, gradient + pull)).max() < 0.05
    assert ((modes.evaluations > 1) & (modes.evaluations < gp_many.MAX_EVALUATIONS)).all()


@NAMES
def test_most_modes_are_those_found_one_by_one_and_the_others_are_no_worse_on_the_whole(name):
    number = examples(60, 24)
    x, y = data(number, 25)
    gain = gp_many.fit(x, y, name).values - [gp.fit(x[b], y[b], name, rng()).value for b in range(number)]
    assert np.mean(np.abs(gain) < 1e-3) > 0.8
    assert gain.mean() > -0.15


def test_priors_move_the_modes_as_in_the_fit_of_one():
    x, y = rng(3).random((3, 8, 2)), rng(4).standard_normal((3, 8))
    priors = gp.Priors(lengthscale_stddev=0.3, noise_centre=1e-4)
    plain = [gp.fit(x[b], y[b], "matern52", rng(), priors=priors).value for b in range(3)]
    np.testing.assert_allclose(gp_many.fit(x, y, "matern52", priors=priors).values, plain, atol=1e-3)


def test_a_process_ends_where_it_would_alone():
    x, y = data(6, 20)
    together = gp_many.fit(x, y, "matern52")
    for b in range(6):
        alone = gp_many.fit(x[b : b + 1], y[b : b + 1], "matern52")
        np.testing.assert_allclose(alone.theta[0], together.theta[b], rtol=1e-6, atol=1e-6)
        assert alone.evaluations[0] == together.evaluations[b]


@pytest.mark.parametrize(("x", "y"), [((3, 4), (3, 4)), ((2, 3, 1), (2, 4)), ((2, 3, 1), (3, 3))])
def test_shapes_that_do_not_fit_are_refused(x, y):
    with pytest.raises(ConfigError, match=r"expected x \(B, n, F\)"):
        gp_many.fit(np.zeros(x), np.zeros(y), "rbf")


def test_without_observations_the_mode_is_that_of_the_prior():
    modes = gp_many.fit(np.empty((2, 0, 3)), np.empty((2, 0)), "rbf", np.ones((2, 5)))
    np.testing.assert_array_equal(modes.theta, np.tile(gp.prior(3)[0], (2, 1)))


def processes(kernel, n=9):
    x, y = rng(0).random((5, n, 3)), rng(1).standard_normal((5, n))
    drawn = [gp.Hyperparameters(kernel, 0.2 + rng(2, b).random(3), 0.5 + 0.3 * b, 0.01 + b / 99)
             for b in range(5)]  # fmt: skip
    return x, y, drawn


@pytest.mark.parametrize("n", [0, 1, 7])
def test_each_process_is_its_posterior(n):
    x, y, drawn = processes("matern52", n)
    for b, found in enumerate(gp_many.condition(x, y, drawn)):
        expected = gp.posterior(x[b], y[b], drawn[b])
        np.testing.assert_allclose(found.alpha, expected.alpha, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.inverse, expected.factor.inverse(), rtol=1e-7, atol=1e-7)
        np.testing.assert_array_equal(found.inverse, found.inverse.T)
        np.testing.assert_allclose(found.means, expected.predict(x[b])[0], rtol=1e-7, atol=1e-9)


def test_repeated_points_with_the_least_noise_can_be_conditioned():
    least = gp.Hyperparameters("rbf", np.array([1.0]), 1.0, gp.NOISE_BOUNDS[0])
    found = gp_many.condition(np.full((2, 6, 1), 0.5), np.ones((2, 6)), [least, least])
    np.testing.assert_allclose(found[1].means, 1.0, rtol=1e-5)


def plain_path(posterior, num_features, rng, scale):
    """`f_0(z) + k(z, X) (K + s2 I)^-1 (y - f_0(X) - e)`, line by line."""
    x, h = posterior.x, posterior.hyperparameters
    features = rff.draw_features(num_features, h.lengthscales, x.shape[1], rng, h.kernel)
    weights = scale * np.sqrt(2 * h.outputscale / num_features) * rng.standard_normal(num_features)
    noise = scale * np.sqrt(h.noise_variance) * rng.standard_normal(len(x))
    solved = h.outputscale * posterior.factor.solve(posterior.y - features.cosines(x) @ weights - noise)
    return lambda z: features.cosines(z) @ weights + kernel_of(h.kernel, z, x, h.lengthscales) @ solved


@pytest.mark.parametrize(("kernel", "scale"), [("rbf", 1.0), ("matern52", 0.4)])
def test_paths_are_those_of_the_posteriors(kernel, scale):
    x, y, drawn = processes(kernel)
    z = rng(4).random((20, 3))
    for b, path in enumerate(gp.sample_paths(x, y, drawn, 32, [rng(3, b) for b in range(5)], scale)):
        expected = plain_path(gp.posterior(x[b], y[b], drawn[b]), 32, rng(3, b), scale)
        np.testing.assert_allclose(path(z), expected(z), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [1, 12])
def test_messages_are_those_of_the_dual_draw(n):
    x, y = rng(0).random((6, n, 2)), rng(1).standard_normal((6, n))
    features = rff.draw_features(20, 0.4, 2, rng(2))
    drawn = gp_many.sample_weights_many([features] * 6, x, y, 0.02, [rng(3, b) for b in range(6)])
    for b, weights in enumerate(drawn):
        expected = rff.sample_weights_dual(features(x[b]), y[b], 0.02, rng(3, b))
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-9)
