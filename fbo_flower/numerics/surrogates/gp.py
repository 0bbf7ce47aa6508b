"""The exact Gaussian processes of agents: likelihoods, posteriors, drawn functions; many at once.

Functions of `B` processes compute each by itself: the number of processes is only ever a loop or an
elementwise dimension, never one of BLAS. So each result is the same, bit for bit, whatever other processes
are computed with it. `fitting` estimates hyperparameters.

Sources: [RW2006] Rasmussen and Williams, Gaussian processes for machine learning; [Wilson2020] Efficiently
sampling functions from Gaussian process posteriors; [Dai2020] Federated Bayesian optimization via Thompson
sampling. Notation: `X (n, F)`, `y (n,)` standardised, `C` the kernel matrix with unit outputscale,
`K = outputscale C`, `s2` the noise variance, `theta (F + 2,)` the logarithms of the lengthscales, the
outputscale and the noise variance; `B` processes; `P = n (n - 1) / 2` pairs of observations, those below the
diagonal. The mean of the prior is 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import Factor, factors, invert_in_place, solve, solve_factored
from fbo_flower.numerics.surrogates import kernels
from fbo_flower.numerics.surrogates.rff import RandomFeatures, cosine_in_place, draw_features


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of the kernel and of the noise.

    Attributes
    ----------
    kernel : one of `kernels.KERNELS`
    lengthscales : `(F,)`, positive
    outputscale : positive, the prior variance of the function
    noise_variance : positive, in squared units of `y`
    """

    kernel: str
    lengthscales: Array
    outputscale: float
    noise_variance: float

    def __post_init__(self) -> None:
        kernels.check_kernel(self.kernel)
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
    """Return `log N(y; 0, K + s2 I)` of every process and its gradient in `theta` [RW2006, Eqs. 5.8-5.9].

    Parameters
    ----------
    differences : `(B, F, P)`, squared differences of the features
    y : `(B, n)`
    theta : `(B, F + 2)`
    added : `(B, n, n)`, covariances that are added to `K`; None: 0

    Returns
    -------
    Values `(B,)` and gradients `(B, F + 2)`.
    """
    num_processes, n = y.shape
    rows, columns, below = _below_diagonal(n)
    squared_scales = np.exp(-2.0 * theta[:, :-2])  # l^-2
    outputscale, noise_variance = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    r2 = (squared_scales[:, None, :] @ differences)[:, 0]
    c, slope = kernels.profile_and_slope(kernel, r2)  # (B, P)
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
    _stacked(x[None], y[None], [hyperparameters])
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
    return np.square(x[:, rows] - x[:, columns]).transpose(0, 2, 1).copy()


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
        return h.outputscale * kernels.kernel(h.kernel, z, z, h.lengthscales) - v.T @ v

    def _cross(self, z: Array) -> Array:
        h = self.hyperparameters
        return h.outputscale * kernels.kernel(h.kernel, z, self.x, h.lengthscales)


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
    scales, outputscale, noise_variance = _stacked(x, y, hyperparameters)
    matrices = covariances(hyperparameters[0].kernel, x, scales, outputscale, noise_variance)
    if added is not None:
        matrices += added
    if variances is not None:
        if variances.shape != y.shape or not (variances >= 0.0).all():
            raise ConfigError(f"variances: expected {y.shape} numbers >= 0, got {variances.tolist()}")
        matrices.reshape(len(x), -1)[:, :: x.shape[1] + 1] += variances
    lower = factors(matrices)
    alpha = solve_factored(lower, y)
    # K alpha = y - s2 alpha, because (K + s2 I) alpha = y, and K holds what was added, but for noise
    means = y - noise_variance[:, None] * alpha
    if variances is not None:
        means -= variances * alpha
    each = zip(x, y, hyperparameters, map(Factor, lower), alpha, means, strict=True)
    return [Posterior(*parts) for parts in each]


def _stacked(x: Array, y: Array, hyperparameters: Sequence[Hyperparameters]) -> tuple[Array, Array, Array]:
    """Return lengthscales `(B, F)`, outputscales and noise variances `(B,)` of processes whose data fit."""
    scales = np.array([h.lengthscales for h in hyperparameters])
    if x.ndim != 3 or x.shape[2] != scales.shape[1] or y.shape != x.shape[:2]:
        raise ConfigError(
            f"data: expected x (n, {scales.shape[1]}) and y (n,) of each process, got {x.shape[1:]} and "
            f"{y.shape[1:]}"
        )
    outputscale = np.array([h.outputscale for h in hyperparameters])
    return scales, outputscale, np.array([h.noise_variance for h in hyperparameters])


def covariances(kernel: str, x: Array, scales: Array, outputscale: Array, noise_variance: Array) -> Array:
    """Return `K + s2 I`, `(B, n, n)`, for `x (B, n, F)` and `scales (B, F)`."""
    n = x.shape[1]
    scaled = x / scales[:, None, :]
    r2 = np.zeros((len(x), n, n))
    for column in range(x.shape[2]):
        difference = scaled[:, :, None, column] - scaled[:, None, :, column]
        difference *= difference
        r2 += difference
    matrices: Array = outputscale[:, None, None] * kernels.profile(kernel, r2)
    matrices.reshape(len(x), -1)[:, :: n + 1] = (outputscale + noise_variance)[:, None]
    return matrices


@dataclass(frozen=True)
class SamplePath:
    """A function drawn from a posterior: `prior(z) + k(z, X) coefficients`.

    Attributes
    ----------
    features : random features of the prior draw
    weights : `(M,)`, weights of the cosines, including the factor `sqrt(2 outputscale / M)`
    x : `(n, F)`, the observed points
    coefficients : `(n,)`, including the factor outputscale
    hyperparameters : hyperparameters of the posterior
    """

    features: RandomFeatures
    weights: Array
    x: Array
    coefficients: Array
    hyperparameters: Hyperparameters

    def __call__(self, z: Array) -> Array:
        """Return values `(m,)` at `z (m, F)`."""
        values: Array = self.features.cosines(z) @ self.weights
        if len(self.x):
            scales = self.hyperparameters.lengthscales
            values += kernels.weighted_sum(self.hyperparameters.kernel, z, self.x, scales, self.coefficients)
        return values

    def value_and_gradient(self, z: Array) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)` at `z (m, F)`."""
        angles = self.features.angles(z)
        values = np.cos(angles) @ self.weights
        gradients = (np.sin(angles, out=angles) * -self.weights) @ self.features.frequencies
        if len(self.x):
            scales = self.hyperparameters.lengthscales
            update, update_gradients = kernels.input_gradient(
                self.hyperparameters.kernel, z, self.x, scales, self.coefficients
            )
            values += update
            gradients += update_gradients
        return values, gradients


def sample_paths(
    x: Array,
    y: Array,
    hyperparameters: Sequence[Hyperparameters],
    num_features: int,
    rngs: Sequence[np.random.Generator],
    deviation_scale: float = 1.0,
) -> list[SamplePath]:
    """Draw one function from each posterior by pathwise conditioning [Wilson2020].

    `f(z) = f_0(z) + k(z, X) (K + s2 I)^-1 (y - f_0(X) - e)` with `f_0` a draw of the prior by random features
    and `e ~ N(0, s2 I)`. Mean and covariance are those of the posterior for any number of features, because
    they are drawn anew. The law is normal only in the limit: if the posterior variance is small, its tails
    are heavier (at 8 observations in 2-D, excess kurtosis up to .3 for "rbf" and .5 for "matern52" at 256
    features, .8 and 1.9 at 64, below .2 at 1024).

    Parameters
    ----------
    x : `(B, n, F)`
    y : `(B, n)`, standardised observations
    hyperparameters : one per process, all of one kernel
    num_features : `M`, of the prior draws
    rngs : one generator per process
    deviation_scale : `beta`; a path has the law of `mean + beta (f - mean)` [Dai2020, Alg. 1]
    """
    scales, outputscale, noise_variance = _stacked(x, y, hyperparameters)
    drawn = [
        draw_features(num_features, h.lengthscales, len(h.lengthscales), rng, h.kernel)
        for h, rng in zip(hyperparameters, rngs, strict=True)
    ]
    normals = np.array([rng.standard_normal(num_features + y.shape[1]) for rng in rngs])
    weights = (deviation_scale * np.sqrt(2.0 * outputscale / num_features))[:, None] * normals[
        :, :num_features
    ]
    noise = (deviation_scale * np.sqrt(noise_variance))[:, None] * normals[:, num_features:]

    # f_0(X), then (K + s2 I)^-1 (y - f_0(X) - e)
    angles = x @ np.array([features.frequencies for features in drawn]).transpose(0, 2, 1)
    angles += np.array([features.phases for features in drawn])[:, None, :]
    cosine_in_place(angles.reshape(-1))
    prior = (angles @ weights[:, :, None])[:, :, 0]
    coefficients = outputscale[:, None] * solve(
        covariances(hyperparameters[0].kernel, x, scales, outputscale, noise_variance), y - prior - noise
    )
    return [
        SamplePath(*parts) for parts in zip(drawn, weights, x, coefficients, hyperparameters, strict=True)
    ]
