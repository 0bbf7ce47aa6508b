"""The exact Gaussian processes of agents: their likelihoods and posteriors, of many at once.

Functions of `B` processes compute each by itself: the number of processes is only ever a loop or an
elementwise dimension, never one of BLAS. So each result is the same, bit for bit, whatever other processes
are computed with it. `fitting` estimates hyperparameters, `optim.functions` draws functions.

Source: [RW2006] Rasmussen and Williams, Gaussian processes for machine learning. Notation: `X (n, F)`, `y
(n,)` standardised, `C` the kernel matrix with unit outputscale, `K = outputscale C`, `s2` the noise variance,
`theta (F + 2,)` the logarithms of the lengthscales, the outputscale and the noise variance; `B` processes;
`P = n (n - 1) / 2` pairs of observations, those below the diagonal. The mean of the prior is 0.

**Kernels** are stationary. `r^2 = sum_d ((x_d - x'_d) / l_d)^2`; a kernel is a function of `r^2` with `k(0) =
1` (the outputscale is a parameter of the Gaussian process). The difference of two categories is 0 or 1, see
`categories`; gradients in their columns mean nothing. All derivatives follow from the slope `-2 dk/d(r^2)`:

- `dk / d log l_d = slope (x_d - x'_d)^2 / l_d^2`
- `dk / d x_d = -slope (x_d - x'_d) / l_d^2`

"rbf": `k = exp(-r^2 / 2)`, slope `k`. "matern52" [Rasmussen & Williams 2006, Eq. 4.17]:
`k = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)`, slope `5/3 (1 + sqrt5 r) exp(-sqrt5 r)`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.categories import add_squared_distances, category_columns, unit_differences, without
from fbo_flower.numerics.linalg import Factor, factors, invert_in_place, solve_factored

KERNELS = ("rbf", "matern52")
SQRT5 = 5.0**0.5


def check_kernel(name: str) -> None:
    """Raise ConfigError if `name` is not one of `KERNELS`."""
    if name not in KERNELS:
        raise ConfigError(f"kernel: expected one of {', '.join(KERNELS)}, got {name!r}")


def squared_distances(x1: Array, x2: Array, lengthscales: Array) -> Array:
    """Return `r^2 (n, m)` between the rows of `x1 (n, F)` and `x2 (m, F)`, by one matrix product."""
    columns = category_columns(x2)
    u1, u2 = (without(x, columns) / lengthscales for x in (x1, x2))
    r2 = u1 @ (-2.0 * u2).T
    r2 += (u1 * u1).sum(axis=1)[:, None]
    r2 += (u2 * u2).sum(axis=1)
    np.maximum(r2, 0.0, out=r2)  # the product may leave -1e-16 for equal rows
    add_squared_distances(r2, x1, x2, columns, lengthscales**-2.0)
    return r2


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
    return profile(name, squared_distances(x1, x2, lengthscales))


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of the kernel and of the noise.

    Attributes
    ----------
    kernel : one of `KERNELS`
    lengthscales : `(F,)`, positive
    outputscale : positive, the prior variance of the function
    noise_variance : positive, in squared units of `y`
    """

    kernel: str
    lengthscales: Array
    outputscale: float
    noise_variance: float

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        if self.lengthscales.ndim != 1 or len(self.lengthscales) == 0:
            raise ConfigError(f"lengthscales: expected shape (F,) with F > 0, got {self.lengthscales.shape}")
        values = [*self.lengthscales.tolist(), self.outputscale, self.noise_variance]
        if not all(0.0 < value < math.inf for value in values):
            raise ConfigError(f"hyperparameters: expected positive finite numbers, got {values}")

    def to_array(self) -> Array:
        """Return `theta (F + 2,)`: logarithms of the lengthscales, the outputscale and the noise variance."""
        return np.log([*self.lengthscales, self.outputscale, self.noise_variance])

    @staticmethod
    def from_array(kernel: str, a: Array) -> Hyperparameters:
        """Return the hyperparameters of `theta (F + 2,)`: the inverse of `to_array`."""
        values = np.exp(a)
        return Hyperparameters(kernel, values[:-2], float(values[-2]), float(values[-1]))


def log_marginal_likelihoods(
    differences: Array, y: Array, kernel: str, theta: Array, added: Array | None = None
) -> tuple[Array, Array]:
    """Return `log N(y; 0, K + s2 I)`, `(B,)`, and gradients `(B, F + 2)` in `theta` [RW2006, Eqs. 5.8-5.9].

    Parameters
    ----------
    differences : `(B, F, P)`, squared differences of the features
    y : `(B, n)`
    theta : `(B, F + 2)`
    added : `(B, n, n)`, covariances that are added to `K`; None: 0
    """
    num_processes, n = y.shape
    rows, columns, below = _below_diagonal(n)
    squared_scales = np.exp(-2.0 * theta[:, :-2])  # l^-2
    outputscale, noise_variance = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    r2 = (squared_scales[:, None, :] @ differences)[:, 0]
    c, slope = profile_and_slope(kernel, r2)  # (B, P)
    matrices = np.zeros((num_processes, n * n))
    matrices[:, below] = outputscale[:, None] * c
    matrices[:, :: n + 1] = (outputscale + noise_variance)[:, None]
    matrices = matrices.reshape(num_processes, n, n)
    if added is not None:
        matrices += added
    lower = factors(matrices)
    log_determinant = 2.0 * np.log(np.einsum("bii->bi", lower)).sum(axis=1)
    alpha = solve_factored(lower, y)
    invert_in_place(lower)
    inverses = lower.reshape(num_processes, -1)  # by now; valid on and below the diagonal only
    fit_part = (y * alpha).sum(axis=1)
    # -1/2 y^T alpha - 1/2 log|K + s2 I| - n/2 log 2 pi  (Eq. 5.8)
    values = -0.5 * (fit_part + log_determinant + n * math.log(2.0 * math.pi))

    # Eq. 5.9 with A = alpha alpha^T - (K + s2 I)^-1: each derivative is tr(A dK / dtheta) / 2
    a = alpha[:, rows] * alpha[:, columns] - inverses[:, below]
    trace = np.square(alpha).sum(axis=1) - inverses[:, :: n + 1].sum(axis=1)
    gradients = np.empty_like(theta)
    weighted = (differences @ (a * slope)[:, :, None])[:, :, 0]
    gradients[:, :-2] = outputscale[:, None] * squared_scales * weighted
    noise_part = noise_variance * trace
    gradients[:, -2] = 0.5 * (fit_part - n - noise_part)  # tr(A (K + s2 I)) = y^T alpha - n
    gradients[:, -1] = 0.5 * noise_part
    if added is not None:  # tr(A added) is in the fit, and not in the outputscale's derivative
        flat = added.reshape(num_processes, -1)
        diagonal = np.square(alpha) - inverses[:, :: n + 1]
        # contiguous, so that the order of each sum does not depend on the number of processes
        on, off = (np.ascontiguousarray(p) for p in (diagonal * flat[:, :: n + 1], a * flat[:, below]))
        gradients[:, -2] -= 0.5 * on.sum(axis=1) + off.sum(axis=1)
    return values, gradients


def log_marginal_likelihood(x: Array, y: Array, hyperparameters: Hyperparameters) -> tuple[float, Array]:
    """Return `log N(y; 0, K + s2 I)` and its gradient `(F + 2,)` in `theta` [RW2006, Eqs. 5.8-5.9]."""
    _check_data(x[None], y[None], hyperparameters)
    values, gradients = log_marginal_likelihoods(
        pair_differences(x[None]), y[None], hyperparameters.kernel, hyperparameters.to_array()[None]
    )
    return float(values[0]), gradients[0]


@functools.lru_cache(maxsize=2)  # n grows with every round; one fit asks a hundred times
def _below_diagonal(n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows, columns and flat positions of the entries below the diagonal of an `(n, n)` matrix."""
    rows, columns = np.tril_indices(n, -1)
    return rows, columns, rows * n + columns


def pair_differences(x: Array) -> Array:
    """Return the squared differences of features, `(B, F, P)`, of all pairs of the points `x (B, n, F)`."""
    rows, columns, _ = _below_diagonal(x.shape[1])
    differences = unit_differences(x[:, rows] - x[:, columns], category_columns(x))
    return np.square(differences).transpose(0, 2, 1).copy()


@dataclass(frozen=True)
class Posterior:
    """A Gaussian process conditioned on observations; created by `condition` or `posterior`.

    Attributes
    ----------
    x, y : `(n, F)` and `(n,)`
    hyperparameters : as given
    factor : of `K + s2 I` and what was added to it, `(n, n)`
    alpha : `(K + s2 I)^-1 y`, `(n,)`
    means : posterior means at the observed points, `(n,)`
    """

    x: Array
    y: Array
    hyperparameters: Hyperparameters
    factor: Factor
    alpha: Array
    means: Array

    @functools.cached_property
    def inverse(self) -> Array:
        """`(K + s2 I)^-1`, `(n, n)`."""
        found = self.factor.lower.copy()
        invert_in_place(found[None])
        return found + np.tril(found, -1).T

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Return mean and variance `(m,)` without noise at `z (m, F)` [RW2006, Alg. 2.1]."""
        cross = self._cross(z)
        v = self.factor.solve_lower(cross.T)  # (n, m); Alg. 2.1, line 5
        variance = self.hyperparameters.outputscale - np.einsum("ij,ij->j", v, v)
        return cross @ self.alpha, np.maximum(variance, 0.0)

    def mean(self, z: Array) -> Array:
        """Return the mean `(m,)` at `z (m, F)`, as `predict` does, without the cost of the variance."""
        return self._cross(z) @ self.alpha

    def covariance(self, z: Array) -> Array:
        """Return the covariance `(m, m)` of the function (without noise) at `z (m, F)`."""
        h = self.hyperparameters
        v = self.factor.solve_lower(self._cross(z).T)  # (n, m)
        return h.outputscale * kernel(h.kernel, z, z, h.lengthscales) - v.T @ v

    def _cross(self, z: Array) -> Array:
        h = self.hyperparameters
        return h.outputscale * kernel(h.kernel, z, self.x, h.lengthscales)


def posterior(
    x: Array, y: Array, hyperparameters: Hyperparameters, variances: Array | None = None
) -> Posterior:
    """Return `condition` of one process on `y (n,)` observed at `x (n, F)`, with `variances (n,)`."""
    known = None if variances is None else variances[None]
    return condition(x[None], y[None], [hyperparameters], variances=known)[0]


def condition(
    x: Array,
    y: Array,
    hyperparameters: Sequence[Hyperparameters],
    added: Array | None = None,
    variances: Array | None = None,
) -> list[Posterior]:
    """Condition each process on its observations.

    Parameters
    ----------
    x, y : `(B, n, F)` and `(B, n)`; `n` may be 0
    hyperparameters : one per process, all of one kernel
    added : `(B, n, n)`, covariances that are added to `K`; None: 0
    variances : `(B, n)`, known variances of the observations' noise, besides `s2`; None: 0
    """
    _check_data(x, y, hyperparameters[0])
    matrices = covariances(x, hyperparameters)
    if added is not None:
        matrices += added
    if variances is not None:
        if variances.shape != y.shape or not (variances >= 0.0).all():
            raise ConfigError(f"variances: expected {y.shape} numbers >= 0, got {variances.tolist()}")
        matrices.reshape(len(x), -1)[:, :: x.shape[1] + 1] += variances
    lower = factors(matrices)
    alpha = solve_factored(lower, y)
    # K alpha = y - s2 alpha, because (K + s2 I) alpha = y, and K holds what was added, but for noise
    means = y - np.array([h.noise_variance for h in hyperparameters])[:, None] * alpha
    if variances is not None:
        means -= variances * alpha
    each = zip(x, y, hyperparameters, map(Factor, lower), alpha, means, strict=True)
    return [Posterior(*parts) for parts in each]


def covariances(x: Array, hyperparameters: Sequence[Hyperparameters]) -> Array:
    """Return `K + s2 I`, `(B, n, n)`, of processes of one kernel, at `x (B, n, F)`."""
    outputscale = np.array([h.outputscale for h in hyperparameters])
    lengthscales, categories = np.array([h.lengthscales for h in hyperparameters]), category_columns(x)
    n, scaled = x.shape[1], x / lengthscales[:, None, :]
    r2 = np.zeros((len(x), n, n))
    for column in sorted({*range(x.shape[2])} - {*categories.tolist()}):
        difference = scaled[:, :, None, column] - scaled[:, None, :, column]
        difference *= difference
        r2 += difference
    add_squared_distances(r2, x, x, categories, lengthscales**-2.0)
    matrices: Array = outputscale[:, None, None] * profile(hyperparameters[0].kernel, r2)
    diagonal = outputscale + np.array([h.noise_variance for h in hyperparameters])
    matrices.reshape(len(x), -1)[:, :: n + 1] = diagonal[:, None]
    return matrices


def _check_data(x: Array, y: Array, hyperparameters: Hyperparameters) -> None:
    num_dims = len(hyperparameters.lengthscales)
    if x.ndim != 3 or x.shape[2] != num_dims or y.shape != x.shape[:2]:
        raise ConfigError(
            f"data: expected x (n, {num_dims}) and y (n,) of each process, got {x.shape[1:]} and "
            f"{y.shape[1:]}"
        )
