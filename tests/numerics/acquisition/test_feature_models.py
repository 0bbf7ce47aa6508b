import numpy as np
import pytest
from scipy.optimize import approx_fprime

from fbo_flower.numerics.acquisition.expected_improvement import LogImprovement, expected_improvement
from fbo_flower.numerics.acquisition.feature_models import (
    LogEnsembleImprovement,
    LogTransferImprovement,
    pack_symmetric,
    unpack_symmetric,
)
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.rff import draw_features, weight_posterior

M, NOISE = 20, 0.05
RNG = np.random.default_rng(5)
HYPERPARAMETERS = gp.Hyperparameters("rbf", np.array([0.4, 0.6]), 1.0, 0.01)
TARGET = gp.posterior(RNG.random((5, 2)), RNG.standard_normal(5), HYPERPARAMETERS)
FEATURES = draw_features(M, 0.4, 2, RNG)
POSTERIORS = [weight_posterior(FEATURES(RNG.random((6, 2))), RNG.standard_normal(6), NOISE) for _ in range(3)]
Z = RNG.random((8, 2))


def ensemble(weight=0.4, others=(0.3, 0.2, 0.1)):
    mean = sum(w * nu for w, (nu, _) in zip(others, POSTERIORS, strict=True))
    covariance = sum(w**2 * NOISE * c for w, (_, c) in zip(others, POSTERIORS, strict=True))
    return LogEnsembleImprovement(TARGET, weight, FEATURES, mean, covariance, 0.3)


def transfer(weights=(0.5, 0.75, 0.2)):
    means, bests = np.array([nu for nu, _ in POSTERIORS]), np.array([0.1, -0.2, 5.0])
    return LogTransferImprovement(
        LogImprovement(TARGET, 0.3), 0.75, FEATURES, means, bests, np.array(weights)
    )


FUNCTIONS = {"ensemble": ensemble(), "others-alone": ensemble(0.0), "own-alone": ensemble(1.0, (0.0,) * 3)}
FUNCTIONS |= {"transfer": transfer(), "transfer-nobody": transfer((0.0, 0.0, 0.0))}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(name):
    function = FUNCTIONS[name]
    value, gradient = function.value_and_gradient(Z)
    np.testing.assert_allclose(value, function(Z), rtol=1e-10, atol=1e-10)
    numeric = [approx_fprime(row, lambda x: function(x[None])[0], 1e-7) for row in Z]
    np.testing.assert_allclose(gradient, numeric, atol=2e-5, rtol=1e-4)


def test_ensemble_is_the_sum_of_its_surrogates_one_by_one():
    mean, stddev = ensemble().predict(Z)
    own = TARGET.predict(Z)
    for i, phi in enumerate(FEATURES(Z)):
        m, v = 0.4 * own[0][i], 0.16 * own[1][i]
        for w, (nu, c) in zip((0.3, 0.2, 0.1), POSTERIORS, strict=True):
            m, v = m + w * (phi @ nu), v + w * w * NOISE * (phi @ c @ phi)
        assert (mean[i], stddev[i] ** 2) == pytest.approx((m, v))
    np.testing.assert_allclose(np.exp(ensemble()(Z)), expected_improvement(mean, stddev**2, 0.3), rtol=1e-6)
    alone = np.log(expected_improvement(*own, 0.3))
    np.testing.assert_allclose(FUNCTIONS["own-alone"](Z), alone, rtol=1e-6)


def test_transfer_acquisition_is_the_weighted_mean_of_its_parts_one_by_one():
    own = expected_improvement(*TARGET.predict(Z), 0.3)
    for i, phi in enumerate(FEATURES(Z)):
        total = 0.75 * own[i]
        for w, best, (nu, _) in zip((0.5, 0.75, 0.2), (0.1, -0.2, 5.0), POSTERIORS, strict=True):
            total += w * max(0.0, phi @ nu - best)
        assert np.exp(transfer()(Z[i : i + 1])[0]) == pytest.approx(total / (0.75 + 1.45), rel=1e-9)


def test_symmetric_matrices_survive_packing():
    a = np.random.default_rng(0).random((2, 5, 5))
    a = a + np.swapaxes(a, 1, 2)
    packed = np.array([pack_symmetric(m) for m in a])
    assert packed.shape == (2, 15)
    np.testing.assert_array_equal(unpack_symmetric(packed, 5), a)
