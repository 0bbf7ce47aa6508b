"""Fixed-point numbers whose sums are exact in any order: 64 integer and 64 fraction bits, modulo `2^128`.

A number is a row of two uint64, `[fraction, whole]`, in two's complement. The encoding error is at most
`2^-65`, that of a sum of `N` numbers `N 2^-65`. A float64 with `|x| >= 2^-12` is encoded exactly.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

LARGEST = 2.0**62  # largest absolute value of a sum
RESOLUTION = 2.0**-64
_ONE = np.uint64(1)
_QUARTER = 2**32 - 1


def encode(values: npt.ArrayLike, bound: float | Array) -> Words:
    """Return numbers in fixed-point form.

    Parameters
    ----------
    values : `(n,)`
    bound : largest allowed absolute value; one for all numbers, or `(n,)`

    Returns
    -------
    `(n, 2)`

    Raises
    ------
    ConfigError
        If a number is not finite or exceeds the bound.
    """
    given = np.asarray(values, dtype=np.float64)
    size = np.abs(given)
    most = np.minimum(bound, LARGEST)
    if not (size <= most).all():
        worst = int(np.argmax(np.where(np.isfinite(size), size - most, np.inf)))
        limit = np.broadcast_to(most, size.shape)[worst]
        raise ConfigError(
            f"secure_sums: expected numbers between -{limit:g} and {limit:g}, got {given[worst]:g}"
        )
    whole = np.floor(size)
    fraction = np.rint((size - whole) / RESOLUTION)  # < 2^64, because a float64 below 1 is at most 1 - 2^-53
    words = np.stack([fraction.astype(np.uint64), whole.astype(np.uint64)], axis=1)
    return np.where((given < 0)[:, None], negate(words), words)


def decode(words: Words) -> Array:
    """Return the float64 values `(n,)` of fixed-point numbers `(n, 2)`, exact to the last place."""
    negative = words[:, 1] >> np.uint64(63) == _ONE
    size = np.where(negative[:, None], negate(words), words)
    values = size[:, 1].astype(np.float64) + size[:, 0].astype(np.float64) * RESOLUTION
    return np.where(negative, -values, values)


def total(added: Iterable[Words], subtracted: Iterable[Words] = (), *, size: int) -> Words:
    """Return the sum of some numbers minus that of others, modulo `2^128`; all arrays are `(size, 2)`.

    Quarters of a number are summed without carries, in 64 bits, for up to `2^31` arrays.
    """
    quarters = np.zeros((size, 4), dtype=np.int64)
    for words in added:
        quarters += _quarters(words)
    for words in subtracted:
        quarters -= _quarters(words)
    for place in range(3):
        quarters[:, place + 1] += quarters[:, place] >> 32
    quarters &= _QUARTER
    quarters[:, ::2] |= quarters[:, 1::2] << 32
    return np.ascontiguousarray(quarters[:, ::2]).view(np.uint64)


def negate(words: Words) -> Words:
    """Return `-words` modulo `2^128`: in two's complement, invert all bits and add 1."""
    fraction = ~words[:, 0] + _ONE
    carry = (fraction == 0).astype(np.uint64)
    return np.stack([fraction, ~words[:, 1] + carry], axis=1)


def _quarters(words: Words) -> npt.NDArray[np.uint32]:
    """Return numbers as `(n, 4)`, from the lowest 32 bits to the highest."""
    return np.ascontiguousarray(words, dtype="<u8").view("<u4")
