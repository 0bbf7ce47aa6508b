"""Numbers whose sums are exact in any order: 64 bits before the point and 64 behind it, modulo `2^128`.

A number is a row of two uint64, `[fraction, whole]`, in two's complement. An encoded number is off by
`2^-65` at most, a sum of `N` of them by `N 2^-65`; from `|x| = 2^-12` on a float64 is encoded exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

LARGEST = 2.0**62  # of a sum
RESOLUTION = 2.0**-64
_ONE = np.uint64(1)


def encode(values: npt.ArrayLike, bound: float) -> Words:
    """Return numbers in fixed point.

    Parameters
    ----------
    values : `(n,)`
    bound : of their absolute values

    Returns
    -------
    `(n, 2)`

    Raises
    ------
    ConfigError
        If a number is not finite, or outside its bound.
    """
    given = np.asarray(values, dtype=np.float64)
    size = np.abs(given)
    if not (size <= min(bound, LARGEST)).all():
        worst = given[int(np.argmax(np.where(np.isfinite(size), size, np.inf)))]
        raise ConfigError(f"secure_sums: expected numbers between -{bound:g} and {bound:g}, got {worst:g}")
    whole = np.floor(size)
    fraction = np.rint((size - whole) / RESOLUTION)  # below 2^64: a float64 below 1 is 2^-53 from it
    words = np.stack([fraction.astype(np.uint64), whole.astype(np.uint64)], axis=1)
    return np.where((given < 0)[:, None], negate(words), words)


def decode(words: Words) -> Array:
    """Return numbers `(n,)` from fixed point `(n, 2)`, correct to the last place of float64."""
    negative = words[:, 1] >> np.uint64(63) == _ONE
    size = np.where(negative[:, None], negate(words), words)
    values = size[:, 1].astype(np.float64) + size[:, 0].astype(np.float64) * RESOLUTION
    return np.where(negative, -values, values)


def add(first: Words, second: Words) -> Words:
    """Return the sums, modulo `2^128`; all `(n, 2)`."""
    fraction = first[:, 0] + second[:, 0]
    carry = (fraction < first[:, 0]).astype(np.uint64)
    return np.stack([fraction, first[:, 1] + second[:, 1] + carry], axis=1)


def negate(words: Words) -> Words:
    """Return the negatives, modulo `2^128`."""
    fraction = ~words[:, 0] + _ONE
    carry = (fraction == 0).astype(np.uint64)
    return np.stack([fraction, ~words[:, 1] + carry], axis=1)
