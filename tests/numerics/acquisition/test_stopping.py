"""The bound on what a search has left to gain."""

import math

import numpy as np
import pytest

from fbo_flower.numerics.acquisition.feasible import confidence, left_to_gain

MEAN = np.array([[1.0, 3.0, 2.0, 0.5], [0.0, -1.0, 1.0, 2.0]])  # two sampled points, two own ones
STDDEV = np.array([[0.5, 1.0, 0.1, 0.0], [0.5, 0.2, 0.1, 0.1]])
NONE = np.full(2, -np.inf)


def test_the_confidence_is_that_of_optuna():
    evaluator = pytest.importorskip("optuna.terminator.improvement.evaluator")
    for num_points, dimension in ((2, 1), (20, 5), (400, 12)):
        expected = math.sqrt(evaluator._get_beta(dimension, num_points))
        assert confidence(num_points, dimension) == pytest.approx(expected)


def test_the_bound_is_the_highest_upper_less_the_highest_lower_bound_at_own_points():
    assert left_to_gain(MEAN[:1], STDDEV[:1], 2, NONE[:1], 2.0) == pytest.approx((3.0 + 2.0) - (2.0 - 0.2))
    assert left_to_gain(MEAN, np.zeros((2, 4)), 4, NONE, 2.0) == 0.0


def test_only_points_that_may_hold_the_limits_count_and_own_ones_that_do():
    least = np.array([-np.inf, 0.0])  # the second sampled point cannot hold it
    assert left_to_gain(MEAN, STDDEV, 2, least, 2.0) == pytest.approx((2.0 + 0.2) - (2.0 - 0.2))
    least = np.array([-np.inf, 1.5])  # the first own point does not, the first sampled one cannot
    assert left_to_gain(MEAN, STDDEV, 2, least, 2.0) == pytest.approx(0.0)
    assert left_to_gain(MEAN, STDDEV, 2, np.array([-np.inf, 3.0]), 2.0) == math.inf
