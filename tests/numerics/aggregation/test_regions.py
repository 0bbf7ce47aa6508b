"""Boxes that fill the cube, and functions that are pieced together from them."""

import numpy as np
import pytest

from fbo_flower.numerics.aggregation.regions import Boxes, BoxwiseLinearFunction
from fbo_flower.numerics.surrogates.rff import draw_features


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
