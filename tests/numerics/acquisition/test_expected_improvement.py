"""Expected improvement of one process, of ensembles in shared features, and the normal's functions."""

import math

import numpy as np
import pytest
from acquisition_cases import gaussian_process, mesh, slopes
from scipy.integrate import quad
from scipy.stats import norm

from fbo_flower.numerics.acquisition import expected_improvement as ei
from fbo_flower.numerics.acquisition import feature_models
from fbo_flower.numerics.acquisition.expected_improvement import LogImprovement, expected_improvement
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.rff import draw_features, weight_posterior


def draws_of(number, dimension):
    return ei.centred_draws(number, dimension, np.random.default_rng(0))


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
    acquisition = ei.BatchExpectedImprovement(mean, factor, best, draws_of(2**13, 3))
    for design in (np.array([1, 12, 20]), np.array([7, 7, 3])):
        sample = np.maximum((mean[design] + draws @ factor[design].T).max(axis=1) - best, 0.0)
        value = acquisition.values(design, 1, design[1:2])[0]
        assert abs(value - sample.mean()) < 6 * sample.std() / np.sqrt(len(draws))


def test_a_batch_of_one_is_the_closed_form_to_which_a_duplicate_adds_nothing_and_another_point_something():
    mean, factor = gaussian_process(mesh(6), 0.2, 4, 0.05, np.random.default_rng(0))
    exact = expected_improvement(mean, np.square(factor).sum(axis=1), 1.0)
    one = ei.BatchExpectedImprovement(mean, factor, 1.0, draws_of(4, 1))
    np.testing.assert_allclose(one.values(np.array([0]), 0, np.arange(36)), exact, rtol=1e-6)
    acquisition = ei.BatchExpectedImprovement(mean, factor, 1.0, draws_of(256, 2))
    values = acquisition.values(np.array([5, 0]), 1, np.arange(36))
    assert values[5] == pytest.approx(exact[5], rel=1e-6)
    assert (values >= exact[5] - 1e-6).all()
    assert values.max() > 1.2 * exact[5]


# -- the logarithm -----------------------------------------------------------------------------------


RNG = np.random.default_rng(0)
X, Y, Z = RNG.random((8, 3)), RNG.standard_normal(8), RNG.random((12, 3))
PROCESS = gp.posterior(X, Y, gp.Hyperparameters("matern52", np.array([0.3, 0.5, 0.9]), 1.3, 1e-3))


def test_moments_are_the_prediction_and_their_gradients_its_slopes():
    mean, stddev, mean_slope, stddev_slope = ei.moments(PROCESS, Z)
    expected_mean, variance = PROCESS.predict(Z)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-10)
    np.testing.assert_allclose(stddev, np.sqrt(variance), atol=1e-8)
    np.testing.assert_allclose(mean_slope, slopes(lambda z: PROCESS.predict(z)[0], Z), atol=1e-5)
    np.testing.assert_allclose(stddev_slope, slopes(lambda z: np.sqrt(PROCESS.predict(z)[1]), Z), atol=1e-5)


@pytest.mark.parametrize("best", [0.7, 1e4], ids=["near", "very far"])
def test_it_is_the_logarithm_with_the_gradient_of_differences_also_where_the_improvement_underflows(best):
    function = LogImprovement(PROCESS, best)
    value, gradient = function.value_and_gradient(Z)
    np.testing.assert_allclose(value, function(Z), rtol=1e-12)
    if best < 1.0:
        np.testing.assert_allclose(value, np.log(expected_improvement(*PROCESS.predict(Z), best)), atol=1e-8)
    numeric = slopes(function, Z)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4 * abs(numeric).max())


def test_values_are_finite_at_the_observed_points_and_without_any_the_prior_is_improved():
    for part in LogImprovement(PROCESS, 0.7).value_and_gradient(X):
        assert np.isfinite(part).all()
    none = gp.posterior(X[:0], Y[:0], PROCESS.hyperparameters)
    value, gradient = LogImprovement(none, 0.0).value_and_gradient(X)
    np.testing.assert_allclose(value, np.log(np.sqrt(1.3) * norm.pdf(0.0)))
    np.testing.assert_array_equal(gradient, 0.0)


def log_excess_by_integration(z):
    """`E max(Z + z, 0) = phi(z) int_0^inf u exp(u z - u^2 / 2) du`, scaled to a width of 1 / |z|."""
    width = 1 / max(abs(z), 1.0)
    integral, _ = quad(
        lambda t: t * math.exp(t * width * z - (t * width) ** 2 / 2), 0, 60, epsabs=0, epsrel=1e-12
    )
    return norm.logpdf(z) + math.log(integral * width**2)


@pytest.mark.parametrize("z", [-1e4, -40.01, -39.99, -37.0, -10.0, -3.0, -1.0, 0.5])
def test_log_excess_is_the_logarithm_of_the_integral_deep_into_the_tail(z):
    exact = log_excess_by_integration(z)
    assert float(ei.log_excess(np.array(z))) == pytest.approx(exact, rel=1e-12, abs=1e-11)
    assert z < -38.0 or float(ei.excess(np.array(z))) == pytest.approx(math.exp(exact), rel=1e-10)


def test_extreme_arguments_give_limits_not_errors():
    np.testing.assert_array_equal(ei.excess(np.array([-np.inf, -1e300, 1e300])), [0, 0, 1e300])
    assert ei.log_excess(np.array(-np.inf)) == -np.inf
    assert ei.log_excess(np.array(-1e150)) == pytest.approx(-0.5e300)
    assert ei.mills(np.array(-np.inf)) == 0
    assert ei.log_cdf(np.array(-1e10)) == pytest.approx(-0.5e20)


def test_slopes_are_the_ratios_and_keep_their_asymptotes_in_the_tail():
    # by logarithms: exact but for their cancellation
    z = np.concatenate([np.linspace(-60.0, 60.0, 997), [-40.0, 1e6]])
    for found, log_part in zip(ei.excess_ratios(z)[1:], (norm.logpdf(z), ei.log_cdf(z)), strict=True):
        np.testing.assert_allclose(found, np.exp(log_part - ei.log_excess(z)), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(ei.excess_ratios(z)[0], ei.log_excess(z), rtol=2e-12, atol=1e-12)
    # far to the left phi / h = z^2 + 3 - 6 / z^2 + ..., where a difference of logarithms loses digits
    assert ei.excess_ratios(np.array([-1e3]))[1][0] == pytest.approx(1e6 + 3 - 6e-6, rel=1e-14)
    assert ei.excess_ratios(np.array([-1e3]))[2][0] == pytest.approx(1e3 + 2e-3, rel=1e-8)


def test_draws_have_mean_zero_and_the_moments_of_the_standard_normal():
    draws = draws_of(256, 4)
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(draws.T @ draws / 256, np.eye(4), atol=0.05)
    assert np.isfinite(draws_of(64, 40)).all(), "above the dimensions of the sequence"


M, NOISE = 20, 0.05
RANDOM = np.random.default_rng(5)
HYPERPARAMETERS = gp.Hyperparameters("rbf", np.array([0.4, 0.6]), 1.0, 0.01)
TARGET = gp.posterior(RANDOM.random((5, 2)), RANDOM.standard_normal(5), HYPERPARAMETERS)
FEATURES = draw_features(M, 0.4, 2, RANDOM)
POSTERIORS = [
    weight_posterior(FEATURES(RANDOM.random((6, 2))), RANDOM.standard_normal(6), NOISE) for _ in range(3)
]
POINTS = RANDOM.random((8, 2))


def ensemble(weight=0.4, others=(0.3, 0.2, 0.1)):
    mean = sum(w * nu for w, (nu, _) in zip(others, POSTERIORS, strict=True))
    covariance = sum(w**2 * NOISE * c for w, (_, c) in zip(others, POSTERIORS, strict=True))
    return feature_models.LogEnsembleImprovement(TARGET, weight, FEATURES, mean, covariance, 0.3)


def transfer(weights=(0.5, 0.75, 0.2)):
    means, bests = np.array([nu for nu, _ in POSTERIORS]), np.array([0.1, -0.2, 5.0])
    return feature_models.LogTransferImprovement(
        LogImprovement(TARGET, 0.3), 0.75, FEATURES, means, bests, np.array(weights)
    )


FUNCTIONS = {"ensemble": ensemble(), "others-alone": ensemble(0.0), "transfer": transfer()}
FUNCTIONS |= {"transfer-nobody": transfer((0.0, 0.0, 0.0))}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(name):
    function = FUNCTIONS[name]
    value, gradient = function.value_and_gradient(POINTS)
    np.testing.assert_allclose(value, function(POINTS), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(gradient, slopes(function, POINTS), atol=2e-5, rtol=1e-4)


def test_ensemble_is_the_sum_of_its_surrogates_one_by_one():
    mean, stddev = ensemble().predict(POINTS)
    own = TARGET.predict(POINTS)
    for i, phi in enumerate(FEATURES(POINTS)):
        m, v = 0.4 * own[0][i], 0.16 * own[1][i]
        for w, (nu, c) in zip((0.3, 0.2, 0.1), POSTERIORS, strict=True):
            m, v = m + w * (phi @ nu), v + w * w * NOISE * (phi @ c @ phi)
        assert (mean[i], stddev[i] ** 2) == pytest.approx((m, v))
    np.testing.assert_allclose(
        np.exp(ensemble()(POINTS)), expected_improvement(mean, stddev**2, 0.3), rtol=1e-6
    )


def test_transfer_acquisition_is_the_weighted_mean_of_its_parts_one_by_one():
    own = expected_improvement(*TARGET.predict(POINTS), 0.3)
    for i, phi in enumerate(FEATURES(POINTS)):
        total = 0.75 * own[i]
        for w, best, (nu, _) in zip((0.5, 0.75, 0.2), (0.1, -0.2, 5.0), POSTERIORS, strict=True):
            total += w * max(0.0, phi @ nu - best)
        assert np.exp(transfer()(POINTS[i : i + 1])[0]) == pytest.approx(total / (0.75 + 1.45), rel=1e-9)


def test_symmetric_matrices_survive_packing():
    a = np.random.default_rng(0).random((2, 5, 5))
    a = a + np.swapaxes(a, 1, 2)
    packed = np.array([feature_models.pack_symmetric(m) for m in a])
    assert packed.shape == (2, 15)
    np.testing.assert_array_equal(feature_models.unpack_symmetric(packed, 5), a)
