"""Sums and differences of finite values that stay finite, whatever the values are.

An objective may return any finite float; `sys.float_info.max` is a usual penalty. The sum of two such values
overflows, and so does the square of one. So values are divided by a power of two before they are added or
squared: this is exact, and the result is multiplied again. A result beyond the largest float becomes the
largest float. Reports, fronts and summaries use these functions and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array, IntArray

LARGEST = float(np.finfo(np.float64).max)
SMALLEST = float(np.finfo(np.float64).tiny)  # a share of a smaller number may be 0
FARTHEST = 1e100  # of a standardised value: other agents' units may be far smaller


def scaled(values: Array, axis: int | None = None) -> tuple[Array, IntArray]:
    """Return values divided by a power of two, so that none exceeds 1, and the exponents of that power.

    Values that are not finite stay as they are and do not count.

    Examples
    --------
    >>> scaled(np.array([1e308, -5e307]))[0].round(3).tolist()
    [0.556, -0.278]
    """
    largest = np.max(np.abs(values), axis=axis, initial=0.0, where=np.isfinite(values), keepdims=True)
    exponents = np.frexp(largest)[1].astype(np.int64)
    return np.ldexp(values, -exponents), exponents


def unscaled(values: Array, exponents: IntArray) -> Array:
    """Return values multiplied by a power of two, at most the largest float."""
    with np.errstate(over="ignore"):
        return np.clip(np.ldexp(values, exponents), -LARGEST, LARGEST)


def difference(a: Any, b: Any) -> Any:
    """Return `a - b`, of numbers or arrays, within the range of floats.

    Examples
    --------
    >>> float(difference(1e308, -1e308)) == LARGEST
    True
    """
    with np.errstate(over="ignore"):
        return np.clip(np.subtract(a, b), -LARGEST, LARGEST)


def standardised(values: Array, shift: float, scale: float) -> Array:
    """Return `(values - shift) / scale`, so that the sum of their squares is finite, too."""
    with np.errstate(over="ignore"):
        found: Array = np.clip(difference(values, shift) / scale, -FARTHEST, FARTHEST)
    return found


def mean_and_stderr(values: Array) -> tuple[Array, Array]:
    """Return the mean of each column and its standard error `s / sqrt(n)`; NaN is left out.

    Parameters
    ----------
    values : `(n, num_columns)`

    Returns
    -------
    mean : `(num_columns,)`, NaN without values
    stderr : `(num_columns,)`, NaN with fewer than two
    """
    values, exponents = scaled(values, axis=0)
    known = np.isfinite(values)
    count = known.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(known, values, 0.0).sum(axis=0) / count
        squares = np.where(known, values - mean, 0.0) ** 2
        stderr = np.sqrt(squares.sum(axis=0) / (count - 1.0) / count)  # n = 1: 0 / 0
    mean, stderr = np.where(count > 0, mean, np.nan), np.where(count > 1, stderr, np.nan)
    return unscaled(mean, exponents[0]), unscaled(stderr, exponents[0])


def mean(values: Array) -> float:
    """Return the mean of finite values `(n,)`, of which there is at least one."""
    values, exponents = scaled(values)
    return float(unscaled(values.mean(), exponents)[0])


def running_sum(values: Array) -> Array:
    """Return the sums of the first 1, 2, .. of the values `(n,)`, which are finite."""
    values, exponents = scaled(values)
    return unscaled(np.cumsum(values), exponents)


def between(start: float, end: float, share: float) -> float:
    """Return the number that lies a share of the way from `start` to `end`."""
    return 2 * (start / 2 + share * (end / 2 - start / 2))


def span(low: float, high: float, share: float, least: float = 0.0) -> tuple[float, float]:
    """Return an interval that is wider by a share of itself on either side, within the range of floats.

    Parameters
    ----------
    least : share of its size, by which an interval of one point becomes wider
    """
    size = abs(high) if abs(high) > SMALLEST else 1e-12
    margin = share * difference(high, low) if high > low else least * size
    return float(difference(low, margin)), float(difference(high, -margin))
