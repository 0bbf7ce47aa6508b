"""Combine regressions of several agents' values in shared random features to one surface to maximise.

With features `phi (M,)` of norm 1, agent `k` with `n_k` observations sends `G_k = Phi_k^T Phi_k` and
`b_k = Phi_k^T y_k`, which suffice for ridge regressions. After [Zhou2021]:

    single        nu = (sum G_k + r I)^-1 sum b_k,    m(x) = phi(x)^T nu
    uncertainty   m(x) - a s(x),    s^2(x) = r phi(x)^T (sum G_k + r I)^-1 phi(x)
    max-min       min_k phi(x)^T nu_k,    nu_k = (G_k + r I)^-1 b_k
    average       sum_k n_k phi(x)^T nu_k / sum_k n_k

As `phi` has norm 1, `n_k` is the trace of `G_k`. The paper minimises losses; here values are maximised, so
its largest loss over the agents is the smallest value.

[Zhou2021] Zhou, Ram, Salonidis, Baracaldo, Samulowitz, Ludwig: FLoRA: single-shot hyper-parameter
optimization for federated learning, 2021.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.optim.functions import Differentiable, LinearFunction
from fbo_flower.numerics.surrogates.rff import RandomFeatures

COMBINATIONS = ("single", "uncertainty", "max-min", "average")


@dataclass(frozen=True)
class Lowest:
    """The smallest of several linear functions of the features, a `Differentiable`.

    Parameters
    ----------
    weights : `(K, M)`, a row per function
    """

    features: RandomFeatures
    weights: Array

    def __call__(self, z: Array, /) -> Array:
        return np.asarray((self.features(z) @ self.weights.T).min(axis=1), dtype=np.float64)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)` of the function that is the smallest at each point."""
        lowest = np.argmin(self.features(z) @ self.weights.T, axis=1)
        values, gradients = np.empty(len(z)), np.empty_like(z)
        for k in np.unique(lowest):
            rows = lowest == k
            values[rows], gradients[rows] = self.features.value_and_gradient(z[rows], self.weights[k])
        return values, gradients


@dataclass(frozen=True)
class LowerBound:
    """`phi^T nu - a sqrt(phi^T S phi)`, a `Differentiable`.

    Parameters
    ----------
    weights : `nu (M,)`
    covariance : `S (M, M)`, positive definite
    caution : `a`
    """

    features: RandomFeatures
    weights: Array
    covariance: Array
    caution: float

    def __call__(self, z: Array, /) -> Array:
        phi = self.features(z)
        stddev = np.sqrt(np.einsum("ij,jk,ik->i", phi, self.covariance, phi))
        return np.asarray(phi @ self.weights - self.caution * stddev, dtype=np.float64)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        values, gradients = np.empty(len(z)), np.empty_like(z)
        for row, phi in enumerate(self.features(z)):
            towards = self.covariance @ phi  # d(phi^T S phi) = 2 (S phi)^T dphi
            stddev = float(np.sqrt(phi @ towards))
            slope = self.weights - (self.caution / stddev) * towards
            value, gradient = self.features.value_and_gradient(z[row : row + 1], slope)
            # the slope is that of the bound; its value counts the deviation once: phi^T S phi / s = s
            values[row], gradients[row] = value[0], gradient[0]
        return values, gradients


def combined(
    combine: str, features: RandomFeatures, sums: Sequence[tuple[Array, Array]], ridge: float, caution: float
) -> Differentiable:
    """Return the combined surface.

    Parameters
    ----------
    combine : one of `COMBINATIONS`
    sums : `(G_k, b_k)` of every agent, `G_k` packed by `statistics`; "single" and "uncertainty" need
        only their total
    ridge : `r`, positive
    caution : `a`
    """
    if combine in ("single", "uncertainty"):
        gram, moment = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
        weights = ridge_weights(gram, moment, ridge)
        if combine == "single":
            return LinearFunction(features, weights)
        matrix = unpack(gram, len(moment)) + ridge * np.eye(len(moment))
        return LowerBound(features, weights, ridge * cholesky(matrix).inverse(), caution)
    each = np.array([ridge_weights(gram, moment, ridge) for gram, moment in sums])
    if combine == "max-min":
        return Lowest(features, each)
    counts = np.array([float(np.trace(unpack(gram, len(moment)))) for gram, moment in sums])
    return LinearFunction(features, np.asarray(counts @ each / counts.sum(), dtype=np.float64))


def packed_size(num_features: int) -> int:
    """Return the number of entries in the upper triangle of an `(M, M)` matrix."""
    return num_features * (num_features + 1) // 2


def statistics(phi: Array, y: Array) -> tuple[Array, Array]:
    """Return the upper triangle of `Phi^T Phi` as `(M (M + 1) / 2,)`, and `Phi^T y (M,)`.

    Parameters
    ----------
    phi : `(n, M)`; `n` may be 0
    y : `(n,)`
    """
    if phi.ndim != 2 or y.shape != (len(phi),):
        raise ConfigError(f"statistics: expected phi (n, M) and y (n,), got {phi.shape} and {y.shape}")
    return (phi.T @ phi).ravel()[_upper(phi.shape[1])], phi.T @ y


def unpack(gram: Array, num_features: int) -> Array:
    """Return the symmetric `(M, M)` matrix with the given upper triangle."""
    matrix = np.zeros((num_features, num_features))
    matrix[_triangle(num_features)] = gram
    return np.asarray(matrix + np.triu(matrix, 1).T, dtype=np.float64)


def ridge_weights(gram: Array, moment: Array, ridge: float) -> Array:
    """Return `w (M,)` from sums of `statistics`.

    Parameters
    ----------
    gram : `(M (M + 1) / 2,)`, upper triangle of the sum of `Phi^T Phi`
    moment : `(M,)`, the sum of `Phi^T y`
    ridge : positive

    Raises
    ------
    NumericalError
        If the sum plus ridge is not positive definite, so it is not what agents sent.
    """
    num_features = len(moment)
    if gram.shape != (packed_size(num_features),):
        raise ConfigError(f"gram: expected {packed_size(num_features)} numbers, got {gram.shape}")
    matrix = unpack(gram, num_features)
    matrix.flat[:: num_features + 1] += ridge
    return cholesky(matrix).solve(moment)


@functools.lru_cache(maxsize=8)
def _upper(num_features: int) -> IntArray:
    """Return the places of the upper triangle in a flat `(M, M)` matrix."""
    rows, columns = _triangle(num_features)
    return np.asarray(rows * num_features + columns, dtype=np.int64)


@functools.lru_cache(maxsize=8)
def _triangle(num_features: int) -> tuple[IntArray, IntArray]:
    rows, columns = np.triu_indices(num_features)
    return rows, columns
