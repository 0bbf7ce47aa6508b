"""The common unit of several agents' values, from the moments of each agent: number, mean and deviation.

Values may be as large as a float64, so nothing on the way may overflow or underflow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array

LARGEST = float(np.finfo(np.float64).max)
UNITS = 2.0 ** np.array([-60.0, -30.0, 0.0, 30.0, 60.0])  # factors of values in power sums
LARGEST_SUM = 1e15
FARTHEST = 4.0  # moments are clipped to this many deviations of the median agent


def moments(values: Array) -> Array:
    """Return number, mean and standard deviation `(3,)`, of values `(n,)`."""
    largest = float(np.max(np.abs(values), initial=0.0))
    exponent = int(np.frexp(largest)[1])
    small = np.ldexp(values, -exponent)
    spread = float(small.std())
    if spread <= 1e-12 * float(np.max(np.abs(small), initial=0.0)):
        spread = 0.0
    return np.array([len(values), np.ldexp(small.mean(), exponent), np.ldexp(spread, exponent)])


def pooled_units(moments: Sequence[Array]) -> tuple[float, float]:
    """Return mean and standard deviation of all values, from each agent's number, mean and deviation."""
    number, mean, stddev = np.array(moments).T
    exponent = int(np.frexp(float(np.max(np.abs(np.concatenate([mean, stddev])))))[1])
    # so that squares neither overflow nor underflow
    mean, stddev = np.ldexp(mean, -exponent), np.ldexp(stddev, -exponent)
    weights = number / number.sum()
    shift = float(weights @ mean)
    variance = float(weights @ (stddev**2 + (mean - shift) ** 2))
    with np.errstate(over="ignore"):
        scale = min(float(np.ldexp(np.sqrt(variance), exponent)), LARGEST)
    return float(np.ldexp(shift, exponent)), scale if scale > 0.0 else 1.0


def bounded_moments(moments: Sequence[Array]) -> list[Array]:
    """Return each agent's number, mean and deviation clipped to a range around the medians over agents.

    The number is at most the median number, the deviation within a factor of `FARTHEST` of the median
    deviation, the mean within `FARTHEST` median deviations of the median mean. For an even number of agents
    the lower median is used, because averaging two huge values could overflow.
    """
    number, mean, stddev = np.array(moments).T
    middle = [float(np.sort(column)[(len(column) - 1) // 2]) for column in (number, mean, stddev)]
    with np.errstate(over="ignore"):
        reach = min(FARTHEST * middle[2], LARGEST)
        low, high = max(middle[1] - reach, -LARGEST), min(middle[1] + reach, LARGEST)
    number = np.minimum(number, middle[0])
    mean, stddev = np.clip(mean, low, high), np.clip(stddev, middle[2] / FARTHEST, reach)
    return list(np.stack([number, mean, stddev], axis=1))


def power_sums(moments: Array) -> Array:
    """Return number, sum and sum of squares of an agent's values, `(5, 3)`, from its moments.

    Secure sums have fixed points, and nobody knows the unit of the values yet. So the sums are there once for
    each of `UNITS`, with zeros where they are too large.
    """
    number, mean, stddev = moments
    with np.errstate(over="ignore"):
        scaled = np.outer(UNITS, [mean, stddev])
        values = number * np.stack([np.ones(len(UNITS)), scaled[:, 0], (scaled**2).sum(axis=1)], axis=1)
    values[~(np.abs(values) <= LARGEST_SUM).all(axis=1)] = 0.0
    return np.asarray(values, dtype=np.float64)


def from_power_sums(sums: Array) -> Array | None:
    """Return the moments `(3,)` of all agents' values from their summed power sums; None without values."""
    counts = sums[:, 0]
    if counts.max() < 1.0:
        return None
    finest = int(np.flatnonzero(counts > counts.max() - 0.5)[-1])  # of the units that suit all agents
    number, total, squares = sums[finest]
    mean = total / number
    stddev = float(np.sqrt(max(0.0, squares / number - mean**2))) / UNITS[finest]
    return np.array([number, mean / UNITS[finest], stddev])
