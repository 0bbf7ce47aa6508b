"""The logarithm of expected improvement and its gradient, for climbing where the improvement underflows.

`EI(x) = sigma h(u)` with `u = (mu - best) / sigma` and `h(u) = phi(u) + u Phi(u)` [Jones1998], so

    log EI = log sigma + log h(u),   d log EI = (phi(u) d sigma + Phi(u) d mu) / (sigma h(u)).

The second line uses `h' = Phi` and `h - u Phi = phi`. `log h` and both ratios are computed without underflow
[Ament2023], so there is a direction to climb also where EI itself is 0 in float64.

With a trend `m` the process models the residuals, and `mu = m + the mean of the residuals`.

References
----------
[Jones1998] Jones, Schonlau, Welch. Efficient global optimization of expensive black-box functions. Journal of
Global Optimization 13 (1998) 455-492.
[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.numerics.acquisition.normal import log_excess, log_excess_and_slopes
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.surrogates import kernels
from fbo_flower.numerics.surrogates.gp import Posterior

LEAST_VARIANCE = 1e-10  # relative to the outputscale: the variance at an observed point is rounding noise


class LogExpectedImprovement:
    """`log EI` of a Gaussian process over a trend, a `Differentiable`.

    Parameters
    ----------
    posterior : of the function, or of its residuals if there is a trend
    best : value to improve on
    trend : `m`; None: 0
    """

    def __init__(self, posterior: Posterior, best: float, trend: Differentiable | None = None) -> None:
        self._x, self._h = posterior.x, posterior.hyperparameters
        self._alpha, self._inverse = posterior.alpha, posterior.factor.inverse()
        self._best, self._trend = best, trend

    def __call__(self, z: Array, /) -> Array:
        """Return `log EI` `(m,)` at `z (m, F)`."""
        cross = self._h.outputscale * kernels.kernel(self._h.kernel, z, self._x, self._h.lengthscales)
        mean = cross @ self._alpha
        if self._trend is not None:
            mean = mean + self._trend(z)
        stddev = np.sqrt(self._variance(cross, cross @ self._inverse))
        return np.asarray(np.log(stddev) + log_excess((mean - self._best) / stddev), dtype=np.float64)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)` at `z (m, F)`."""
        h = self._h
        r2 = kernels.squared_distances(z, self._x, h.lengthscales)
        k, slope = kernels.profile_and_slope(h.kernel, r2)
        cross, slope = h.outputscale * k, h.outputscale * slope
        projected = cross @ self._inverse  # rows K^-1 k(X, z), (m, n)
        mean, mean_gradient = cross @ self._alpha, self._slopes(z, slope * self._alpha)
        if self._trend is not None:
            value, gradient = self._trend.value_and_gradient(z)
            mean, mean_gradient = mean + value, mean_gradient + gradient
        variance = self._variance(cross, projected)
        stddev = np.sqrt(variance)
        # d sigma^2 = -2 k^T K^-1 dk: d sigma = -(K^-1 k)^T dk / sigma; 0 where the variance is cut off
        flat = variance <= LEAST_VARIANCE * h.outputscale
        stddev_gradient = self._slopes(z, slope * projected) / -stddev[:, None]
        stddev_gradient[flat] = 0.0
        u = (mean - self._best) / stddev
        log_h, density, probability = log_excess_and_slopes(u)
        gradient = (density / stddev)[:, None] * stddev_gradient
        gradient += (probability / stddev)[:, None] * mean_gradient
        return np.asarray(np.log(stddev) + log_h, dtype=np.float64), gradient

    def _variance(self, cross: Array, projected: Array) -> Array:
        scale = self._h.outputscale
        explained = np.einsum("ij,ij->i", cross, projected)
        return np.asarray(np.maximum(scale - explained, LEAST_VARIANCE * scale), dtype=np.float64)

    def _slopes(self, z: Array, weighted: Array) -> Array:
        """Return `sum_i w_i dk(z, x_i) / dz` `(m, F)`, given the products `w_i slope_i` `(m, n)`."""
        gradient = weighted @ self._x
        gradient -= z * weighted.sum(axis=1)[:, None]
        gradient /= self._h.lengthscales * self._h.lengthscales
        return np.asarray(gradient, dtype=np.float64)
