"""Stationary kernels between rows of features, and their derivatives.

Notation: `r^2 = sum_d ((x_d - x'_d) / l_d)^2`; a kernel is a function of `r^2` with `k(0) = 1` (the
outputscale is a parameter of the Gaussian process). All derivatives follow from the slope `-2 dk/d(r^2)`:

- `dk / d log l_d = slope (x_d - x'_d)^2 / l_d^2`
- `dk / d x_d = -slope (x_d - x'_d) / l_d^2`

"rbf": `k = exp(-r^2 / 2)`, slope `k`. "matern52" [Rasmussen & Williams 2006, Eq. 4.17]:
`k = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)`, slope `5/3 (1 + sqrt5 r) exp(-sqrt5 r)`.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

KERNELS = ("rbf", "matern52")
SQRT5 = 5.0**0.5


def check_kernel(name: str) -> None:
    """Raise ConfigError if `name` is not one of `KERNELS`."""
    if name not in KERNELS:
        raise ConfigError(f"kernel: expected one of {', '.join(KERNELS)}, got {name!r}")


def squared_distances(x1: Array, x2: Array, lengthscales: Array) -> Array:
    """Return `r^2 (n, m)` between the rows of `x1 (n, F)` and `x2 (m, F)`, by one matrix product."""
    u1, u2 = x1 / lengthscales, x2 / lengthscales
    r2 = u1 @ (-2.0 * u2).T
    r2 += (u1 * u1).sum(axis=1)[:, None]
    r2 += (u2 * u2).sum(axis=1)
    return np.maximum(r2, 0.0, out=r2)  # the product may leave -1e-16 for equal rows


def profile(name: str, r2: Array) -> Array:
    """Return `k` at squared distances of any shape, in their precision."""
    if name == "rbf":
        k = -0.5 * r2
        return np.exp(k, out=k)
    return profile_and_slope(name, r2)[0]


def profile_and_slope(name: str, r2: Array) -> tuple[Array, Array]:
    """Return `k` and the slope `-2 dk/d(r^2)` at squared distances of any shape."""
    if name == "rbf":
        k = profile(name, r2)
        return k, k
    check_kernel(name)
    s = SQRT5 * np.sqrt(r2)
    decay = np.exp(-s)
    slope = (1.0 + s) * decay * (5.0 / 3.0)  # 5/3 (1 + sqrt5 r) exp(-sqrt5 r)
    return 0.6 * slope + (5.0 / 3.0) * r2 * decay, slope


def kernel(name: str, x1: Array, x2: Array, lengthscales: Array) -> Array:
    """Return `k(x1, x2) (n, m)` between the rows of `x1 (n, F)` and `x2 (m, F)`, with outputscale 1.

    Examples
    --------
    >>> kernel("rbf", np.zeros((1, 2)), np.array([[0.0, 0.5]]), np.array([1.0, 0.5])).round(4).tolist()
    [[0.6065]]
    """
    check_kernel(name)
    return profile(name, squared_distances(x1, x2, lengthscales))
