"""Choose points (pivots) that determine the prior on a point set, by pivoted Cholesky [Harbrecht2012],
and combine the observations of several agents there.

Posteriors of agents with a common prior differ only in the few directions in which the prior varies. So
agents send mean and covariance at `r` pivots `P` instead of all `S` points `X_D`. They do not send
coordinates in an eigenbasis: if eigenvalues are nearly equal, different devices compute different bases.

Notation: `k(P, P) = L L^T`; whitened coordinates `v` with `f_P = L v`, `v ~ N(0, I)` under the prior; `f_S =
basis v` up to a remainder, `basis = k(X_D, P) L^-T`. At every point the remainder has a prior variance of at
most `cut` times the largest prior variance, and it is independent of `f_P`. `whiten` describes its effect on
a posterior.

**Pooling** combines observations of one function exactly, without exchanging them. In `v` an agent's
observations are linear, `y = W v + e`, `W = (L^-1 k(P, X))^T`, and two statistics determine its likelihood:

    Lambda = W^T D^-1 W (r, r),  eta = W^T D^-1 y (r,),  D = diag(s2 + q(x_i)).

Both add over observations and agents, so a secure sum of them suffices. The posterior given all observations
is `N(C eta, C)` with `C = (I + sum Lambda)^-1`. `q(x)` is the prior variance of `f(x)` that the pivots do not
explain. At points of the set it is below the cut and the posterior is exact. Elsewhere `q(x)` is treated as
noise of that observation [Snelson2006, FITC], so points that the pivots explain badly get little weight.

[Harbrecht2012] Harbrecht, Peters, Schneider. On the low-rank approximation by the pivoted Cholesky
decomposition. Applied Numerical Mathematics 62, 2012.
[Snelson2006] Snelson, Ghahramani. Sparse Gaussian processes using pseudo-inputs. NIPS 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.categories import category_columns, unit_differences
from fbo_flower.numerics.linalg import Factor, cholesky
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.gp import Hyperparameters

TIE = 1e-6  # remainders within this share of the largest count as equal; the first point is picked


@dataclass(frozen=True)
class Pivots:
    """The pivots of a point set, and the basis that maps their values to all points.

    Attributes
    ----------
    index : `(r,)`, rows of the point set, in the order in which they were picked
    basis : `(S, r)`, `k(X_D, X_D) = basis basis^T` up to the remainder; `basis[index]` is `L`, of `k(P, P)`
    """

    index: IntArray
    basis: Array


@dataclass(frozen=True)
class Frame:
    """A point set in the coordinates of a prior, in which the server of several agents compares functions.

    In whitened coordinates `v (r,)` a function's values are `basis v`. In the coordinates `u = scale v (k,)`
    the distance of two functions equals their distance on the point set.

    Attributes
    ----------
    points : `(S, D)`
    basis : `(S, r)`; the function's values at the points are `basis v`
    lift : `(S, k)`, orthonormal columns; they are also `lift u`
    scale : `(k, r)`, `u = scale v`
    """

    points: Array
    basis: Array
    lift: Array
    scale: Array

    @staticmethod
    def of(
        points: Array,
        features: Array,
        hyperparameters: Hyperparameters,
        rank_cut: float,
        pivots: Array | None = None,
    ) -> Frame:
        """Return the frame of points `(S, D)` with features `(S, F)`.

        Parameters
        ----------
        rank_cut : directions with variances below this share of the largest are left out of `u`
        pivots : `(r, F)`, features of the pivots; None: they are chosen among the points
        """
        if pivots is None:
            basis = choose_pivots(features, hyperparameters, rank_cut).basis
        else:
            basis = extend(features, pivots, hyperparameters)
        return Frame(points, basis, *principal(basis, rank_cut))

    def extended(
        self, added: Array, features: Array, pivots: Array, hyperparameters: Hyperparameters
    ) -> Frame:
        """Return the frame with points `(K, D)` appended, given their features and those of the pivots."""
        rows = extend(features, pivots, hyperparameters)
        back = np.linalg.pinv(self.scale)  # (r, k)
        points, basis = np.concatenate([self.points, added]), np.vstack([self.basis, rows])
        return Frame(points, basis, np.vstack([self.lift, rows @ back]), self.scale)


def choose_pivots(points: Array, hyperparameters: Hyperparameters, cut: float = 1e-8) -> Pivots:
    """Return pivots of `points (S, F)` under the prior kernel, without forming `k(X_D, X_D)`.

    Each step picks the point with the largest remaining variance and subtracts what its value explains, until
    all remaining variances are below `cut` times the prior variance. `cut` is at least 1e-12, because of
    rounding.

    Example: 20 x 20 points, "rbf", lengthscale .2: 207, 165, 127 and 106 pivots at a cut of 1e-10, 1e-8, 1e-6
    and 1e-5. (The eigenvalues above these shares of the largest one, 71.5, are 172, 131, 94 and 77.)
    """
    h, size = hyperparameters, len(points)
    if points.ndim != 2 or points.shape[1] != len(h.lengthscales) or size == 0:
        raise ConfigError(f"points: expected (S, {len(h.lengthscales)}) with S > 0, got {points.shape}")
    if not 1e-12 <= cut < 1.0:
        raise ConfigError(f"cut: expected at least 1e-12 and below 1, got {cut}")
    rows = np.empty((min(size, 64), size))  # the basis, transposed so that a new row is contiguous
    left = np.full(size, h.outputscale)
    index: list[int] = []
    while len(index) < size and (top := float(left.max())) > cut * h.outputscale:
        pivot = int(np.argmax(left >= (1.0 - TIE) * top))
        j = len(index)
        if j == len(rows):
            rows = np.concatenate([rows, np.empty((min(size, 2 * j) - j, size))])
        row = prior_covariance(points, points[pivot : pivot + 1], h)[:, 0] - rows[:j, pivot] @ rows[:j]
        row /= np.sqrt(left[pivot])
        row[index] = 0.0  # exact: the remainder at a pivot is 0
        row[pivot] = np.sqrt(left[pivot])
        rows[j] = row
        left -= row * row
        index.append(pivot)
        left[index] = 0.0
    return Pivots(np.array(index, dtype=np.int64), np.ascontiguousarray(rows[: len(index)].T))


def prior_covariance(x1: Array, x2: Array, hyperparameters: Hyperparameters) -> Array:
    """Return `k(x1, x2) (n, m)`, computed from coordinate differences, which take `(n, m, F)` of memory.

    `gp.kernel` expands squares and has errors of 1e-14, which is 1e-6 of a remainder at cut 1e-8.
    """
    h = hyperparameters
    differences = unit_differences(x1[:, np.newaxis] - x2[np.newaxis], category_columns(x2))
    scaled = differences / h.lengthscales
    return h.outputscale * gp.profile(h.kernel, (scaled * scaled).sum(axis=2))


def pivot_factor(pivot_points: Array, hyperparameters: Hyperparameters) -> Factor:
    """Return `L` of `k(P, P)` for pivots `P (r, F)`, for agents that have only the pivots."""
    return cholesky(prior_covariance(pivot_points, pivot_points, hyperparameters))


def whiten(mean: Array, covariance: Array, factor: Factor) -> tuple[Array, Array]:
    """Return mean `(r,)` and covariance `(r, r)` of `v = L^-1 f_P`, given those of `f_P` and `L`.

    Then `f_S ~ N(basis m, basis C basis^T)`. There are two errors, for observations `(x, y)` with posterior
    weights `alpha = (K + s2 I)^-1 y`, the largest prior variance being 1:

    - from the remainder `q`: the covariance is too small by at most `cut` on the diagonal; the mean is wrong
      by at most `sum_i |alpha_i| sqrt(cut q(x_i))`, with `q(x_i) <= cut` if `x_i` is in the point set.
      Between the points `q` is larger; a finer point set lowers it.
    - from rounding: 1e-16 / `cut` in `C`, but along directions of `v` that the basis scales down, so that the
      error of `basis C basis^T` is 1e-15.
    """
    half = factor.solve_lower(covariance)
    whitened = factor.solve_lower(half.T)
    return factor.solve_lower(mean), 0.5 * (whitened + whitened.T)


def principal(basis: Array, rank_cut: float = 1e-8) -> tuple[Array, Array]:
    """Return the principal directions of a basis `(S, r)` with variances above `rank_cut` times the largest.

    For use on the server only: agents send whitened or pivot coordinates, and the server passes
    `scale C_n scale^T` to `bures.barycenter`. Keeps 131 of 165 pivots at 1e-8 on the mesh of `choose_pivots`.

    Returns
    -------
    Orthonormal directions `(S, k)` and `scale (k, r)`: `f_S = directions u`, `u = scale v`, and distances of
    `u` equal those of `f_S`.
    """
    directions, deviations, rotation = np.linalg.svd(basis, full_matrices=False)
    keep = deviations * deviations > rank_cut * deviations[0] * deviations[0]
    return directions[:, keep], deviations[keep, np.newaxis] * rotation[keep]


def extend(features: Array, pivots: Array, hyperparameters: Hyperparameters) -> Array:
    """Return `basis (S, r)` of any points `(S, F)`, `k(X, P) L^-T`."""
    factor = pivot_factor(pivots, hyperparameters)
    if factor.jitter > 0.0:
        raise NumericalError(
            f"pivots: expected {len(pivots)} points with a positive definite prior covariance, got equal or "
            "nearly equal points; try a larger rank_cut"
        )
    return np.ascontiguousarray(factor.solve_lower(prior_covariance(pivots, features, hyperparameters)).T)


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
