import itertools

import numpy as np
import pytest

from fbo_flower.numerics.optim.scattered import DelaunayInterpolant


def corners(dimension):
    return np.array(list(itertools.product([0.0, 1.0], repeat=dimension)))


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_linear_functions_and_values_at_the_points_are_kept_and_nothing_lies_beyond_them(dimension):
    rng, slope = np.random.default_rng(0), np.arange(1.0, dimension + 1)
    points = np.concatenate([corners(dimension), rng.random((60, dimension))])
    z = np.concatenate([rng.random((200, dimension)), corners(dimension), 0.5 * corners(dimension)])
    linear = DelaunayInterpolant(points, points @ slope - 2.0)
    np.testing.assert_allclose(linear(z), z @ slope - 2.0, atol=1e-7)
    values = np.random.default_rng(2).standard_normal(len(points))
    surface = DelaunayInterpolant(points, values)
    np.testing.assert_allclose(surface(points), values, atol=1e-6)
    assert values.min() <= surface(z).min() <= surface(z).max() <= values.max()
