"""Shamir's secret sharing of 256 bits, in the field of the integers modulo the first prime above `2^256`.

The secret is the constant of a polynomial of degree `threshold - 1` with random coefficients. A share is an
index `x` in four bytes and the polynomial's value at `x` in 33.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

PRIME = 2**256 + 297
SECRET_BYTES = 32
_INDEX, _VALUE = 4, 33  # bytes
SHARE_BYTES = _INDEX + _VALUE


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Return `number` shares of a secret; any `threshold` of them recover it, and fewer say nothing.

    Raises
    ------
    ValueError
        If there is no such sharing.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= number < 2 ** (8 * _INDEX):
        raise ValueError(
            f"expected {SECRET_BYTES} bytes and a threshold from 1 to {number} shares, got {len(secret)} "
            f"bytes and {threshold}"
        )
    coefficients = [*(secrets.randbelow(PRIME) for _ in range(threshold - 1)), int.from_bytes(secret)]
    shares = []
    for x in range(1, number + 1):
        value = 0
        for coefficient in coefficients:  # Horner's rule
            value = (value * x + coefficient) % PRIME
        shares.append(x.to_bytes(_INDEX) + value.to_bytes(_VALUE))
    return shares


def join(shares: Sequence[bytes]) -> bytes:
    """Return the secret of `threshold` shares; ValueError if these cannot be shares of one secret."""
    points = {int.from_bytes(share[:_INDEX]): int.from_bytes(share[_INDEX:]) for share in shares}
    if not points or len(points) < len(shares) or 0 in points or {*map(len, shares)} != {SHARE_BYTES}:
        raise ValueError(f"expected different shares of {SHARE_BYTES} bytes")
    secret = 0
    for x, value in points.items():  # Lagrange's polynomial at 0
        others = [other for other in points if other != x]
        factor = math.prod(others) * pow(math.prod(other - x for other in others), -1, PRIME)
        secret = (secret + value * factor) % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise ValueError("expected shares of one secret")
    return secret.to_bytes(SECRET_BYTES)
