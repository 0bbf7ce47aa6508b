"""The logarithm of expected improvement and its gradient, for climbing where the improvement underflows.

`EI(x) = sigma h(u)` with `u = (mu - best) / sigma` and `h(u) = phi(u) + u Phi(u)` [Jones1998], so

    log EI = log sigma + log h(u),   d log EI = (phi(u) d sigma + Phi(u) d mu) / (sigma h(u)).

The second line uses `h' = Phi` and `h - u Phi = phi`. `log h` and both ratios are computed without underflow
[Ament2023], so there is a direction to climb also where EI itself is 0 in float64.

References
----------
[Jones1998] Jones, Schonlau, Welch. Efficient global optimization of expensive black-box functions. Journal of
Global Optimization 13 (1998) 455-492.
[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.acquisition.normal import log_excess, log_excess_and_slopes
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import gp, kernels

LEAST_STDDEV = 1e-9  # in units of a standardised loss


def log_improvement(mean: Array, stddev: Array, best: float) -> Array:
    """Return `log E max(f - best, 0)`, `(m,)`, for normal `f` with these means and deviations `(m,)`."""
    return np.asarray(np.log(stddev) + log_excess((mean - best) / stddev), dtype=np.float64)


def log_improvement_and_gradient(
    mean: Array, stddev: Array, mean_slope: Array, stddev_slope: Array, best: float
) -> tuple[Array, Array]:
    """Return `log_improvement` and its gradient `(m, F)`, given those of the means and deviations."""
    log_h, density, probability = log_excess_and_slopes((mean - best) / stddev)
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
        """Return values `(n,)` and gradients `(n, F)`."""
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
