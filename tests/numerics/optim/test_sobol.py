import numpy as np
import pytest
from scipy.stats import qmc

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.optim.sobol import BITS, sobol, unshifted


@pytest.mark.filterwarnings("ignore:The balance properties:UserWarning")
@pytest.mark.parametrize("dimension", [1, 2, 3, 9, 32])
@pytest.mark.parametrize("num_points", [1, 2, 100, 512])
def test_the_sequence_is_exactly_scipys(num_points, dimension):
    expected = qmc.Sobol(dimension, scramble=False).random(num_points)
    np.testing.assert_array_equal(unshifted(num_points, dimension) * 2.0**-BITS, expected)


def test_shifted_points_fill_every_cell_of_a_binary_grid_once():
    points = sobol(256, 2, np.random.default_rng(0))
    cells = np.floor(16 * points).astype(int)
    assert len({tuple(cell) for cell in cells}) == 256


def test_each_axis_stays_balanced_and_in_the_half_open_cube():
    points = sobol(64, 32, np.random.default_rng(1))
    assert points.min() >= 0.0
    assert points.max() < 1.0
    for column in points.T:
        assert sorted(np.floor(64 * column).astype(int)) == list(range(64))


def test_the_shift_comes_from_the_generator():
    first, again, other = (sobol(8, 3, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_callers_cannot_change_the_cached_sequence():
    with pytest.raises(ValueError, match="read-only"):
        unshifted(4, 2)[0] = 1
    sobol(4, 2, np.random.default_rng(0))[:] = 0.0
    assert unshifted(4, 2)[1, 0] == 2 ** (BITS - 1)


def test_many_dimensions_get_uniform_draws():
    points = sobol(50, 40, np.random.default_rng(0))
    np.testing.assert_array_equal(points, np.random.default_rng(0).random((50, 40)))


def test_no_points_have_the_right_shape():
    assert sobol(0, 3, np.random.default_rng(0)).shape == (0, 3)


def test_a_dimension_of_zero_is_refused():
    with pytest.raises(ConfigError, match="D > 0"):
        sobol(4, 0, np.random.default_rng(0))
