"""Expected improvement of points and batches and its logarithm, and the functions of the standard normal.

One point [Jones1998]: `EI(x) = E max(f(x) - best, 0) = sigma h(u)`, `u = (mu - best) / sigma` and `h(u) =
phi(u) + u Phi(u)` of `excess`. For climbing where the improvement underflows,

    log EI = log sigma + log h(u),   d log EI = (phi(u) d sigma + Phi(u) d mu) / (sigma h(u)).

The gradient uses `h' = Phi` and `h - u Phi = phi`. `log h` and both ratios are computed without underflow
[Ament2023], so there is a direction to climb also where EI itself is 0 in float64.

A batch [Ginsbourger2010]: `E max(max_n f(x_n) - best, 0)`. With `b_n = max(best, f(x_1), .., f(x_(n-1)))`
the improvement is `sum_n max(f(x_n) - b_n, 0)`, and given the values before it each term is the closed form
again, with the conditional mean and variance. Only the values of the points before the last are sampled. So a
batch of one is exact, and no batch has value 0 merely because no sample improves.

**The standard normal.** Its functions here are precise in the tails.
`h(z) = E max(Z + z, 0) = phi(z) + z Phi(z)` is part of the knowledge gradient and of expected improvement.
For `z << 0` its two terms cancel, so it is computed as `phi(z) r(z)` with `r(z) = 1 + z Phi(z) / phi(z)` from
the scaled complementary error function, and from the asymptotic series of `r` below -40 [Ament2023, section
4].

[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
[Ginsbourger2010] Ginsbourger, Le Riche, Carraro. Kriging is well-suited to parallelize optimization. 2010.
[Jones1998] Jones, Schonlau, Welch. Efficient global optimization of expensive black-box functions. Journal of
Global Optimization 13 (1998) 455-492.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition import batch
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.optim.sobol import BITS, sobol
from fbo_flower.numerics.surrogates import gp

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
FAR = -40.0  # below it the fifth term of the series is below 1e-12 of the first
HIGH = 36.0  # above it h(z) = z to the last bit, and Mills' ratio overflows soon


def excess(z: Array) -> Array:
    """Return `h(z) = E max(Z + z, 0)`, to full relative precision until it underflows at `z = -38`."""
    left = np.maximum(-np.abs(z), FAR)  # h(z) = z + h(-z)
    tail = np.exp(-0.5 * left * left - LOG_SQRT_2PI) * (1 + left * mills(left))
    return np.asarray(np.maximum(z, 0.0) + tail, dtype=np.float64)


def log_excess(z: Array) -> Array:
    """Return `log h(z)`, finite for every finite `z` above -1e154; `-inf` at `-inf`."""
    z = np.asarray(z, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / np.square(np.minimum(z, FAR))
        series = inverse * (1 - inverse * (3 - inverse * (15 - inverse * (105 - inverse * 945))))
        near = np.clip(z, FAR, 0.0)
        left = np.log(np.where(z < FAR, series, 1 + near * mills(near))) - 0.5 * z * z - LOG_SQRT_2PI
        return np.asarray(np.where(z > 0, np.log(excess(np.maximum(z, 0.0))), left), dtype=np.float64)


def excess_ratios(z: Array) -> tuple[Array, Array, Array]:
    """Return `log h(z)`, and `phi(z) / h(z)` and `Phi(z) / h(z)`, the factors of its gradient.

    The relative error is 1e-12. The ratios stay finite and positive where `phi`, `Phi` and `h` underflow.
    There they grow like `z^2` and `|z|`. One ratio `r = Phi / phi` serves all three: `h / phi = 1 + z r`,
    also for `z > 0`.
    """
    near = np.minimum(np.maximum(z, FAR), HIGH)
    ratio = mills(near)
    lift = 1.0 + near * ratio  # h / phi
    log_h = np.log(lift) - 0.5 * near * near - LOG_SQRT_2PI
    density, probability = 1.0 / lift, ratio / lift
    beyond = near != z
    if beyond.any():
        low, high = z < FAR, z > HIGH
        inverse = 1.0 / np.square(z[low])
        series = inverse * (1 - inverse * (3 - inverse * (15 - inverse * (105 - inverse * 945))))
        log_h[low] = np.log(series) - 0.5 * np.square(z[low]) - LOG_SQRT_2PI
        density[low], probability[low] = 1.0 / series, (series - 1.0) / (z[low] * series)
        log_h[high], density[high], probability[high] = np.log(z[high]), 0.0, 1.0 / z[high]
    return log_h, density, probability


def mills(z: Array) -> Array:
    """Return `Phi(z) / phi(z)` for `z <= 36`, Mills' ratio of `-z`: 0 at `-inf`."""
    from scipy.special import erfcx  # imported late, because it is slow

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(z * -math.sqrt(0.5)), dtype=np.float64)


def log_cdf(z: Array) -> Array:
    """Return `log Phi(z)`, precise in both tails."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(z), dtype=np.float64)


def centred_draws(num_draws: int, dimension: int, rng: np.random.Generator) -> Array:
    """Return standard normal draws `(M, N)` from shifted Sobol points, minus their column means.

    The mean of `max_z (a_z + b_z^T xi)` over draws of mean 0 is at least `max_z a_z` (Jensen), and exact
    where one `z` is best for every draw. So even gains that are far smaller than the sampling error of
    independent draws are ranked correctly.

    Parameters
    ----------
    num_draws : `M`, at least 2; a power of two is balanced
    dimension : `N`; above 32 the uniform points are independent draws
    """
    if num_draws < 2 or dimension < 1:
        raise ConfigError(
            f"draws: expected at least 2 of 1 dimension or more, got {num_draws} of {dimension}"
        )
    half_step = 0.5 ** (BITS + 1)  # keeps away from 0 and 1, whose quantiles are infinite
    uniform = np.clip(sobol(num_draws, dimension, rng), half_step, 1 - half_step)
    from scipy.special import ndtri

    normal = np.asarray(ndtri(uniform), dtype=np.float64)
    return np.asarray(normal - normal.mean(axis=0))


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
    k, slope = gp.profile_and_slope(h.kernel, gp.squared_distances(z, x, h.lengthscales))
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


class BatchExpectedImprovement(batch.BatchAcquisition):
    """Parallel expected improvement on a finite set.

    Parameters
    ----------
    mean, factor : as of `BatchAcquisition`
    best : value to improve on, e.g. the largest mean
    draws : `(M, N)`, standard normal draws, used for all batches
    """

    def __init__(self, mean: Array, factor: Array, best: float, draws: Array) -> None:
        super().__init__(mean, factor, int(draws.shape[1]))
        self._gap = mean - best
        self._factor, self._draws = factor, draws

    def guess(self, design: IntArray, agent: int) -> Array:
        """Return the values of all points, estimated with the first quarter of the draws."""
        few = self._draws[: max(8, len(self._draws) // 4)]
        return self._values(design, agent, np.arange(self.num_points), few)

    def values(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        return self._values(design, agent, candidates, self._draws)

    def _values(self, design: IntArray, agent: int, candidates: IntArray, draws: Array) -> Array:
        """Return the sum of the conditional closed forms over the points of each batch, `(C,)`."""
        value = np.zeros(len(candidates))
        width = max(1, BLOCK // len(draws))
        for start in range(0, len(candidates), width):
            part = candidates[start : start + width]
            gap = self._gap[batch.replaced(design, agent, part)]  # (C, n)
            lower = batch.stacked_cholesky(batch.batch_covariances(self._factor, design, agent, part))
            total = value[start : start + width]
            reached = np.zeros((len(gap), len(draws)))  # b_n - best
            for n in range(gap.shape[1]):
                stddev = lower[:, n, n, np.newaxis]
                if n == 0:
                    total += expected_improvement(gap[:, 0], np.square(stddev[:, 0]), 0.0)
                # from the draws, the values of the earlier points
                conditional = gap[:, n, np.newaxis] + lower[:, n, :n] @ draws[:, :n].T  # (C, M)
                if n > 0:
                    total += expected_improvement(conditional, np.square(stddev), reached).mean(axis=1)
                np.maximum(reached, conditional + stddev * draws[:, n], out=reached)
        return value
