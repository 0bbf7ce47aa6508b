import numpy as np
import pytest
from acquisition_cases import gaussian_process, mesh
from scipy.stats import norm

from fbo_flower.numerics.acquisition.expected_improvement import (
    BatchExpectedImprovement,
    LogImprovement,
    expected_improvement,
    moments,
)
from fbo_flower.numerics.acquisition.normal import centred_draws
from fbo_flower.numerics.surrogates import gp


def draws_of(number, dimension):
    return centred_draws(number, dimension, np.random.default_rng(0))


def test_values_are_those_of_the_textbook_formula_and_certain_ones_improve_by_their_difference():
    rng = np.random.default_rng(0)
    mean, stddev, best = rng.standard_normal(50), rng.random(50) + 0.1, 0.5
    z = (mean - best) / stddev
    exact = (mean - best) * norm.cdf(z) + stddev * norm.pdf(z)
    np.testing.assert_allclose(expected_improvement(mean, stddev**2, best), exact, rtol=1e-10)
    certain = expected_improvement(np.array([0.0, 1.0, 3.0]), np.array([0.0, -1e-18, 0.0]), 1.0)
    assert certain.tolist() == [0.0, 0.0, 2.0]


def test_batches_lie_within_the_error_of_many_draws():
    rng = np.random.default_rng(0)
    mean, factor = gaussian_process(mesh(5), 0.3, 4, 0.05, rng)
    best, draws = float(mean.max()), rng.standard_normal((200_000, factor.shape[1]))
    acquisition = BatchExpectedImprovement(mean, factor, best, draws_of(2**13, 3))
    for design in (np.array([1, 12, 20]), np.array([7, 7, 3])):
        sample = np.maximum((mean[design] + draws @ factor[design].T).max(axis=1) - best, 0.0)
        value = acquisition.values(design, 1, design[1:2])[0]
        assert abs(value - sample.mean()) < 6 * sample.std() / np.sqrt(len(draws))


def test_a_batch_of_one_is_the_closed_form_to_which_a_duplicate_adds_nothing_and_another_point_something():
    mean, factor = gaussian_process(mesh(6), 0.2, 4, 0.05, np.random.default_rng(0))
    exact = expected_improvement(mean, np.square(factor).sum(axis=1), 1.0)
    one = BatchExpectedImprovement(mean, factor, 1.0, draws_of(4, 1))
    np.testing.assert_allclose(one.values(np.array([0]), 0, np.arange(36)), exact, rtol=1e-6)
    acquisition = BatchExpectedImprovement(mean, factor, 1.0, draws_of(256, 2))
    values = acquisition.values(np.array([5, 0]), 1, np.arange(36))
    assert values[5] == pytest.approx(exact[5], rel=1e-6)
    assert (values >= exact[5] - 1e-6).all()
    assert values.max() > 1.2 * exact[5]


def test_hopeless_batches_are_still_ranked():
    acquisition = BatchExpectedImprovement(np.array([-9.0, -10.0, -11.0]), np.eye(3), 0.0, draws_of(16, 2))
    values = acquisition.values(np.array([0, 0]), 1, np.arange(3))
    assert values[1] > values[2] > 0


# -- the logarithm -----------------------------------------------------------------------------------


RNG = np.random.default_rng(0)
X, Y, Z = RNG.random((8, 3)), RNG.standard_normal(8), RNG.random((12, 3))
PROCESSES = {
    kernel: gp.posterior(X, Y, gp.Hyperparameters(kernel, np.array([0.3, 0.5, 0.9]), 1.3, 1e-3))
    for kernel in ("matern52", "rbf")
}
PROCESS = PROCESSES["matern52"]


def slopes(function, z, step=1e-6):
    columns = [(function(z + shift) - function(z - shift)) / (2 * step) for shift in step * np.eye(3)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("kernel", PROCESSES)
def test_moments_are_the_prediction_and_their_gradients_its_slopes(kernel):
    process = PROCESSES[kernel]
    mean, stddev, mean_slope, stddev_slope = moments(process, Z)
    expected_mean, variance = process.predict(Z)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-10)
    np.testing.assert_allclose(stddev, np.sqrt(variance), atol=1e-8)
    np.testing.assert_allclose(mean_slope, slopes(lambda z: process.predict(z)[0], Z), atol=1e-5)
    np.testing.assert_allclose(stddev_slope, slopes(lambda z: np.sqrt(process.predict(z)[1]), Z), atol=1e-5)


def test_it_is_the_logarithm_of_expected_improvement():
    mean, variance = PROCESS.predict(Z)
    exact, function = np.log(expected_improvement(mean, variance, 0.7)), LogImprovement(PROCESS, 0.7)
    np.testing.assert_allclose(function(Z), exact, atol=1e-8)


@pytest.mark.parametrize("best", [0.7, -3.0, 40.0, 1e4], ids=["near", "below", "far", "very far"])
def test_gradient_is_that_of_central_differences_also_where_the_improvement_underflows(best):
    function = LogImprovement(PROCESS, best)
    value, gradient = function.value_and_gradient(Z)
    np.testing.assert_allclose(value, function(Z), rtol=1e-12)
    numeric = slopes(function, Z)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4 * abs(numeric).max())


def test_values_are_finite_at_the_observed_points_and_without_any_the_prior_is_improved():
    for part in LogImprovement(PROCESS, 0.7).value_and_gradient(X):
        assert np.isfinite(part).all()
    none = gp.posterior(X[:0], Y[:0], PROCESS.hyperparameters)
    value, gradient = LogImprovement(none, 0.0).value_and_gradient(X)
    np.testing.assert_allclose(value, np.log(np.sqrt(1.3) * norm.pdf(0.0)))
    np.testing.assert_array_equal(gradient, 0.0)
