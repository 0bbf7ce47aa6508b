"""Transforms applied to observations before a surrogate is fitted; all are monotone.

Only the argmax of a surrogate is used, so no inverse transforms are needed.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

Y_TRANSFORMS = ("standardise", "rank", "clip", "winsorise")
ROUNDING = (1e-12, 4 * 2.0**-23)  # relative, of numbers in float64 and in float32
FENCE = 3.0  # the lower fence lies this many spreads below the median


def standardise(y: Array) -> Array:
    """Return `y` `(n,)` with mean 0 and standard deviation 1; all equal values become zeros."""
    if len(y) == 0:
        return y
    # scale by a power of two, which is exact, so that squares neither overflow nor underflow
    y = np.ldexp(y, -np.frexp(np.maximum.reduce(np.abs(y)))[1])
    # plain sums instead of y.mean() and y.std(), which take the same sums but three times as long
    centred = y - np.add.reduce(y) / len(y)
    deviations = centred - np.add.reduce(centred) / len(y)
    stddev = np.sqrt(np.add.reduce(deviations * deviations) / len(y))
    return centred / stddev if stddev > ROUNDING[False] * np.maximum.reduce(np.abs(y)) else np.zeros_like(y)


def all_equal(y: Array) -> bool:
    """Return whether the rows of `y (n, ...)` are equal up to rounding.

    Numbers that float32 can hold may come from a sum in float32.
    """
    if not len(y):
        return True
    with np.errstate(over="ignore"):  # of large numbers
        single = bool((y.astype(np.float32) == y).all())
        spread = y.max(axis=0) - y.min(axis=0)
    return bool((spread <= ROUNDING[single] * np.abs(y).max(axis=0)).all())


def mean_ranks(y: Array) -> Array:
    """Return the ranks 1 .. n of the last axis of `y`, ties sharing their mean rank."""
    _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse].reshape(y.shape), dtype=np.float64)


def winsorise(y: Array) -> Array:
    """Return `y` `(n,)` with diverged low values raised to a fence, so that they do not flatten the others.

    The fence lies `FENCE` spreads below the median of the distinct values. The spread is the distance from
    this median to the largest value: half of the values, and all that a search for the largest one cares
    about. With fewer than three distinct values nothing is raised.
    """
    ordered = np.sort(y)
    distinct = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(y) else y
    if len(distinct) < 3:
        return y
    exponent = np.frexp(np.max(np.abs(distinct)))[1]  # a power of two: exact, and no sum overflows
    scaled = np.ldexp(distinct, -exponent)
    median = 0.5 * (scaled[(len(scaled) - 1) // 2] + scaled[len(scaled) // 2])
    with np.errstate(over="ignore"):  # a fence of -inf raises nothing
        fence = np.ldexp(median - FENCE * (scaled[-1] - median), exponent)
    return np.asarray(np.maximum(y, fence), dtype=np.float64)


def transform(y: Array, name: str) -> Array:
    """Return `y` `(n,)` transformed and standardised.

    Parameters
    ----------
    name : "standardise": mean 0, s.d. 1; "rank": normal scores `Phi^-1((rank - 1/2) / n)`, ties sharing the
        mean rank; "clip": normal scores,
        values below the median are set to the median; "winsorise": low outliers are raised to a fence, see
        `winsorise`
    """
    if name not in Y_TRANSFORMS:
        raise ConfigError(f"y_transform: expected one of {', '.join(Y_TRANSFORMS)}, got {name!r}")
    if name == "winsorise":
        y = winsorise(y)
    elif name != "standardise":
        from scipy.special import ndtri

        y = np.asarray(ndtri((mean_ranks(y) - 0.5) / max(len(y), 1)), dtype=np.float64)
    if name == "clip" and len(y):
        y = np.maximum(y, np.median(y))
    return standardise(y)


def compressed(values: Array, kind: str, scale: float) -> Array:
    """Return the transform "log", `sign(v) log(1 + |v|)`, or "asinh" of `values / scale (n,)`, or "none"."""
    if kind == "none":
        return values
    v = values / scale
    return np.arcsinh(v) if kind == "asinh" else np.sign(v) * np.log1p(np.abs(v))


def expanded(value: float, kind: str, scale: float) -> float:
    """Return the value whose transform by `compressed` is `value`."""
    if kind == "none":
        return value
    with np.errstate(over="ignore"):
        return scale * float(np.sinh(value) if kind == "asinh" else np.sign(value) * np.expm1(abs(value)))
