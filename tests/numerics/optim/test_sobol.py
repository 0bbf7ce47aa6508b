import numpy as np
import pytest
from scipy.stats import qmc

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.optim.sobol import BITS, sobol, unshifted


@pytest.mark.filterwarnings("ignore:The balance properties:UserWarning")
@pytest.mark.parametrize(("num_points", "dimension"), [(1, 1), (2, 3), (100, 2), (512, 9), (512, 32)])
def test_the_sequence_is_exactly_scipys(num_points, dimension):
    expected = qmc.Sobol(dimension, scramble=False).random(num_points)
    np.testing.assert_array_equal(unshifted(num_points, dimension) * 2.0**-BITS, expected)


def test_shifted_points_fill_every_cell_of_a_binary_grid_once_in_the_half_open_cube():
    points = sobol(256, 32, np.random.default_rng(0))
    assert len({tuple(cell) for cell in np.floor(16 * points[:, :2]).astype(int)}) == 256
    assert points.min() >= 0.0
    for column in points.T:
        assert sorted(np.floor(256 * column).astype(int)) == list(range(256))


def test_the_shift_comes_from_the_generator():
    first, again, other = (sobol(8, 3, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_callers_cannot_change_the_cached_sequence():
    with pytest.raises(ValueError, match="read-only"):
        unshifted(4, 2)[0] = 1
    sobol(4, 2, np.random.default_rng(0))[:] = 0.0
    assert unshifted(4, 2)[1, 0] == 2 ** (BITS - 1)


def test_many_dimensions_get_uniform_draws_and_no_points_have_the_right_shape():
    points = sobol(50, 40, np.random.default_rng(0))
    np.testing.assert_array_equal(points, np.random.default_rng(0).random((50, 40)))
    assert sobol(0, 3, np.random.default_rng(0)).shape == (0, 3)


def test_a_dimension_of_zero_is_refused():
    with pytest.raises(ConfigError, match="D > 0"):
        sobol(4, 0, np.random.default_rng(0))
