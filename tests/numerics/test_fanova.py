"""Functional ANOVA of functions on boxes: closed forms, and a grid that is summed by hand."""

from itertools import combinations, product

import numpy as np

from fbo_flower.numerics.fanova import StepFunction, mean_over_others, variance_shares


def grid_boxes(edges, values):
    """Return a function on the cells of a grid."""
    cells = list(product(*(range(len(edge) - 1) for edge in edges)))
    low = np.array([[edges[d][i] for d, i in enumerate(cell)] for cell in cells])
    high = np.array([[edges[d][i + 1] for d, i in enumerate(cell)] for cell in cells])
    return StepFunction(low, high, np.array([values[cell] for cell in cells]))


def random_function(seed):
    rng = np.random.default_rng(seed)
    edges = [np.concatenate([[0.0], np.sort(rng.random(k)), [1.0]]) for k in (3, 2, 4)]
    return edges, rng.normal(size=[len(edge) - 1 for edge in edges])


def test_shares_are_those_of_a_grid_that_is_summed_by_hand():
    edges, values = random_function(0)
    widths = [np.diff(edge) for edge in edges]
    weights = np.einsum("i,j,k->ijk", *widths)
    mean = (values * weights).sum()
    variance = ((values - mean) ** 2 * weights).sum()

    def part(*axes):
        """Variance of the mean over all other axes."""
        others = tuple(d for d in range(3) if d not in axes)
        own = weights.sum(axis=others)
        marginal = (values * weights).sum(axis=others) / own
        return float(((marginal - mean) ** 2 * own).sum())

    pairs = list(combinations(range(3), 2))
    singles, interactions = variance_shares(grid_boxes(edges, values), pairs)
    np.testing.assert_allclose(singles, [part(d) / variance for d in range(3)])
    expected = [(part(a, b) - part(a) - part(b)) / variance for a, b in pairs]
    np.testing.assert_allclose(interactions, expected, atol=1e-12)


def test_means_over_others_are_those_of_the_grid():
    edges, values = random_function(9)
    boxes = grid_boxes(edges, values)
    widths = [np.diff(edge) for edge in edges]
    x, y = (edges[0][:-1] + edges[0][1:]) / 2, (edges[2][:-1] + edges[2][1:]) / 2
    one = mean_over_others(boxes, [0], [x])
    np.testing.assert_allclose(one, np.einsum("ijk,j,k->i", values, widths[1], widths[2]))
    two = mean_over_others(boxes, [2, 0], [y, x])
    np.testing.assert_allclose(two, np.einsum("ijk,j->ki", values, widths[1]))


def test_a_constant_function_has_no_shares():
    boxes = StepFunction(np.zeros((1, 2)), np.ones((1, 2)), np.array([3.0]))
    assert [share.tolist() for share in variance_shares(boxes, [(0, 1)])] == [[0, 0], [0]]
    assert boxes.mean == 3
