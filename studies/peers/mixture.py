"""The logarithm of expected improvement under a mixture of two or more Gaussian processes.

The mixture's prediction is replaced by the normal distribution with its mean and variance,

    m = sum_i w_i m_i,      v = sum_i w_i (v_i + (m_i - m)^2),

so that the variance also grows where the processes disagree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.expected_improvement import (
    LEAST_STDDEV,
    log_improvement,
    log_improvement_and_gradient,
    moments,
)
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates.gp import Posterior


class LogMixtureImprovement:
    """`log EI` of a mixture of posteriors, a `Differentiable`.

    Parameters
    ----------
    posteriors : of the same function
    weights : one each, positive, with the sum 1
    best : value to improve on
    """

    def __init__(self, posteriors: Sequence[Posterior], weights: Sequence[float], best: float) -> None:
        if len(posteriors) != len(weights) or not np.isclose(sum(weights), 1.0) or min(weights) < 0.0:
            raise ConfigError(f"weights: expected one per posterior with the sum 1, got {list(weights)}")
        self._posteriors, self._weights, self._best = posteriors, weights, best

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Return mean and variance `(m,)` of the mixture at `z (m, F)`."""
        parts = [posterior.predict(z) for posterior in self._posteriors]
        mean = sum((w * m for w, (m, _) in zip(self._weights, parts, strict=True)), np.zeros(len(z)))
        variance = np.zeros(len(z))
        for w, (m, v) in zip(self._weights, parts, strict=True):
            variance += w * (v + (m - mean) ** 2)
        return mean, variance

    def __call__(self, z: Array, /) -> Array:
        """Return `log EI` `(m,)` at `z (m, F)`."""
        mean, variance = self.predict(z)
        return log_improvement(mean, np.sqrt(np.maximum(variance, LEAST_STDDEV**2)), self._best)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)` at `z (m, F)`."""
        parts = [moments(posterior, z) for posterior in self._posteriors]
        mean, variance = np.zeros(len(z)), np.zeros(len(z))
        mean_slope, variance_slope = np.zeros_like(z), np.zeros_like(z)
        for w, (m, _, dm, _) in zip(self._weights, parts, strict=True):
            mean += w * m
            mean_slope += w * dm
        for w, (m, s, dm, ds) in zip(self._weights, parts, strict=True):
            variance += w * (s * s + (m - mean) ** 2)
            variance_slope += 2 * w * (s[:, None] * ds + (m - mean)[:, None] * (dm - mean_slope))
        stddev = np.sqrt(np.maximum(variance, LEAST_STDDEV**2))
        stddev_slope = variance_slope / (2 * stddev)[:, None]
        return log_improvement_and_gradient(mean, stddev, mean_slope, stddev_slope, self._best)
