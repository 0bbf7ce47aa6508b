"""Surrogates of many agents in shared random features, and acquisition functions of their ensembles.

Agent `n` is `phi(z)^T omega_n` with `omega_n ~ N(nu_n, C_n)`, `C_n = sigma^2 Sigma_n^-1` [Dai2020, Eqs. 2-3].
A weighted sum of such surrogates has the same form, with mean `sum w_n nu_n` and covariance `sum w_n^2 C_n`,
so an ensemble costs as much as one agent. Notation: `M` features, `K` agents, `F` columns, `m` points.

[Dai2020] Dai, Low, Jaillet. Federated Bayesian optimization via Thompson sampling. NeurIPS 2020.
[Feurer2018], [Wistuba2018] as in `rank_weights`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.acquisition import expected_improvement as ei
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.rff import RandomFeatures

TINY = 1e-300


def pack_symmetric(matrix: Array) -> Array:
    """Return the lower triangle of a symmetric `(M, M)`, row by row: `(M (M + 1) / 2,)`."""
    return matrix[np.tril_indices(len(matrix))]


def unpack_symmetric(packed: Array, size: int) -> Array:
    """Return the symmetric matrices `(..., M, M)` packed as `(..., M (M + 1) / 2)` by `pack_symmetric`."""
    found: Array = np.take(packed, _positions(size), axis=-1)
    return found


@functools.lru_cache(maxsize=8)
def _positions(size: int) -> IntArray:
    """Return where a packed matrix has the entries of the full one, `(M, M)`."""
    rows, columns = np.indices((size, size))
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    found: IntArray = high * (high + 1) // 2 + low
    return found


@dataclass(frozen=True)
class LogEnsembleImprovement:
    """`log E max(f - best, 0)` for `f = w f_0 + phi^T omega`, all parts independent [Feurer2018].

    Parameters
    ----------
    posterior : of the target, `f_0`
    weight : `w` of the target
    features : shared
    mean, covariance : `sum w_n nu_n (M,)` and `sum w_n^2 C_n (M, M)`, of the others
    best : value to improve on, in the ensemble's units
    """

    posterior: gp.Posterior
    weight: float
    features: RandomFeatures
    mean: Array
    covariance: Array
    best: float

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation `(m,)`."""
        mean, variance = self.posterior.predict(z)
        phi = self.features(z)
        others = np.einsum("ij,ij->i", phi @ self.covariance, phi)
        total = self.weight**2 * variance + np.maximum(others, 0.0)
        return self.weight * mean + phi @ self.mean, np.sqrt(np.maximum(total, ei.LEAST_STDDEV**2))

    def __call__(self, z: Array, /) -> Array:
        mean, stddev = self.predict(z)
        return ei.log_improvement(mean, stddev, self.best)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        own_mean, own_stddev, own_slope, own_stddev_slope = ei.moments(self.posterior, z)
        phi = self.features(z)
        spread = phi @ self.covariance  # (m, M)
        value, value_slope = self.features.value_and_gradient(z, self.mean)
        variance = np.maximum(np.einsum("ij,ij->i", spread, phi), 0.0)
        _, half_slope = self.features.value_and_gradient(z, spread)  # of phi^T (C phi_0): half the gradient
        mean = self.weight * own_mean + value
        total = self.weight**2 * own_stddev**2 + variance
        stddev = np.sqrt(np.maximum(total, ei.LEAST_STDDEV**2))
        total_slope = (2.0 * self.weight**2 * own_stddev)[:, None] * own_stddev_slope + 2.0 * half_slope
        stddev_slope = np.where(
            (total > ei.LEAST_STDDEV**2)[:, None], 0.5 * total_slope / stddev[:, None], 0.0
        )
        mean_slope = self.weight * own_slope + value_slope
        return ei.log_improvement_and_gradient(mean, stddev, mean_slope, stddev_slope, self.best)


@dataclass(frozen=True)
class LogTransferImprovement:
    """`log (w_0 EI(z) + sum w_n max(phi(z)^T nu_n - best_n, 0)) / (w_0 + sum w_n)` [Wistuba2018].

    Parameters
    ----------
    own : `log EI` of the target
    own_weight : `w_0`, positive
    features : shared
    means : `(K, M)`, the `nu_n`
    bests : `(K,)`, values that the others' predictions must exceed
    weights : `(K,)`, not negative
    """

    own: ei.LogImprovement
    own_weight: float
    features: RandomFeatures
    means: Array
    bests: Array
    weights: Array

    def __call__(self, z: Array, /) -> Array:
        gains = np.maximum(self.features(z) @ self.means.T - self.bests, 0.0)  # (m, K)
        return self._mixed(self.own(z), gains @ self.weights)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        own, own_slope = self.own.value_and_gradient(z)
        gains = self.features(z) @ self.means.T - self.bests
        active = np.where(gains > 0.0, self.weights, 0.0)  # (m, K)
        predicted = (np.maximum(gains, 0.0) * self.weights).sum(axis=1)
        _, predicted_slope = self.features.value_and_gradient(z, active @ self.means)
        value = self._mixed(own, predicted)
        total = value + self._log_total
        gradient = np.exp(np.log(self.own_weight) + own - total)[:, None] * own_slope
        return value, gradient + np.exp(-np.maximum(total, np.log(TINY)))[:, None] * predicted_slope

    @property
    def _log_total(self) -> float:
        return float(np.log(self.own_weight + self.weights.sum()))

    def _mixed(self, own: Array, predicted: Array) -> Array:
        others = np.log(np.maximum(predicted, TINY))
        return np.asarray(np.logaddexp(np.log(self.own_weight) + own, others) - self._log_total)
