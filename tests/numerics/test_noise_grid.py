"""Noise on a grid: nothing grows by rounding, and the noise has the variance that the account assumes."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.noise_grid import add_noise, grid_step, noise_variance, to_steps
from fbo_flower.secure.fixed_point import RESOLUTION


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.floats(1e-6, 1e6), st.floats(0, 1e6))
def test_rounding_makes_no_vector_longer_and_moves_it_by_less_than_a_step(values, bound, multiplier):
    step, vector = grid_step(bound, multiplier), bound * np.array(values)
    rounded = to_steps(vector, step) * step
    assert (np.abs(rounded) <= np.abs(vector)).all()
    assert (np.abs(rounded - vector) < step).all()
    np.testing.assert_array_equal(to_steps(rounded, step) * step, rounded)  # it is on the grid


@given(st.floats(1e-6 / 16, 1e6), st.floats(0, 1e6))
def test_steps_are_powers_of_two_far_below_the_noise_and_secure_sums_hold_them(bound, multiplier):
    step = grid_step(bound, multiplier)
    assert math.frexp(step)[0] == 0.5
    assert step >= RESOLUTION, "a secure sum rounds to its own grid, which must be finer"
    # sums, and noise of 50 standard deviations, are exact in float64
    assert (bound + 50 * 2 * max(1.0, multiplier) * bound) / step < 2**53
    if multiplier >= 1e-3:
        assert 2 * multiplier * bound / step > 2**30


def test_noise_has_the_variance_it_is_asked_for_and_lies_on_the_grid():
    step, stddev = grid_step(1.0, 1.0), 0.7
    steps = to_steps(np.linspace(-1, 1, 3000).reshape(30, 100), step)
    noisy = add_noise(steps, stddev, step, uniform_from(np.random.default_rng(0)))
    assert noisy.shape == steps.shape
    np.testing.assert_array_equal(np.round(noisy / step) * step, noisy)
    drawn = np.ravel(noisy - steps * step) / stddev
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert stats.kstest(drawn * 1.2, "norm").pvalue < 1e-3  # negative control
    assert 0 <= noise_variance(stddev, step) / (stddev / step) ** 2 - 1 < 1e-8, "rounded up"
    np.testing.assert_array_equal(add_noise(steps, 0.0, step, lambda n: 1 // 0), steps * step)
