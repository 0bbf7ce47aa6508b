"""A Gaussian process whose observations have known variances of their own besides the common one.

`y_i = f(x_i) + e_i` with `e_i ~ N(0, s2 + v_i)`: `v_i` is known and `s2` is fitted, as everything else is, by
the mode of the posterior of the hyperparameters with the priors of `gp`. With `v = 0` this is `gp.fit`.
Notation: as in `gp`; `K_v = K + s2 I + diag(v)` takes the place of `K + s2 I` in [RW2006, Eqs. 5.8-5.9].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.linalg import Array, cholesky
from fbo_flower.numerics.surrogates import gp, kernels
from fbo_flower.numerics.surrogates.condition_many import Conditioned


def log_marginal_likelihood(
    x: Array, y: Array, variances: Array, hyperparameters: gp.Hyperparameters
) -> tuple[float, Array]:
    """Return `log N(y; 0, K_v)` and its gradient `(F + 2,)` in `theta`.

    Parameters
    ----------
    x, y : `(n, F)` and `(n,)`, observations
    variances : `(n,)`, the known `v`
    """
    _check(x, y, variances)
    h = hyperparameters
    n = len(y)
    differences = (x.T[:, :, None] - x.T[:, None, :]) ** 2  # (F, n, n)
    squared_scales = h.lengthscales**-2.0
    c, slope = kernels.profile_and_slope(h.kernel, np.tensordot(squared_scales, differences, axes=1))
    covariance = h.outputscale * c
    covariance.flat[:: n + 1] = h.outputscale + h.noise_variance + variances
    factor = cholesky(covariance)
    alpha = factor.solve(y)
    value = -0.5 * (float(y @ alpha) + factor.log_determinant() + n * math.log(2.0 * math.pi))
    a = np.outer(alpha, alpha) - factor.inverse()  # each derivative is tr(A dK / dtheta) / 2
    gradient = np.empty(len(squared_scales) + 2)
    gradient[:-2] = h.outputscale * squared_scales * np.tensordot(differences, a * slope, axes=2)
    gradient[-2] = h.outputscale * float((a * c).sum())
    gradient[-1] = h.noise_variance * float(a.trace())
    return value, 0.5 * gradient


def fit(
    x: Array, y: Array, variances: Array, kernel: str, priors: gp.Priors = gp.DEFAULT_PRIORS
) -> gp.Hyperparameters:
    """Return the mode of the hyperparameters' posterior, found by L-BFGS-B from the mode of the prior."""
    from scipy.optimize import fmin_l_bfgs_b

    _check(x, y, variances)
    mean, precision = gp.prior(x.shape[1], priors)
    if not len(y):
        return gp.Hyperparameters.from_array(kernel, mean)

    def loss(theta: Array) -> tuple[float, Array]:
        value, gradient = log_marginal_likelihood(
            x, y, variances, gp.Hyperparameters.from_array(kernel, theta)
        )
        pull = (mean - theta) * precision
        return -value - 0.5 * float(pull @ (theta - mean)), -gradient - pull

    limits: Any = gp.bounds(x.shape[1])
    mode = fmin_l_bfgs_b(loss, mean, bounds=limits, factr=1e9, pgtol=1e-3, maxiter=100)[0]
    return gp.Hyperparameters.from_array(kernel, np.asarray(mode, dtype=np.float64))


def condition(x: Array, y: Array, variances: Array, hyperparameters: gp.Hyperparameters) -> Conditioned:
    """Condition the process on its observations; `Conditioned.inverse` is then `K_v^-1`."""
    _check(x, y, variances)
    h = hyperparameters
    covariance = h.outputscale * kernels.kernel(h.kernel, x, x, h.lengthscales)
    noise = h.noise_variance + variances
    covariance.flat[:: len(y) + 1] = h.outputscale + noise
    factor = cholesky(covariance)
    alpha = factor.solve(y)
    # K alpha = y - diag(noise) alpha, because K_v alpha = y
    return Conditioned(x, h, alpha, factor.inverse(), y - noise * alpha)


def cross_covariance(z: Array, process: Conditioned) -> Array:
    """Return `k(z, X)` `(m, n)`; times `alpha` it is the posterior mean at `z (m, F)`."""
    h = process.hyperparameters
    return np.asarray(h.outputscale * kernels.kernel(h.kernel, z, process.x, h.lengthscales))


def _check(x: Array, y: Array, variances: Array) -> None:
    if x.ndim != 2 or y.shape != (len(x),) or variances.shape != (len(x),):
        raise ConfigError(
            f"data: expected x (n, F), y (n,) and variances (n,), got {x.shape}, {y.shape} and "
            f"{variances.shape}"
        )
    if not (variances >= 0.0).all():
        raise ConfigError(f"variances: expected numbers >= 0, got {variances.tolist()}")
