"""Functions and their stacks are their formulas: exactly in values, to single precision elsewhere."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from fbo_flower.numerics.optim.functions import Each, LinearFunction, Sum, sample_paths, shape_of, stack_of
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.numerics.surrogates.gp import kernel


def rng(*key):
    return np.random.default_rng(key)


def paths(name):
    x, y = rng(0).random((4, 8, 2)), rng(1).standard_normal((4, 8))
    own = [gp.Hyperparameters(name, np.array([0.15, 0.3 + 0.1 * b]), 1.2, 0.02) for b in range(4)]
    return sample_paths(x, y, own, 64, [rng(2, b) for b in range(4)])


def formula(function, z):
    """The values `(m,)` by the docstrings."""
    if isinstance(function, LinearFunction):
        return function.features(z) @ function.weights + function.offset
    if isinstance(function, Sum):
        return formula(function.first, z) + formula(function.second, z)
    prior = np.cos(z @ function.features.frequencies.T + function.features.phases) @ function.weights
    h = function.hyperparameters
    return prior + kernel(h.kernel, z, function.x, h.lengthscales) @ function.coefficients


FEATURES = rff.draw_features(50, 0.3, 2, rng(3))
MESSAGES = [LinearFunction(FEATURES, rng(4, b).standard_normal(50), 0.2 * b) for b in range(4)]
STACKS = {
    "rbf": paths("rbf"),
    "matern52": paths("matern52"),
    "messages": MESSAGES,
    "sums": [Sum(Sum(*pair), pair[0]) for pair in zip(MESSAGES, paths("rbf"), strict=True)],
}


@pytest.mark.parametrize("name", STACKS)
def test_values_scores_and_gradients_are_those_of_the_formulas(name):
    functions, z, rows = STACKS[name], rng(5).random((4, 11, 2)), np.array([2, 0])
    assert len({shape_of(function) for function in functions}) == 1
    stack = stack_of(functions)
    assert not isinstance(stack, Each)
    expected = np.array([formula(f, points) for f, points in zip(functions, z, strict=True)])
    gradients = np.array(
        [
            [approx_fprime(row, lambda v, f=f: formula(f, v[None])[0], 1e-7) for row in points]
            for f, points in zip(functions, z, strict=True)
        ]
    )
    np.testing.assert_allclose(stack.values(z), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(stack.scores(z), expected, rtol=0, atol=5e-5)
    values, slopes = stack.value_and_gradient(z)
    np.testing.assert_allclose(values, expected, rtol=0, atol=5e-5)
    np.testing.assert_allclose(slopes, gradients, rtol=0, atol=5e-4)
    taken = stack.take(rows)  # some functions of a stack are the stack of some functions
    np.testing.assert_array_equal(taken.values(z[rows]), stack.values(z)[rows])
    np.testing.assert_array_equal(taken.value_and_gradient(z[rows])[1], slopes[rows])
    for function, points, value, slope in zip(functions, z, stack.values(z), slopes, strict=True):
        np.testing.assert_array_equal(function(points), value)  # a function alone is a stack of one
        np.testing.assert_array_equal(function.value_and_gradient(points)[1], slope)


def test_functions_of_other_shapes_are_told_apart():
    other = LinearFunction(rff.draw_features(7, 0.3, 2, rng(6)), np.ones(7))
    sums = [Sum(MESSAGES[0], other), Sum(other, MESSAGES[0])]
    alike = [MESSAGES[0], other, STACKS["rbf"][0], STACKS["matern52"][0], *sums]
    assert len({shape_of(function) for function in alike}) == len(alike)
