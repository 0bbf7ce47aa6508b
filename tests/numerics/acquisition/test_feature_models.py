import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from fbo_flower.numerics.acquisition.expected_improvement import expected_improvement
from fbo_flower.numerics.acquisition.feature_models import (
    LogEnsembleImprovement,
    LogTransferImprovement,
    feature_moments,
    linear_gradients,
    pack_symmetric,
    unpack_symmetric,
)
from fbo_flower.numerics.acquisition.log_ei import LogImprovement
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.rff import draw_features, weight_posterior

M, NOISE = 20, 0.05


def agents(count=3, seed=0):
    """Shared features, and posteriors `(nu, C)` of agents with 6 observations each."""
    rng = np.random.default_rng(seed)
    features = draw_features(M, 0.4, 2, rng)
    found = []
    for _ in range(count):
        nu, inverse = weight_posterior(features(rng.random((6, 2))), rng.standard_normal(6), NOISE)
        found.append((nu, NOISE * inverse))
    return features, found


def target(seed=5):
    rng = np.random.default_rng(seed)
    hyper = gp.Hyperparameters("rbf", np.array([0.4, 0.6]), 1.0, 0.01)
    return gp.posterior(rng.random((5, 2)), rng.standard_normal(5), hyper)


def ensemble(weight=0.4, others=(0.3, 0.2, 0.1), best=0.3):
    features, found = agents()
    mean = sum(w * nu for w, (nu, _) in zip(others, found, strict=True))
    covariance = sum(w**2 * c for w, (_, c) in zip(others, found, strict=True))
    return LogEnsembleImprovement(target(), weight, features, mean, covariance, best)


def transfer(bests=(0.1, -0.2, 5.0), weights=(0.5, 0.75, 0.2)):
    features, found = agents()
    means = np.array([nu for nu, _ in found])
    own = LogImprovement(target(), 0.3)
    return LogTransferImprovement(own, 0.75, features, means, np.array(bests), np.array(weights))


FUNCTIONS = {"ensemble": ensemble(), "others-alone": ensemble(0.0), "own-alone": ensemble(1.0, (0.0,) * 3)}
FUNCTIONS |= {"transfer": transfer(), "transfer-nobody": transfer(weights=(0.0, 0.0, 0.0))}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(name):
    function, z = FUNCTIONS[name], np.random.default_rng(9).random((8, 2))
    value, gradient = function.value_and_gradient(z)
    np.testing.assert_allclose(value, function(z), rtol=1e-10, atol=1e-10)
    numeric = [approx_fprime(row, lambda x: function(x[None])[0], 1e-7) for row in z]
    np.testing.assert_allclose(gradient, numeric, atol=2e-5, rtol=1e-4)


def test_ensemble_is_the_sum_of_its_surrogates_one_by_one():
    features, found = agents()
    z, p = np.random.default_rng(2).random((7, 2)), target()
    mean, stddev = ensemble().predict(z)
    for i, point in enumerate(z):
        phi = features(point[None])[0]
        own_mean, own_variance = (v[0] for v in p.predict(point[None]))
        m, v = 0.4 * own_mean, 0.16 * own_variance
        for w, (nu, c) in zip((0.3, 0.2, 0.1), found, strict=True):
            m, v = m + w * (phi @ nu), v + w * w * (phi @ c @ phi)
        assert (mean[i], stddev[i] ** 2) == pytest.approx((m, v))
        gain = np.exp(ensemble()(point[None])[0])
        draws = m + np.sqrt(v) * stats.norm.ppf((np.arange(20000) + 0.5) / 20000)
        assert gain == pytest.approx(np.maximum(draws - 0.3, 0).mean(), rel=5e-3, abs=1e-6)


def test_ensemble_of_the_target_alone_is_its_expected_improvement():
    z, p = np.random.default_rng(3).random((9, 2)), target()
    expected = np.log(expected_improvement(*p.predict(z), 0.3))
    np.testing.assert_allclose(FUNCTIONS["own-alone"](z), expected, rtol=1e-6)


def test_transfer_acquisition_is_the_weighted_mean_of_its_parts_one_by_one():
    features, found = agents()
    p, function = target(), transfer()
    for point in np.random.default_rng(4).random((9, 2)):
        phi = features(point[None])[0]
        total = 0.75 * expected_improvement(*p.predict(point[None]), 0.3)[0]
        for w, best, (nu, _) in zip((0.5, 0.75, 0.2), (0.1, -0.2, 5.0), found, strict=True):
            total += w * max(0.0, phi @ nu - best)
        assert np.exp(function(point[None])[0]) == pytest.approx(total / (0.75 + 1.45), rel=1e-9)


def test_moments_are_those_of_drawn_weights():
    features, ((nu, c), *_) = agents()
    z = np.random.default_rng(6).random((3, 2))
    mean, variance, _, _ = feature_moments(features, nu, c, z)
    phi = features(z)
    np.testing.assert_allclose(mean, phi @ nu)
    np.testing.assert_allclose(variance, np.diag(phi @ c @ phi.T))


def test_weights_of_their_own_for_every_point():
    features, _ = agents()
    rng = np.random.default_rng(7)
    z, w = rng.random((4, 2)), rng.standard_normal((4, M))
    value, gradient = linear_gradients(features, z, w)
    for i in range(4):
        one, slope = features.value_and_gradient(z[i : i + 1], w[i])
        np.testing.assert_allclose(value[i], one[0])
        np.testing.assert_allclose(gradient[i], slope[0])


def test_symmetric_matrices_survive_packing():
    a = np.random.default_rng(0).random((2, 5, 5))
    a = a + np.swapaxes(a, 1, 2)
    packed = np.array([pack_symmetric(m) for m in a])
    assert packed.shape == (2, 15)
    np.testing.assert_array_equal(unpack_symmetric(packed, 5), a)
