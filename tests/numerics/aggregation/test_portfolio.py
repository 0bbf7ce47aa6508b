"""Boxes that fill the cube, and functions that are pieced together from them."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from fbo_flower.numerics.aggregation.portfolio import (
    Boxes,
    BoxwiseLinearFunction,
    next_point,
    rank_agreement,
    standardise_columns,
)
from fbo_flower.numerics.surrogates.rff import draw_features


def matrix(seed, size=40, num=5):
    return standardise_columns(np.random.default_rng(seed).standard_normal((size, num)))


def gain(z, chosen):
    """Mean over messages of the best value among the chosen points."""
    return z[list(chosen)].max(axis=0).mean()


def test_columns_get_mean_0_and_stddev_1_and_constants_become_0():
    values = np.random.default_rng(0).uniform(-10, 10, (7, 3))
    values[:, 1] = 0.1
    z = standardise_columns(values)
    for column, plain in zip(z.T, values.T, strict=True):
        expected = 0.0 * plain if plain.std() < 1e-12 else (plain - plain.mean()) / plain.std()
        np.testing.assert_allclose(column, expected)


@pytest.mark.parametrize("num", [1, 5])
def test_greedy_choice_is_the_one_of_brute_force(num):
    z = matrix(num, num=num)
    taken = []
    for _ in range(4 if num > 1 else 1):
        totals = [gain(z, [*taken, s]) for s in range(len(z))]
        assert totals[next_point(z, z[taken])] == pytest.approx(max(totals))
        taken.append(int(np.argmax(totals)))


@pytest.mark.parametrize("ties", [False, True])
def test_agreement_is_spearmans_correlation_and_0_for_constants(ties):
    rng = np.random.default_rng(ties)
    z, target = rng.standard_normal((12, 4)), rng.standard_normal(12)
    if ties:
        z, target = np.round(z), np.round(target)
    expected = [spearmanr(column, target).statistic for column in z.T]
    np.testing.assert_allclose(rank_agreement(z, target), expected, atol=1e-12)
    np.testing.assert_array_equal(rank_agreement(np.ones((12, 1)), target), [0.0])
    np.testing.assert_array_equal(rank_agreement(z, np.ones(12)), np.zeros(4))
    assert rank_agreement(z[:, :0], target).shape == (0,)


def test_no_point_is_advised_that_improves_nothing():
    z = matrix(0)
    assert next_point(z, z.max(axis=0)[None, :]) is None, "the points taken are the best for every message"
    assert next_point(np.zeros((6, 2)), np.empty((0, 2))) is None, "constant messages prefer no point"
    better = z.max(axis=0).copy()
    better[1] -= 0.1
    assert next_point(z, better[None, :]) == z[:, 1].argmax()


def test_four_boxes_of_a_square_are_its_quarters_in_order():
    boxes = Boxes.halve(4, 2)
    assert boxes.low.tolist() == [[0, 0], [0, 0.5], [0.5, 0], [0.5, 0.5]]
    assert boxes.high.tolist() == [[0.5, 0.5], [0.5, 1], [1, 0.5], [1, 1]]
    assert len(Boxes.halve(1, 0)) == 1
    many = Boxes.halve(64, 3)
    np.testing.assert_allclose(many.high - many.low, 0.25)


@pytest.mark.parametrize(("count", "dim"), [(1, 1), (5, 1), (7, 2), (12, 3)])
def test_every_point_is_in_exactly_one_box_and_stretched_points_in_theirs(count, dim):
    boxes = Boxes.halve(count, dim)
    assert np.prod(boxes.high - boxes.low, axis=1).sum() == pytest.approx(1.0)
    rng = np.random.default_rng(count)
    x = np.concatenate([rng.random((20, dim)), rng.integers(0, 3, (10, dim)) / 2])
    owners = ((x[:, None] >= boxes.low) & ((x[:, None] < boxes.high) | (boxes.high == 1))).all(axis=2)
    assert (owners.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(boxes.index(x), owners.argmax(axis=1))
    for box in range(count):
        assert (boxes.index(boxes.stretch(rng.random((5, dim)), box)) == box).all()


def test_a_piecewise_function_is_in_every_box_that_of_its_weights():
    rng = np.random.default_rng(0)
    features = draw_features(12, 0.5, 3, rng)
    boxes, weights = Boxes.halve(4, 2), rng.standard_normal((4, 12))
    columns = np.array([0, 2])
    f = BoxwiseLinearFunction(features, weights, boxes, columns)
    z = rng.random((30, 3))
    phi = features(z)
    expected = [phi[i] @ weights[boxes.index(z[[i]][:, columns])[0]] for i in range(30)]
    np.testing.assert_allclose(f(z), expected, rtol=1e-12)
    values, gradients = f.value_and_gradient(z)
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    inner = np.abs(z[:, columns] - 0.5).min(axis=1) > 1e-3
    for axis in range(3):
        step = np.zeros(3)
        step[axis] = 1e-6
        slope = (f(z + step) - f(z - step)) / 2e-6
        np.testing.assert_allclose(gradients[inner, axis], slope[inner], atol=1e-6)
