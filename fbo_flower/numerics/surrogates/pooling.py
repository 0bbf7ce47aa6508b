"""Combine the observations of several agents of one function exactly, without exchanging them.

In whitened pivot coordinates (`surrogates.pivots`: `f_S = basis v`, `v ~ N(0, I)` under the prior) an agent's
observations are linear, `y = W v + e`, `W = (L^-1 k(P, X))^T`, and two statistics determine its likelihood:

    Lambda = W^T D^-1 W (r, r),  eta = W^T D^-1 y (r,),  D = diag(s2 + q(x_i)).

Both add over observations and agents, so a secure sum of them suffices. The posterior given all observations
is `N(C eta, C)` with `C = (I + sum Lambda)^-1`. `q(x)` is the prior variance of `f(x)` that the pivots do not
explain. At points of the set it is below the cut and the posterior is exact. Elsewhere `q(x)` is treated as
noise of that observation [Snelson2006, FITC], so points that the pivots explain badly get little weight.

[Snelson2006] Snelson, Ghahramani. Sparse Gaussian processes using pseudo-inputs. NIPS 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates.gp import Hyperparameters
from fbo_flower.numerics.surrogates.pivots import pivot_factor, prior_covariance


@dataclass(frozen=True)
class Increment:
    """The likelihood of an agent's observations, in natural parameters of `v`.

    Attributes
    ----------
    precision : `(r, r)`, `Lambda`, symmetric, positive semi-definite
    shift : `(r,)`, `eta`
    """

    precision: Array
    shift: Array

    def __post_init__(self) -> None:
        size = len(self.shift)
        if self.shift.shape != (size,) or self.precision.shape != (size, size):
            raise ConfigError(
                f"increment: expected precision (r, r) and shift (r,), "
                f"got {self.precision.shape} and {self.shift.shape}"
            )

    def __add__(self, other: Increment) -> Increment:
        """Return the increment of both sets of observations."""
        return Increment(self.precision + other.precision, self.shift + other.shift)


def observe(x: Array, y: Array, pivot_points: Array, hyperparameters: Hyperparameters) -> Increment:
    """Return the increment of `y (n,)` observed at `x (n, F)`, for pivots `(r, F)`; `n` may be 0.

    All agents use the pivots in the server's order. Repeated points are separate rows. Accuracy with `y` of
    s.d. 1, `s2 = .02`, lengthscale .2, 30 observations: at points of the set, the posterior mean is that of
    the exact process to 1e-7 at cut 1e-8.
    """
    factor = pivot_factor(pivot_points, hyperparameters)
    w = factor.solve_lower(prior_covariance(pivot_points, x, hyperparameters)).T  # (n, r)
    left_open = np.maximum(hyperparameters.outputscale - (w * w).sum(axis=1), 0.0)  # q
    # Lambda = W^T D^-1 W, eta = W^T D^-1 y with D = diag(s2 + q)
    weighted = w / (hyperparameters.noise_variance + left_open)[:, np.newaxis]
    return Increment(weighted.T @ w, weighted.T @ y)


def pool(increments: Sequence[Increment]) -> tuple[Array, Array]:
    """Return mean `(r,)` and covariance `(r, r)` of `v` given the observations of all increments.

    Valid if all agents share objective, noise and kernel; `aggregation.agreement` tests this.
    """
    if not increments:
        raise ConfigError("pool: expected at least one increment, got none")
    precision = np.sum([increment.precision for increment in increments], axis=0)
    precision.flat[:: len(precision) + 1] += 1.0
    factor = cholesky(precision)  # C = (I + sum Lambda)^-1, mean C eta
    return factor.solve(np.sum([increment.shift for increment in increments], axis=0)), factor.inverse()


def weighted(increments: Sequence[Increment], weights: Array) -> list[Increment]:
    """Return the increments multiplied by `N w_n`, which leaves them unchanged for uniform weights."""
    shares = len(weights) * weights
    return [Increment(s * i.precision, s * i.shift) for s, i in zip(shares, increments, strict=True)]
