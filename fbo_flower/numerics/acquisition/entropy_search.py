"""Max-value entropy search on a finite set: the information in observations about `f* = max_z f(z)`.

The Co-KG paper compares with entropy search [Zhan2025, section IV-A (iii)] and cites parallel predictive
entropy search, which concerns the location of the maximum and needs expectation propagation. The paper does
not say what it computed (its text on Co-ES repeats that on Co-EI). This module computes the information about
the value of the maximum, `I(f*; y_1, .., y_N)` [Wang2017], by the lower bound of [Moss2021], which holds with
noise and for batches:

    1/2 log|R| - 1/(2 K) sum_k sum_n log(1 - rho_n^2 r(gamma_nk) (gamma_nk + r(gamma_nk))),

`R` the correlations of `y_1, .., y_N`, `rho_n^2 = K(x_n, x_n) / (K(x_n, x_n) + sigma^2)`, `gamma_nk =
(f*_k - mu(x_n)) / stddev(x_n)`, `r = phi / Phi`, and `f*_k` maxima of `K` draws of the whole posterior over
the set, exact where [Wang2017] fits a Gumbel law. `1 - r (gamma + r)` is the variance of a standard normal
that is cut off above `gamma`. For one point `|R| = 1`. All values are in nats.

[Zhan2025] Zhan et al. Collaborative Bayesian optimization via Wasserstein barycenters. 2025.
[Wang2017] Wang, Jegelka. Max-value entropy search for efficient Bayesian optimization. ICML 2017.
[Moss2021] Moss, Leslie, Gonzalez, Rayson. GIBBON: general-purpose information-based Bayesian optimisation.
Journal of Machine Learning Research 22 (2021) 1-49.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition import batch
from fbo_flower.numerics.acquisition.expected_improvement import LOG_SQRT_2PI, log_cdf, mills
from fbo_flower.numerics.arrays import Array, IntArray

SMALLEST = 1e-12  # least variance ratio
FARTHEST = 1e3  # largest |gamma|; beyond it the truncated variance is below 1 / gamma^2 = 1e-6


def sample_maxima(mean: Array, factor: Array, num_samples: int, rng: np.random.Generator) -> Array:
    """Draw `max_z f(z)` for `f ~ N(mean, factor factor^T)`, `(num_samples,)`."""
    normal = rng.standard_normal((factor.shape[1], num_samples))
    return np.asarray((mean[:, np.newaxis] + factor @ normal).max(axis=0))


def max_value_entropy(mean: Array, variance: Array, noise_variance: float, maxima: Array) -> Array:
    """Return a lower bound of the information about the maximum in one noisy observation of every point.

    `(S,)`, in nats, not negative; 0 where the variance is 0.

    Parameters
    ----------
    mean, variance : `(S,)`
    noise_variance : variance of the observation noise; 0 is allowed
    maxima : `(K,)`, draws of the maximum
    """
    if not noise_variance >= 0 or not len(maxima):
        raise ConfigError(
            f"expected a noise variance >= 0 and draws of the maximum, got {noise_variance}, {len(maxima)}"
        )
    variance = np.maximum(variance, 0.0)
    stddev = np.sqrt(variance)[:, np.newaxis]
    gap = maxima - mean[:, np.newaxis]  # (S, K)
    gamma = np.divide(gap, stddev, out=np.full(gap.shape, FARTHEST), where=stddev > 0)
    total = variance + noise_variance
    learnt = np.divide(variance, total, out=np.zeros_like(total), where=total > 0)  # rho^2
    # 1 - rho^2 r (gamma + r), as 1 - rho^2 (1 - Var[Z | Z < gamma])
    left = 1.0 - learnt[:, np.newaxis] * (1.0 - variance_below(gamma))
    return np.asarray(-0.5 * np.log(np.maximum(left, SMALLEST)).mean(axis=1))


def variance_below(gamma: Array) -> Array:
    """Return `Var[Z | Z < gamma] = 1 - r (gamma + r)` of a standard normal `Z`, in `[0, 1]`."""
    gamma = np.clip(gamma, -FARTHEST, FARTHEST)
    left, right = np.minimum(gamma, 0.0), np.maximum(gamma, 0.0)
    ratio_right = np.exp(-0.5 * right * right - LOG_SQRT_2PI - log_cdf(right))
    ratio = np.where(gamma > 0, ratio_right, 1.0 / mills(left))
    return np.asarray(np.clip(1.0 - ratio * (gamma + ratio), 0.0, 1.0))


class BatchMaxValueEntropy(batch.BatchAcquisition):
    """Information about the maximum in the observations of a batch.

    Parameters
    ----------
    mean, factor, num_agents : as of `BatchAcquisition`
    noise_variance : of each observation
    maxima : `(K,)`, draws of the central maximum
    """

    def __init__(
        self, mean: Array, factor: Array, noise_variance: float, maxima: Array, num_agents: int
    ) -> None:
        super().__init__(mean, factor, num_agents)
        variance = np.einsum("sr,sr->s", factor, factor)
        self._single = max_value_entropy(mean, variance, noise_variance, maxima)
        self._factor, self._noise_variance = factor, noise_variance

    def guess(self, design: IntArray, agent: int) -> Array:
        """Return the exact values of all points, which are cheap here."""
        return self.values(design, agent, np.arange(self.num_points))

    def values(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        covariances = batch.batch_covariances(self._factor, design, agent, candidates)
        covariances += self._noise_variance * np.eye(len(design))
        variances = np.einsum("cii->ci", covariances)
        pivots = np.square(np.einsum("cii->ci", batch.stacked_cholesky(covariances)))
        ratio = np.divide(pivots, variances, out=np.ones_like(pivots), where=variances > 0)
        log_correlation = np.log(np.maximum(ratio, SMALLEST)).sum(axis=1)  # log|R|
        return np.asarray(
            self._single[batch.replaced(design, agent, candidates)].sum(axis=1) + 0.5 * log_correlation
        )
