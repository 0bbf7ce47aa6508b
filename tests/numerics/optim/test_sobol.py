"""Point sets in the cube, and the interpolation of values at points."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import qmc

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.optim.sobol import BITS, largest_size, mesh, refined, sobol, unshifted
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems.table import DelaunayInterpolant


@pytest.mark.filterwarnings("ignore:The balance properties:UserWarning")
@pytest.mark.parametrize(("num_points", "dimension"), [(1, 1), (100, 2), (512, 32)])
def test_the_sequence_is_exactly_scipys(num_points, dimension):
    expected = qmc.Sobol(dimension, scramble=False).random(num_points)
    np.testing.assert_array_equal(unshifted(num_points, dimension) * 2.0**-BITS, expected)


def test_shifted_points_fill_every_cell_of_a_binary_grid_once_in_the_half_open_cube():
    points = sobol(256, 32, np.random.default_rng(0))
    assert len({tuple(cell) for cell in np.floor(16 * points[:, :2]).astype(int)}) == 256
    assert points.min() >= 0.0
    for column in points.T:
        assert sorted(np.floor(256 * column).astype(int)) == list(range(256))
    assert not np.array_equal(points, sobol(256, 32, np.random.default_rng(1)))


def test_callers_cannot_change_the_cached_sequence_and_many_dimensions_get_uniform_draws():
    with pytest.raises(ValueError, match="read-only"):
        unshifted(4, 2)[0] = 1
    sobol(4, 2, np.random.default_rng(0))[:] = 0.0
    assert unshifted(4, 2)[1, 0] == 2 ** (BITS - 1)
    assert sobol(0, 3, np.random.default_rng(0)).shape == (0, 3)
    points = sobol(50, 40, np.random.default_rng(0))
    np.testing.assert_array_equal(points, np.random.default_rng(0).random((50, 40)))


# -- meshes and refinements --------------------------------------------------------------------------


LIMIT = 2**28


def test_a_mesh_holds_every_combination_of_its_axis_once():
    points = mesh(3, 2, LIMIT)
    assert points.tolist() == [[a, b] for a in (0.0, 0.5, 1.0) for b in (0.0, 0.5, 1.0)]
    assert mesh(1, 3, LIMIT).tolist() == [[0.5, 0.5, 0.5]]


@pytest.mark.parametrize(("dimension", "limit"), [(1, 100), (5, 2**28)])
def test_the_size_that_an_error_names_does_fit_and_the_next_does_not(dimension, limit):
    most = largest_size(limit)
    assert 8 * most**2 <= limit < 8 * (most + 1) ** 2
    with pytest.raises(ConfigError) as caught:
        mesh(10**6, dimension, limit)
    fits = int(re.search(r"at most (\d+) points per axis", str(caught.value)).group(1))
    assert 8 * fits ** (2 * dimension) <= limit < 8 * (fits + 1) ** (2 * dimension)


@given(st.integers(1, 4), st.integers(1, 300), st.floats(0.0, 1.0), st.floats(1e-6, 2.0))
def test_refined_points_stay_in_the_box_and_in_the_cube(dimension, num_points, where, half_width):
    centre = np.full(dimension, where)
    points = refined(centre, half_width, num_points, LIMIT, generator(1, num_points))
    assert points.shape[1] == dimension
    assert 1 <= len(points) <= num_points
    assert ((points >= 0) & (points <= 1)).all()
    assert np.abs(points - centre).max() <= half_width * (1 + 1e-12) + 1e-15


def test_a_box_in_the_corner_reaches_the_corner():
    points = refined(np.ones(2), 0.1, 25, LIMIT, generator(0))
    assert [1.0, 1.0] in points.tolist()
    assert len(np.unique(points, axis=0)) == len(points), "none is outside and cut off"
    assert points.min() == pytest.approx(0.9)


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
