"""Shamir's secret sharing in the field of `2^128` elements, with shares as Flower makes them.

A secret is padded (PKCS #7) and cut into blocks of 128 bits. Each block is the constant of a polynomial with
random coefficients, and a share is an index `x` in four bytes and the polynomials' values at `x`. Shares
from here and from Flower's `create_shares` can be combined by either. Only the speed differs: Flower's
functions multiply bit by bit, in a thread for each block. Here all blocks are lanes of one large integer, and
indices are small, so a multiplication is a few shifts.

The field is that of polynomials over bits modulo `t^128 + t^7 + t^2 + t + 1`; addition is `^`.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence

BLOCK = 16  # bytes
_INDEX = 4  # bytes
_LANE = 256  # bits of a lane: as many as a product of two blocks
_LARGEST_INDEX = 2**31
_FOLDS = (0, 1, 2, 7)  # t^128 is the sum of these powers of t
_POLYNOMIAL = sum(1 << power for power in (128, *_FOLDS))


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Return `number` shares of a secret; any `threshold` of them recover it, and fewer say nothing.

    Raises
    ------
    ValueError
        If there is no such sharing.
    """
    if not 1 <= threshold <= number < _LARGEST_INDEX:
        raise ValueError(f"expected a threshold from 1 to {number} shares, got {threshold}")
    padding = BLOCK - len(secret) % BLOCK
    blocks = secret + bytes([padding]) * padding
    count = len(blocks) // BLOCK
    random = [_to_lanes(secrets.token_bytes(len(blocks))) for _ in range(threshold - 1)]
    coefficients = [*random, _to_lanes(blocks)]
    shares = []
    for index in range(1, number + 1):
        value, bits = 0, _bits(index)
        for coefficient in coefficients:  # Horner's rule
            value = _reduced(_product(value, bits), count) ^ coefficient
        shares.append(index.to_bytes(_INDEX, "little") + _from_lanes(value, count))
    return shares


def join(shares: Sequence[bytes]) -> bytes:
    """Return the secret of `threshold` shares.

    Raises
    ------
    ValueError
        If these are not shares of one padded secret.
    """
    sizes = {len(share) for share in shares}
    if len(sizes) != 1 or min(sizes) < _INDEX + BLOCK or (min(sizes) - _INDEX) % BLOCK:
        raise ValueError("expected shares of one size")
    indices = tuple(int.from_bytes(share[:_INDEX], "little") for share in shares)
    if len(set(indices)) < len(indices) or not 0 < min(indices) <= max(indices) < _LARGEST_INDEX:
        raise ValueError("expected different shares")
    count = (len(shares[0]) - _INDEX) // BLOCK
    value = 0
    for share, factor in zip(shares, _at_zero(indices), strict=True):
        value ^= _product(_to_lanes(share[_INDEX:]), factor)
    blocks = _from_lanes(_reduced(value, count), count)
    padding = blocks[-1]
    if not 1 <= padding <= BLOCK or blocks[-padding:] != bytes([padding]) * padding:
        raise ValueError("expected a padded secret")
    return blocks[:-padding]


@functools.lru_cache(maxsize=1024)
def _at_zero(indices: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return Lagrange's factors at 0, `prod_(m != j) x_m / (x_m - x_j)`, as the places of their bits."""
    factors = []
    for j, own in enumerate(indices):
        above, below = 1, 1
        for m, other in enumerate(indices):
            if m != j:
                above = _times(above, other)
                below = _times(below, other ^ own)
        factors.append(_bits(_times(above, _inverse(below))))
    return tuple(factors)


def _times(first: int, second: int) -> int:
    return _reduced(_product(first, _bits(second)), 1)


def _inverse(element: int) -> int:
    """Return the inverse of an element that is not 0, by Euclid's algorithm."""
    first, second = element, _POLYNOMIAL
    factor, other = 1, 0  # first = factor * element and second = other * element, modulo the polynomial
    while first != 1:
        shift = first.bit_length() - second.bit_length()
        if shift < 0:
            first, second, factor, other = second, first, other, factor
            shift = -shift
        first ^= second << shift
        factor ^= other << shift
    return _reduced(factor, 1)


def _product(lanes: int, bits: Sequence[int]) -> int:
    """Return each lane times the element with these bits, not reduced."""
    found = 0
    for bit in bits:
        found ^= lanes << bit
    return found


def _reduced(lanes: int, count: int) -> int:
    """Return each of `count` lanes modulo the field's polynomial."""
    low, high = _masks(count)
    for _ in range(2):  # the first fold leaves up to seven bits too many
        above = (lanes & high) >> 128
        if not above:
            break
        lanes = (lanes & low) ^ _product(above, _FOLDS)
    return lanes


@functools.lru_cache(maxsize=64)
def _masks(count: int) -> tuple[int, int]:
    """Return the lower and the upper halves of `count` lanes."""
    low = sum((2**128 - 1) << (_LANE * lane) for lane in range(count))
    return low, low << 128


def _bits(element: int) -> tuple[int, ...]:
    return tuple(place for place in range(element.bit_length()) if element >> place & 1)


def _to_lanes(blocks: bytes) -> int:
    """Return blocks, big-endian each, as lanes of one integer; the last block is the lowest lane."""
    pad = bytes(_LANE // 8 - BLOCK)
    return int.from_bytes(pad.join([b"", *(blocks[i : i + BLOCK] for i in range(0, len(blocks), BLOCK))]))


def _from_lanes(lanes: int, count: int) -> bytes:
    data, size = lanes.to_bytes(count * _LANE // 8), _LANE // 8
    return b"".join(data[i + size - BLOCK : i + size] for i in range(0, len(data), size))
