"""Noise on a grid: nothing grows by rounding, and the accountant of the continuous Gaussian applies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.noise_grid import add_noise, grid_step, noise_variance, to_steps
from fbo_flower.secure.fixed_point import RESOLUTION


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.floats(1e-6, 1e6), st.floats(0, 1e6))
def test_rounding_makes_no_vector_longer_and_moves_it_by_less_than_a_step(
    values: list[float], bound: float, multiplier: float
) -> None:
    step, vector = grid_step(bound, multiplier), bound * np.array(values)
    rounded = to_steps(vector, step) * step
    assert (np.abs(rounded) <= np.abs(vector)).all()
    assert (np.abs(rounded - vector) < step).all()
    np.testing.assert_array_equal(to_steps(rounded, step) * step, rounded)  # it is on the grid


@given(st.floats(1e-6 / 16, 1e6), st.floats(0, 1e6))
def test_steps_are_powers_of_two_far_below_the_noise_and_secure_sums_hold_them(
    bound: float, multiplier: float
) -> None:
    step = grid_step(bound, multiplier)
    assert math.frexp(step)[0] == 0.5
    assert step >= RESOLUTION, "a secure sum rounds to its own grid, which must be finer"
    # sums, and noise of 50 standard deviations, are exact in float64
    assert (bound + 50 * 2 * max(1.0, multiplier) * bound) / step < 2**53
    if multiplier >= 1e-3:
        assert 2 * multiplier * bound / step > 2**30


def test_noise_has_the_variance_it_is_asked_for_and_lies_on_the_grid() -> None:
    step, stddev = grid_step(1.0, 1.0), 0.7
    steps = to_steps(np.linspace(-1, 1, 3000).reshape(30, 100), step)
    noisy = add_noise(steps, stddev, step, uniform_from(np.random.default_rng(0)))
    assert noisy.shape == steps.shape
    np.testing.assert_array_equal(np.round(noisy / step) * step, noisy)
    drawn = np.ravel(noisy - steps * step) / stddev
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert stats.kstest(drawn * 1.2, "norm").pvalue < 1e-3  # negative control
    assert noise_variance(stddev, step) >= (stddev / step) ** 2
    np.testing.assert_array_equal(add_noise(steps, 0.0, step, lambda n: 1 // 0), steps * step)


# -- what the accountant promises for it ---------------------------------------------------------------


def discrete_delta(stddev: float, shift: int, epsilon: float) -> float:
    """Return the exact delta of a discrete Gaussian whose integer mean moves by `shift`."""
    reach = int(40 * stddev) + shift + 50
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    logs = [-((x - mean) ** 2) / (2 * stddev**2) for mean in (0, shift)]
    plain, moved = (each - np.log(np.sum(np.exp(each))) for each in logs)
    return float(np.sum(np.maximum(0.0, np.exp(moved) - np.exp(epsilon + plain))))


def continuous_delta(multiplier: float, epsilon: float) -> float:
    """Return the exact delta of the Gaussian mechanism [Balle and Wang, 2018, Theorem 8]."""
    z, half = multiplier, 1 / (2 * multiplier)
    return float(stats.norm.sf(epsilon * z - half) - np.exp(epsilon) * stats.norm.sf(epsilon * z + half))


def largest_excess(multiplier: float, shift: int) -> float:
    """Return by how much, relative to it, the continuous delta is exceeded over all relevant epsilons."""
    epsilons = [e for e in np.linspace(0, 4 / multiplier + 1, 31) if continuous_delta(multiplier, e) > 1e-8]
    return max(
        discrete_delta(multiplier * shift, shift, e) / continuous_delta(multiplier, e) - 1 for e in epsilons
    )


@pytest.mark.parametrize("multiplier", [1.0, 4.0])
def test_on_a_fine_grid_delta_is_that_of_the_continuous_gaussian(multiplier: float) -> None:
    excess = {s: largest_excess(multiplier, round(s / multiplier)) for s in (4, 32, 1024)}
    assert excess[4] > 0.05, "negative control: on a coarse grid the continuous account is too low"
    for steps, found in excess.items():
        assert found < 1.5 / steps**2, (steps, found)
    assert excess[1024] < 1.5e-6  # a message's noise has 2^30 steps or more, see above


@pytest.mark.parametrize("order", [1.5, 32.0])
@pytest.mark.parametrize(("stddev", "shift"), [(1.0, 1), (2.0, 3), (16.0, 5)])
def test_renyi_divergences_are_at_most_those_of_the_continuous_gaussian(
    order: float, stddev: float, shift: int
) -> None:
    """Concentrated differential privacy holds on any grid [Canonne2020, Theorem 4]."""
    reach = int(60 * stddev) + 40 * shift
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    plain, moved = (-((x - mean) ** 2) / (2 * stddev**2) for mean in (0, shift))
    plain, moved = (each - np.log(np.sum(np.exp(each))) for each in (plain, moved))
    divergence = logsumexp(order * moved + (1 - order) * plain) / (order - 1)
    assert divergence <= order * shift**2 / (2 * stddev**2) * (1 + 1e-9)
