import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.numerics.bandits import partition


@st.composite
def cells(draw):
    """(depth, index, dim, arity) of any cell that exists."""
    dim = draw(st.integers(1, 10))
    arity = draw(st.sampled_from([2, 2**dim])) if dim <= 3 else 2
    depth = draw(st.integers(0, partition.max_depth(dim, arity)))
    index = draw(st.integers(0, partition.num_cells(depth, dim, arity) - 1))
    return depth, index, dim, arity


def plain_cell(depth, index, dim, arity):
    """The definition, one split after the other."""
    low, high = np.zeros(dim), np.ones(dim)
    for h in range(depth):
        digit = index // arity ** (depth - 1 - h) % arity
        axes = [h % dim] if arity == 2 else range(dim)
        for position, axis in enumerate(axes):
            upper = digit >> (len(axes) - 1 - position) & 1
            middle = (low[axis] + high[axis]) / 2
            low[axis], high[axis] = (middle, high[axis]) if upper else (low[axis], middle)
    return low, high


@given(cells())
def test_bounds_and_centres_are_those_of_one_split_after_the_other_also_of_many_cells_at_once(cell):
    depth, index, dim, arity = cell
    low, high = plain_cell(*cell)
    np.testing.assert_array_equal(partition.cell(*cell), [low, high])
    np.testing.assert_array_equal(partition.centre(*cell), (low + high) / 2)
    others = np.array([index, 0, index])
    np.testing.assert_array_equal(partition.centre(depth, others, dim, arity)[[0, 2]], [(low + high) / 2] * 2)


@given(cells(), cells())
def test_numbers_tell_cells_apart_and_ascend_with_depth_and_index(cell, other):
    depth, index, dim, arity = cell
    if depth < partition.max_depth(dim, arity):  # children in the order of their digits
        assert partition.children([index], arity).tolist() == [arity * index + j for j in range(arity)]
    number = partition.number(depth, index, arity)
    assert [int(part) for part in partition.place(number, arity)] == [depth, index]
    if other[3] == arity:
        assert (number < partition.number(other[0], other[1], arity)) == (cell[:2] < other[:2])
    assert partition.place(np.array([0, -5]), arity)[0].tolist() == [-1, -1]


def test_the_deepest_cells_are_those_that_are_exact():
    assert (partition.max_depth(1), partition.max_depth(2), partition.max_depth(3, 8)) == (52, 62, 20)
