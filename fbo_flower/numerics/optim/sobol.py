"""Finite point sets in the unit cube: Sobol points, meshes, refinements.

Sobol points have a random digital shift; they cover the cube more evenly than independent draws.
Direction numbers: S. Joe and F. Y. Kuo, Constructing Sobol sequences with better two-dimensional projections,
SIAM J. Sci. Comput. 30 (2008) 2635-2654 (file new-joe-kuo-6.21201), here for the first 32 dimensions.
`scipy.stats.qmc.Sobol` gives the same points, but importing `scipy.stats` takes half a second, which a device
that starts a process per message would pay each time.

The number `S` of points on which posteriors are represented is bounded by the memory of one covariance
matrix, `8 S^2` bytes. A mesh has `side^D` points, so its covariance takes `8 side^(2D)` bytes.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

BITS = 30
MAX_DIMENSION = 32
BYTES = 8  # size of a float64
MESH_AXES = 2  # up to this dimension `spread` returns a mesh

# One row per dimension: the primitive polynomial (its bits are the coefficients), then the odd integers m_1,
# m_2, ...
_JOE_KUO = (
    (1,), (3, 1), (7, 1, 3), (11, 1, 3, 1), (13, 1, 1, 1), (19, 1, 1, 3, 3), (25, 1, 3, 5, 13),
    (37, 1, 1, 5, 5, 17), (41, 1, 1, 5, 5, 5), (47, 1, 1, 7, 11, 19), (55, 1, 1, 5, 1, 1),
    (59, 1, 1, 1, 3, 11),
    (61, 1, 3, 5, 5, 31), (67, 1, 3, 3, 9, 7, 49), (91, 1, 1, 1, 15, 21, 21), (97, 1, 3, 1, 13, 27, 49),
    (103, 1, 1, 1, 15, 7, 5), (109, 1, 3, 1, 15, 13, 25), (115, 1, 1, 5, 5, 19, 61),
    (131, 1, 3, 7, 11, 23, 15, 103),
    (137, 1, 3, 7, 13, 13, 15, 69), (143, 1, 1, 3, 13, 7, 35, 63), (145, 1, 3, 5, 9, 1, 25, 53),
    (157, 1, 3, 1, 13, 9, 35, 107), (167, 1, 3, 1, 5, 27, 61, 31), (171, 1, 1, 5, 11, 19, 41, 61),
    (185, 1, 3, 5, 3, 3, 13, 69), (191, 1, 1, 7, 13, 1, 19, 1), (193, 1, 3, 7, 5, 13, 19, 59),
    (203, 1, 1, 3, 9, 25, 29, 41), (211, 1, 3, 5, 13, 23, 1, 55), (213, 1, 3, 7, 3, 13, 59, 17),
)  # fmt: skip


def sobol(num_points: int, dimension: int, rng: np.random.Generator) -> Array:
    """Return the first points `(num_points, D)` of the Sobol sequence in `[0, 1)^D`, with a random shift.

    Above 32 dimensions the points are independent uniform draws, because a few hundred Sobol points cover
    most pairs of that many axes no more evenly than random points.

    Parameters
    ----------
    num_points : up to `2**30`; powers of two cover the cube most evenly
    dimension : `D > 0`
    """
    if not 0 <= num_points <= 2**BITS or dimension < 1:
        raise ConfigError(
            f"sobol: expected up to 2**{BITS} points and D > 0, got {num_points} and {dimension}"
        )
    if dimension > MAX_DIMENSION:
        return rng.random((num_points, dimension))
    shift = rng.integers(2**BITS, size=dimension, dtype=np.uint32)
    points: Array = (unshifted(num_points, dimension) ^ shift) * np.float64(2.0**-BITS)
    return points


def unshifted(num_points: int, dimension: int) -> npt.NDArray[np.uint32]:
    """Return the Sobol sequence without shift, `(num_points, D)`, in units of `2**-30`; it begins with 0."""
    return _sequence(max(num_points - 1, 0).bit_length(), dimension)[:num_points]


@functools.lru_cache(maxsize=16)
def _sequence(log2_points: int, dimension: int) -> npt.NDArray[np.uint32]:
    """Return `2**log2_points` points in Gray-code order, read-only.

    Block `k` is the sequence of all points before it in reversed order, XOR `v_k`.
    """
    points = np.zeros((1, dimension), dtype=np.uint32)
    directions = np.stack([_direction_numbers(axis) for axis in range(dimension)], axis=1)  # (BITS, D)
    for k in range(log2_points):
        points = np.concatenate([points, points[::-1] ^ directions[k]])
    points.setflags(write=False)
    return points


def _direction_numbers(axis: int) -> npt.NDArray[np.uint32]:
    """Return `v_k = m_k 2^(BITS - k)`, `(BITS,)`, by the recurrence of [Joe & Kuo 2008]."""
    polynomial, *m = _JOE_KUO[axis]
    degree = len(m)
    if axis == 0:  # the van der Corput sequence
        m = [1] * BITS
    for k in range(len(m), BITS):
        value = m[k - degree] ^ (m[k - degree] << degree)
        for i in range(1, degree):
            if (polynomial >> (degree - i)) & 1:
                value ^= m[k - i] << i
        m.append(value)
    return np.array([m[k] << (BITS - 1 - k) for k in range(BITS)], dtype=np.uint32)


def cube_points(num_points: int, dimension: int, rng: np.random.Generator) -> Array:
    """Return points `(num_points, D)` of the cube: half of them with some coordinates on the bounds.

    Good hyperparameters often lie on a bound, where Sobol points never are. Each coordinate of the second
    half is 0 with probability .15 and 1 with probability .15.
    """
    inner = sobol(num_points - num_points // 2, dimension, rng)
    outer = sobol(num_points // 2, dimension, rng)
    push = rng.random(outer.shape)
    return np.concatenate([inner, np.where(push < 0.15, 0.0, np.where(push > 0.85, 1.0, outer))])


def largest_size(memory_limit: int) -> int:
    """Return the largest number of points whose covariance fits into `memory_limit` bytes.

    >>> largest_size(2**28)
    5792
    """
    return math.isqrt(max(memory_limit, 0) // BYTES)


def mesh(side: int, dimension: int, memory_limit: int) -> Array:
    """Return the uniform mesh `(side^D, D)` with `side` points per axis, including the faces of the cube.

    ConfigError names the sizes that fit if a covariance takes more than `memory_limit` bytes.

    The last axis varies fastest; `side = 1` gives the centre of the cube.
    """
    if side < 1 or dimension < 1:
        raise ConfigError(f"mesh: expected side >= 1 and D >= 1, got {side} and {dimension}")
    most = largest_size(memory_limit)
    if side**dimension > most:
        fits = largest_side(most, dimension)
        raise ConfigError(
            f"mesh: expected at most {fits} points per axis in {dimension} dimensions, got {side}: the "
            f"covariance of {side**dimension} points takes {_gigabytes(side**dimension)}, memory_limit is "
            f"{memory_limit / 1e9:.3g} GB; a Sobol set (num_points) may have up to {most} points"
        )
    axis = np.linspace(0.0, 1.0, side) if side > 1 else np.array([0.5])
    axes = np.meshgrid(*[axis] * dimension, indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, dimension)


def largest_side(num_points: int, dimension: int) -> int:
    """Return the largest `side` with `side^D <= num_points`.

    >>> largest_side(400, 2), largest_side(999, 3), largest_side(5792, 5)
    (20, 9, 5)
    """
    side: int = max(1, round(float(num_points) ** (1.0 / dimension)))
    while side**dimension > num_points:
        side -= 1
    return side


def spread(num_points: int, dimension: int, memory_limit: int, rng: np.random.Generator) -> Array:
    """Return at most `num_points` points `(S, D)`: a mesh in one or two dimensions, Sobol points in more."""
    most = largest_size(memory_limit)
    if num_points > most:
        raise ConfigError(
            f"num_points: expected at most {most} points, got {num_points}: their covariance takes "
            f"{_gigabytes(num_points)}, memory_limit is {memory_limit / 1e9:.3g} GB"
        )
    if dimension <= MESH_AXES:
        return mesh(largest_side(num_points, dimension), dimension, memory_limit)
    return sobol(num_points, dimension, rng)


def refined(
    centre: Array, half_width: float, num_points: int, memory_limit: int, rng: np.random.Generator
) -> Array:
    """Return at most `num_points` points `(S, D)` in the box around `centre (D,)`, cut off at the cube."""
    low, high = np.maximum(centre - half_width, 0.0), np.minimum(centre + half_width, 1.0)
    inside = spread(num_points, len(centre), memory_limit, rng)
    return np.clip(low + (high - low) * inside, 0.0, 1.0)


def _gigabytes(num_points: int) -> str:
    return f"{BYTES * num_points**2 / 1e9:.3g} GB"
