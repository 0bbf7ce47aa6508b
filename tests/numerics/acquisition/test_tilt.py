import numpy as np
import pytest
from scipy.optimize import approx_fprime

from fbo_flower.numerics.acquisition.tilt import Tilt

RNG = np.random.default_rng(0)
TILT = Tilt(RNG.random((4, 3)), 0.15, 2.0)


def test_value_is_the_logarithm_of_the_mean_bump():
    for z in RNG.random((5, 3)):
        bumps = [np.exp(-((z - c) ** 2).sum() / (2 * 0.15**2)) for c in TILT.centres]
        assert TILT(z[None, :])[0] == pytest.approx(2.0 * np.log(0.02 + np.mean(bumps)))


def test_gradient_is_that_of_finite_differences():
    for z in RNG.random((5, 3)):
        value, gradient = TILT.value_and_gradient(z[None, :])
        assert value[0] == pytest.approx(TILT(z[None, :])[0])
        numeric = approx_fprime(z, lambda p: TILT(p[None, :])[0], 1e-7)
        np.testing.assert_allclose(gradient[0], numeric, rtol=1e-4, atol=1e-5)


def test_far_from_all_centres_it_is_flat():
    value, gradient = TILT.value_and_gradient(np.full((1, 3), 50.0))
    assert value[0] == pytest.approx(2.0 * np.log(0.02))
    np.testing.assert_array_equal(gradient, 0.0)
