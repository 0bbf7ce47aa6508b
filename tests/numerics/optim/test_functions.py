import numpy as np
import pytest
from scipy.optimize import approx_fprime

from fbo_flower.numerics.optim.functions import LinearFunction, Sum
from fbo_flower.numerics.surrogates.rff import draw_features


def linear(seed, offset=0.0, m=30):
    rng = np.random.default_rng(seed)
    return LinearFunction(draw_features(m, 0.5, 3, rng), rng.standard_normal(m), offset)


Z = np.random.default_rng(9).random((6, 3))
ONE, TWO = linear(1, offset=-2.5), linear(2, m=7)
EXPECTED = [f.features(Z) @ f.weights + f.offset for f in (ONE, TWO)]


@pytest.mark.parametrize(
    ("function", "expected"), [(ONE, EXPECTED[0]), (Sum(Sum(ONE, TWO), ONE), 2 * EXPECTED[0] + EXPECTED[1])]
)
def test_functions_are_weighted_features_and_their_sums_with_the_gradients_of_finite_differences(
    function, expected
):
    value, gradient = function.value_and_gradient(Z)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(function(Z), expected, rtol=1e-12, atol=1e-12)
    numeric = [approx_fprime(row, lambda x: function(x[None])[0], 1e-7) for row in Z]
    np.testing.assert_allclose(gradient, numeric, atol=2e-5)
