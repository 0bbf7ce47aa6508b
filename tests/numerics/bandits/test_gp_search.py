import numpy as np
import pytest

from fbo_flower.numerics.bandits import gp_search


def test_the_design_of_all_agents_together_is_one_sobol_sequence():
    together = np.concatenate([gp_search.design(2, 4, place, 0, 4, 7) for place in range(4)])
    assert len(np.unique(np.floor(together * 4), axis=0)) == 16  # one point in each of 4 x 4 boxes
    later = gp_search.design(2, 4, 1, 2, 2, 7)
    np.testing.assert_array_equal(later, gp_search.design(2, 4, 1, 0, 4, 7)[2:])


@pytest.mark.parametrize(("num_pulls", "following"), [(1, 2), (3, 4), (4, 5), (8, 10), (20, 25)])
def test_the_next_exchange_comes_after_a_quarter_more_pulls(num_pulls, following):
    assert gp_search.next_exchange(num_pulls) == following


@pytest.mark.parametrize(("dim", "num_agents", "expected"), [(1, 1, 8), (2, 4, 3), (2, 5, 3), (3, 100, 2)])
def test_first_points_of_all_agents_together_are_four_for_each_coefficient(dim, num_agents, expected):
    assert gp_search.design_size(dim, num_agents) == expected
