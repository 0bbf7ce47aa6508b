"""Ackley and Rastrigin, and what is true of every X-armed function."""

import math

import numpy as np
import pytest
from every_xarmed import *  # noqa: F403

from fbo_flower.simulation.problems import shifts
from studies.problems import Ackley, Rastrigin10D


def at(problem, *points):
    return problem.values(np.array(points, dtype=float), 0)


def test_values_worked_by_hand():
    still = {"shift_stddev": 0.0}
    assert at(Ackley(1, 0, **still), [0.5, 0.5])[0] == pytest.approx(1.0)
    corner = 20 * math.exp(-0.2) + math.e - math.e - 20
    lowest = abs(20 * math.exp(-0.2 * math.sqrt(0.5)) + math.exp(-1) - 20 - math.e)
    assert at(Ackley(1, 0, **still), [1.0, 1.0])[0] == pytest.approx(1 + corner / lowest)
    assert at(Rastrigin10D(1, 0, **still), [0.5] * 10, [1.0] * 10) == pytest.approx([1.0, 0.95])
    assert at(Rastrigin10D(1, 0, **still), [0.25] * 10)[0] == pytest.approx(1 - 20.25 / 20)  # the dip below 0
    assert Ackley(1, 0, **still).optimum(0) == pytest.approx(1.0, abs=1e-9)


def test_the_optimum_is_over_what_can_be_reached():
    for seed in range(300):
        problem = Ackley(1, seed, shift_stddev=0.5)
        if np.abs(shifts(problem)).max() > 0.6:
            break
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 801)] * 2), axis=-1).reshape(-1, 2)
    assert problem.optimum(0) < 1.0  # a clipped maximum would be 1
    assert problem.optimum(0) == pytest.approx(problem.values(grid, 0).max(), abs=2e-3)
