"""Expected improvement of points and of batches, and its logarithm, by forms that stay precise in the tails.

One point [Jones1998]: `EI(x) = E max(f(x) - best, 0) = sigma h(u)`, `u = (mu - best) / sigma` and `h(u) =
phi(u) + u Phi(u)` of `normal.excess`. For climbing where the improvement underflows,

    log EI = log sigma + log h(u),   d log EI = (phi(u) d sigma + Phi(u) d mu) / (sigma h(u)).

The gradient uses `h' = Phi` and `h - u Phi = phi`. `log h` and both ratios are computed without underflow
[Ament2023], so there is a direction to climb also where EI itself is 0 in float64.

A batch [Ginsbourger2010]: `E max(max_n f(x_n) - best, 0)`. With `b_n = max(best, f(x_1), .., f(x_(n-1)))`
the improvement is `sum_n max(f(x_n) - b_n, 0)`, and given the values before it each term is the closed form
again, with the conditional mean and variance. Only the values of the points before the last are sampled. So a
batch of one is exact, and no batch has value 0 merely because no sample improves.

[Jones1998] Jones, Schonlau, Welch. Efficient global optimization of expensive black-box functions. Journal of
Global Optimization 13 (1998) 455-492.
[Ginsbourger2010] Ginsbourger, Le Riche, Carraro. Kriging is well-suited to parallelize optimization. 2010.
[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.batch import batch_covariances, replaced, stacked_cholesky
from fbo_flower.numerics.acquisition.normal import excess, excess_ratios, log_excess
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.surrogates import gp, kernels

BLOCK = 2**16  # entries of the draws processed at a time
LEAST_STDDEV = 1e-9  # in units of a standardised loss


def expected_improvement(mean: Array, variance: Array, best: float | Array) -> Array:
    """Return `E max(f - best, 0) >= 0` for `f ~ N(mean, variance)`; 0 if it underflows or the variance is 0.

    Parameters
    ----------
    mean : any shape, that of the result
    variance : shape of the mean, or one that broadcasts to it; values <= 0 count as 0
    best : value to improve on; a number, or an array that broadcasts
    """
    stddev = np.sqrt(np.maximum(variance, 0.0))
    improvement = np.asarray(mean - best, dtype=np.float64)
    z = np.divide(improvement, stddev, out=np.zeros_like(improvement), where=stddev > 0)
    certain = np.maximum(improvement, 0.0)  # if the variance is 0
    return np.asarray(np.where(stddev > 0, stddev * excess(z), certain), dtype=np.float64)


def log_improvement(mean: Array, stddev: Array, best: float) -> Array:
    """Return `log E max(f - best, 0)`, `(m,)`, for normal `f` with these means and deviations `(m,)`."""
    return np.asarray(np.log(stddev) + log_excess((mean - best) / stddev), dtype=np.float64)


def log_improvement_and_gradient(
    mean: Array, stddev: Array, mean_slope: Array, stddev_slope: Array, best: float
) -> tuple[Array, Array]:
    """Return `log_improvement` and its gradient `(m, F)`, given those of the means and deviations."""
    log_h, density, probability = excess_ratios((mean - best) / stddev)
    # d log(s h(u)) / dm = Phi / (s h), / ds = phi / (s h)
    in_mean, in_stddev = probability / stddev, density / stddev
    return np.log(stddev) + log_h, in_mean[:, None] * mean_slope + in_stddev[:, None] * stddev_slope


@dataclass(frozen=True)
class LogImprovement:
    """`log E max(f(z) - best, 0)` under a posterior, a `Differentiable`.

    Parameters
    ----------
    posterior : of the function, e.g. the standardised negative losses
    best : the incumbent
    """

    posterior: gp.Posterior
    best: float

    def __call__(self, z: Array, /) -> Array:
        mean, variance = self.posterior.predict(z)
        return log_improvement(mean, np.sqrt(np.maximum(variance, LEAST_STDDEV**2)), self.best)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        return log_improvement_and_gradient(*moments(self.posterior, z), self.best)


def moments(posterior: gp.Posterior, z: Array) -> tuple[Array, Array, Array, Array]:
    """Return mean and deviation `(m,)` of a posterior at `z (m, F)`, and their gradients `(m, F)`."""
    h, x = posterior.hyperparameters, posterior.x
    k, slope = kernels.profile_and_slope(h.kernel, kernels.squared_distances(z, x, h.lengthscales))
    solved = posterior.factor.solve(h.outputscale * k.T).T  # (m, n)
    variance = h.outputscale - h.outputscale * np.einsum("ij,ij->i", solved, k)
    stddev = np.sqrt(np.maximum(variance, LEAST_STDDEV**2))

    def kernel_gradient(weights: Array) -> Array:  # sum_i weights_i dk_i/dz, `(m, F)`
        weighted = h.outputscale * slope * weights
        towards: Array = weighted @ x - z * weighted.sum(axis=1)[:, None]
        return towards / h.lengthscales**2

    mean = h.outputscale * (k @ posterior.alpha)
    stddev_slope = np.where(
        (variance > LEAST_STDDEV**2)[:, None], -kernel_gradient(solved) / stddev[:, None], 0.0
    )
    return mean, stddev, kernel_gradient(posterior.alpha), stddev_slope


class BatchExpectedImprovement:
    """A `BatchAcquisition`: parallel expected improvement on a finite set.

    Parameters
    ----------
    mean : `(S,)`, central posterior mean
    factor : `(S, r)`, the central covariance is `factor factor^T`
    best : value to improve on, e.g. the largest mean
    draws : `(M, N)`, standard normal draws, used for all batches
    """

    def __init__(self, mean: Array, factor: Array, best: float, draws: Array) -> None:
        if factor.ndim != 2 or len(factor) != len(mean):
            raise ConfigError(f"factor: expected ({len(mean)}, r), got {factor.shape}")
        self._gap = mean - best
        self._factor, self._draws = factor, draws
        self.num_points, self.num_agents = len(mean), int(draws.shape[1])

    def guess(self, design: IntArray, agent: int) -> Array:
        """Return the values of all points, estimated with the first quarter of the draws."""
        few = self._draws[: max(8, len(self._draws) // 4)]
        return self._values(design, agent, np.arange(self.num_points), few)

    def values(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        return self._values(design, agent, candidates, self._draws)

    def _values(self, design: IntArray, agent: int, candidates: IntArray, draws: Array) -> Array:
        value = np.empty(len(candidates))
        width = max(1, BLOCK // len(draws))
        for start in range(0, len(candidates), width):
            part = candidates[start : start + width]
            gap = self._gap[replaced(design, agent, part)]  # (C, n)
            lower = stacked_cholesky(batch_covariances(self._factor, design, agent, part))
            value[start : start + width] = _improvement(gap, lower, draws)
        return value


def _improvement(gap: Array, lower: Array, draws: Array) -> Array:
    """Return the expected improvement `(C,)`: the sum of the conditional closed forms over the points.

    Parameters
    ----------
    gap : `(C, n)`, means minus the best value
    lower : `(C, n, n)`, Cholesky factors of the covariances
    draws : `(M, N)`, from which the values of the earlier points are computed
    """
    total = np.zeros(len(gap))
    reached = np.zeros((len(gap), len(draws)))  # b_n - best
    for n in range(gap.shape[1]):
        stddev = lower[:, n, n, np.newaxis]
        if n == 0:
            total += expected_improvement(gap[:, 0], np.square(stddev[:, 0]), 0.0)
        conditional = gap[:, n, np.newaxis] + lower[:, n, :n] @ draws[:, :n].T  # (C, M)
        if n > 0:
            total += expected_improvement(conditional, np.square(stddev), reached).mean(axis=1)
        np.maximum(reached, conditional + stddev * draws[:, n], out=reached)
    return total
