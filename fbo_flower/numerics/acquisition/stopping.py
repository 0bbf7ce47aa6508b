"""When a search has nothing left to gain: a bound on what its best value lacks [Makarova2022].

With a high probability the function lies within `m(x) +- sqrt(beta) s(x)` for all `x`. So what is left to
gain over the evaluated points `X` is at most

    max_x [m(x) + sqrt(beta) s(x)] - max_(x in X) [m(x) - sqrt(beta) s(x)].

As in the paper, and in Optuna's `RegretBoundEvaluator`, `beta` is a fifth of the theory's, and the first
maximum is over sampled points.

[Makarova2022] Makarova, Shen, Perrone, Klein, Faddoul, Krause, Seeger, Archambeau: Automatic termination for
hyperparameter optimization, AutoML 2022.
"""

from __future__ import annotations

import math

import numpy as np

from fbo_flower.numerics.acquisition.feasible import feasible
from fbo_flower.numerics.arrays import Array

DELTA = 0.1  # probability that the bound does not hold


def confidence(num_points: int, dimension: int) -> float:
    """Return `sqrt(beta)` after a number of evaluations, in a space of some dimension."""
    return math.sqrt(0.4 * math.log(dimension * num_points**2 * math.pi**2 / (6.0 * DELTA)))


def left_to_gain(mean: Array, stddev: Array, num_own: int, least: Array, factor: float) -> float:
    """Return the bound for the first output, inf if no own point holds every limit by its means.

    Where a limit may hold, a point counts as feasible for the first maximum.

    Parameters
    ----------
    mean, stddev : `(O, m)`, of outputs at sampled points and, the last `num_own`, at own points
    least : `(O,)`, the limits, -inf for an output without one
    factor : `confidence`
    """
    holds = feasible(mean[:, -num_own:], least)
    if not holds.any():
        return math.inf
    upper, lower = mean + factor * stddev, mean - factor * stddev
    highest = np.where(feasible(upper, least), upper[0], -np.inf).max()
    return float(highest - lower[0, -num_own:][holds].max())
