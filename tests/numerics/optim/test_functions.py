import numpy as np
import pytest
from scipy.optimize import approx_fprime

from fbo_flower.numerics.optim.functions import LinearFunction, Sum
from fbo_flower.numerics.surrogates.rff import draw_features


def linear(seed, offset=0.0, m=30, f=3):
    rng = np.random.default_rng(seed)
    return LinearFunction(draw_features(m, 0.5, f, rng), rng.standard_normal(m), offset)


FUNCTIONS = {
    "linear": linear(0),
    "with-offset": linear(1, offset=-2.5),
    "sum": Sum(linear(2), linear(3, 1.0, m=7)),
    "sum-of-sums": Sum(Sum(linear(4), linear(5)), linear(6)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(name):
    function = FUNCTIONS[name]
    z = np.random.default_rng(9).random((6, 3))
    value, gradient = function.value_and_gradient(z)
    np.testing.assert_allclose(value, function(z), rtol=1e-12, atol=1e-12)
    numeric = [approx_fprime(row, lambda x: function(x[None])[0], 1e-7) for row in z]
    np.testing.assert_allclose(gradient, numeric, atol=2e-5)


def test_linear_function_is_features_times_weights_plus_offset():
    function = linear(1, offset=-2.5)
    z = np.random.default_rng(0).random((4, 3))
    np.testing.assert_allclose(function(z), function.features(z) @ function.weights - 2.5)


def test_sum_adds():
    one, two = linear(2), linear(3)
    z = np.random.default_rng(0).random((4, 3))
    np.testing.assert_array_equal(Sum(one, two)(z), one(z) + two(z))
