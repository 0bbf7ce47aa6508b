import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.optim.scattered import DelaunayInterpolant, first_design, next_design


def design(dimension, count=60, seed=0):
    corners = first_design(2**dimension, dimension)
    return np.concatenate([corners, np.random.default_rng(seed).random((count, dimension))])


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_linear_functions_and_values_at_the_points_are_kept_and_nothing_lies_beyond_them(dimension):
    points, slope = design(dimension), np.arange(1.0, dimension + 1)
    z = np.concatenate([np.random.default_rng(1).random((200, dimension)), first_design(27, dimension)])
    linear = DelaunayInterpolant(points, points @ slope - 2.0)
    np.testing.assert_allclose(linear(z), z @ slope - 2.0, atol=1e-7)
    values = np.random.default_rng(2).standard_normal(len(points))
    surface = DelaunayInterpolant(points, values)
    np.testing.assert_allclose(surface(points), values, atol=1e-6)
    assert values.min() <= surface(z).min() <= surface(z).max() <= values.max()


@pytest.mark.parametrize(
    ("dimension", "count", "expected"), [(1, 10, 10), (2, 10, 9), (2, 2, 4), (3, 30, 27)]
)
def test_first_design_is_the_largest_grid_that_fits(dimension, count, expected):
    points = first_design(count, dimension)
    assert points.shape == (expected, dimension)
    assert set(points.ravel()) >= {0.0, 1.0}


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_new_points_go_where_the_function_is_steep(dimension):
    def cliff(x):
        return np.tanh(40 * (x[:, 0] - 0.3))

    points = first_design(64, dimension)
    for _ in range(4):
        new = next_design(points, cliff(points), 40)
        assert len(new) == 40
        assert len(np.unique(np.concatenate([points, new]), axis=0)) == len(points) + 40
        points = np.concatenate([points, new])
    added = points[64:]
    assert (np.abs(added[:, 0] - 0.3) < 0.15).mean() > 0.5  # by chance .3
    z = np.random.default_rng(0).random((2000, dimension))
    uniform = first_design(len(points), dimension)
    errors = [np.abs(DelaunayInterpolant(p, cliff(p))(z) - cliff(z)).mean() for p in (points, uniform)]
    assert errors[0] < (0.5 if dimension < 3 else 1.1) * errors[1]  # a wall in space takes many points


def test_a_constant_function_is_explored_evenly():
    assert len(next_design(first_design(9, 2), np.zeros(9), 8)) == 8


@pytest.mark.parametrize(
    ("points", "values", "message"),
    [
        (np.eye(3)[:, :2], np.zeros(3), r"corners of the cube, \[1.0, 1.0\] is missing"),
        (np.zeros((3, 4)), np.zeros(3), "D from 1 to 3"),
        (first_design(4, 2), np.array([0.0, 1.0, np.nan, 0.0]), "finite"),
    ],
)
def test_what_cannot_be_interpolated_is_refused(points, values, message):
    with pytest.raises(ConfigError, match=message):
        DelaunayInterpolant(points, values)
