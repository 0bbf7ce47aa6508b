"""Finite point sets in the unit cube on which posteriors are represented: meshes, Sobol sets, refinements.

The number of points `S` is bounded by the memory of one covariance matrix, `8 S^2` bytes. A mesh has `side^D`
points, so its covariance takes `8 side^(2D)` bytes.
"""

from __future__ import annotations

import math

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import sobol

BYTES = 8  # size of a float64
MESH_AXES = 2  # up to this dimension `spread` returns a mesh


def largest_size(memory_limit: int) -> int:
    """Return the largest number of points whose covariance fits into `memory_limit` bytes.

    >>> largest_size(2**28)
    5792
    """
    return math.isqrt(max(memory_limit, 0) // BYTES)


def check_size(name: str, num_points: int, memory_limit: int) -> None:
    """Raise ConfigError if the covariance of `num_points` points does not fit into `memory_limit` bytes."""
    most = largest_size(memory_limit)
    if num_points > most:
        raise ConfigError(
            f"{name}: expected at most {most} points, got {num_points}: their covariance takes "
            f"{_gigabytes(num_points)}, memory_limit is {memory_limit / 1e9:.3g} GB"
        )


def mesh(side: int, dimension: int, memory_limit: int) -> Array:
    """Return the uniform mesh with `side` points per axis, including the faces of the cube.

    Returns
    -------
    `(side^D, D)`, the last axis varies fastest; for `side = 1` the centre of the cube

    Raises
    ------
    ConfigError
        If its covariance takes more than `memory_limit` bytes; the message names the sizes that fit.
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
    """Return at most `num_points` points: a mesh in one or two dimensions, Sobol points in more.

    Returns
    -------
    `(S, D)`, `S <= num_points`; `rng` draws the shift of the Sobol points
    """
    check_size("num_points", num_points, memory_limit)
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
