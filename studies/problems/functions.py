"""Functions of the global optimisation literature at points `(..., D)`, which several problems use.

Branin's is to be minimised, the others are turned over so that they are to be maximised [Surjanovic].

[Surjanovic] Surjanovic and Bingham, Virtual library of simulation experiments, sfu.ca/~ssurjano.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.numerics.arrays import Array

_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A3 = np.array([[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]])
_P3 = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])
_A6 = np.array([
    [10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14],
    [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14],
])  # fmt: skip
_P6 = 1e-4 * np.array([
    [1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381],
])  # fmt: skip


def hartmann(u: Array) -> Array:
    """Return Hartmann's function in 3 or 6 dimensions, on the unit cube; the maximum is 3.8628 or 3.3224."""
    a, p = (_A3, _P3) if u.shape[-1] == 3 else (_A6, _P6)
    inner = (a * np.square(u[..., np.newaxis, :] - p)).sum(axis=-1)
    return np.asarray(np.exp(-inner) @ _ALPHA)


def branin(u: Array) -> Array:
    """Return Branin's function on the unit square; the minimum is 0.39789."""
    a, b = 15 * u[..., 0] - 5, 15 * u[..., 1]
    bowl = np.square(b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6)
    return np.asarray(bowl + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def ackley(v: Array) -> Array:
    """Return minus Ackley's function; the maximum is 0, at 0."""
    rings = np.exp(-0.2 * np.sqrt(np.square(v).mean(axis=-1)))
    return np.asarray(20 * rings + np.exp(np.cos(2 * np.pi * v).mean(axis=-1)) - 20 - np.e)


def levy(v: Array) -> Array:
    """Return minus Levy's function, moved so that the maximum 0 is at 0."""
    w = 1 + v / 4
    first = np.sin(np.pi * w[..., 0]) ** 2
    middle = ((w[..., :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[..., :-1] + 1) ** 2)).sum(axis=-1)
    last = (w[..., -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[..., -1]) ** 2)
    return np.asarray(-(first + middle + last))
