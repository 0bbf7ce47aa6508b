"""Hyperparameters of a prior that several agents share, estimated from the observations of all.

Five observations of one agent say little about the noise. Log marginal likelihoods of independent agents add,
so all agents together estimate one lengthscale, outputscale and noise variance: each evaluates the same
grid, and only the sum is needed. The grid has lengthscales (multiples of a given vector), outputscales and
noise variances, equally spaced as logarithms. Between its points the sum is interpolated by monotone cubics
(PCHIP). A spline would overshoot: log likelihoods fall by thousands from one point to the next where the
noise is too small.

The estimate is the posterior mean of the logarithms, with independent normal priors. Those of lengthscale and
outputscale are the ones of `fitting`. That of the noise variance is wide, `log noise_variance ~ N(log .01,
2.5)`: 7e-5 to 1.5 within two s.d., because a noise estimate that is a hundred times too small costs more than
the information in a narrow prior is worth.

One lengthscale per parameter would need a grid too large to send. So without isotropy agents also tell their
own fit: the ratios of the lengthscales are averaged over agents; their common factor, outputscale and noise
variance come from the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.gp import Hyperparameters

NOISE_CENTRE, NOISE_STDDEV = 1e-2, 2.5
SCALES = np.exp(np.linspace(-2.0, 2.0, 9))  # lengthscales, multiples of `reference`
OUTPUTSCALES = np.exp(np.linspace(-1.6, 1.6, 5))
NOISE_VARIANCES = np.exp(np.linspace(math.log(1e-6), 0.0, 12))
SHAPE = (len(SCALES), len(OUTPUTSCALES), len(NOISE_VARIANCES))
SIZE = math.prod(SHAPE)
FINER = 6  # steps of the interpolation per step of the grid
LOWEST = -1e12  # smaller log likelihoods are cut off


def reference(num_dims: int) -> float:
    """Return the lengthscale in the middle of the grid, where its prior has its mode."""
    return fitting.LENGTHSCALE_CENTRE * math.sqrt(num_dims)


def log_likelihoods(x: Array, y: Array, kernel: str, shape: Array) -> Array:
    """Return `log N(y; 0, K + s2 I)` on the grid, `(SIZE,)`.

    Parameters
    ----------
    x : `(n, F)`, features of the query points
    y : `(n,)`, standardised observations
    kernel : one of `gp.KERNELS`
    shape : `(F,)`, positive; the lengthscales are `scale reference(F) shape`
    """
    if x.ndim != 2 or y.shape != (len(x),) or shape.shape != (x.shape[1],):
        raise ConfigError(
            f"data: expected x (n, F), y (n,) and shape (F,), got {x.shape}, {y.shape} and {shape.shape}"
        )
    found = np.empty(SHAPE)
    for row, scale in zip(found, SCALES, strict=True):
        # C = V diag(w) V^T: one decomposition serves all outputscales and noise variances
        w, v = np.linalg.eigh(gp.kernel(kernel, x, x, scale * reference(x.shape[1]) * shape))
        variance = OUTPUTSCALES[:, np.newaxis] * np.maximum(w, 0.0)  # (O, n)
        variance = variance[:, np.newaxis] + NOISE_VARIANCES[:, np.newaxis]  # (O, S, n)
        squared = np.square(v.T @ y)
        row[:] = -0.5 * (squared / variance + np.log(variance) + math.log(2.0 * math.pi)).sum(axis=2)
    return np.maximum(found, LOWEST).ravel()


def estimate(total: Array, noise_variance: float | None = None) -> tuple[float, float, float]:
    """Return the posterior means of the logarithms of scale, outputscale and noise variance.

    Parameters
    ----------
    total : `(SIZE,)`, the sum of the agents' log likelihoods
    noise_variance : the noise variance if it is known; the nearest one within the grid is used
    """
    from scipy import interpolate  # a device never needs it

    if total.shape != (SIZE,):
        raise ConfigError(f"total: expected ({SIZE},), got {total.shape}")
    logs = [_between(np.log(values)) for values in (SCALES, OUTPUTSCALES, NOISE_VARIANCES)]
    density = total.reshape(SHAPE)
    for axis, size in enumerate(SHAPE):
        at = np.arange(size, dtype=np.float64)
        density = interpolate.pchip_interpolate(at, density, _between(at), axis=axis)
    centres = (0.0, math.log(fitting.OUTPUTSCALE_CENTRE), math.log(NOISE_CENTRE))
    stddevs = (fitting.LENGTHSCALE_STDDEV, fitting.OUTPUTSCALE_STDDEV, NOISE_STDDEV)
    for axis, (log, centre, stddev) in enumerate(zip(logs, centres, stddevs, strict=True)):
        prior = -0.5 * np.square((log - centre) / stddev)
        density += np.expand_dims(prior, tuple(other for other in range(3) if other != axis))
    if noise_variance is not None:
        with np.errstate(divide="ignore"):
            known = int(np.argmin(np.abs(logs[2] - max(np.log(noise_variance), logs[2][0]))))
        density, logs[2] = density[:, :, known : known + 1], logs[2][known : known + 1]
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    scale, outputscale, noise = (
        float(np.einsum("abc,abc->", weights, np.broadcast_to(log, weights.shape))) for log in np.ix_(*logs)
    )
    return scale, outputscale, noise


def _between(values: Array) -> Array:
    """Return the values with `FINER - 1` equally spaced ones between every two."""
    fine = np.linspace(0.0, len(values) - 1.0, FINER * (len(values) - 1) + 1)
    return np.interp(fine, np.arange(len(values)), values)


def own(x: Array, y: Array, kernel: str, deviation: float, *, isotropic: bool) -> tuple[Array, Array | None]:
    """Return an agent's log likelihoods of the grid, and the logarithms of its own fit if not `isotropic`.

    Parameters
    ----------
    x, y : `(n, F)` and `(n,)`, features and standardised values
    deviation : the unit of `y`, in which the fit is not told
    """
    shape, theta = np.ones(x.shape[1]), None
    if not isotropic:
        fitted = fitting.fit_one(x, y, kernel)
        shape = fitted.lengthscales / np.exp(np.log(fitted.lengthscales).mean())
        theta = fitted.to_array()
        theta[-2:] += 2.0 * np.log(deviation)  # variances: from standardised to transformed values
    return log_likelihoods(x, y, kernel, shape), theta


def shared(
    thetas: Sequence[Array],
    log_likelihoods: Sequence[Array],
    kernel: str,
    num_features: int,
    scale: float,
    *,
    noise_variance: float | None = None,
    noise_floor: float = 0.0,
    robust: bool = False,
) -> Hyperparameters:
    """Return the hyperparameters that suit all agents, in the shared units, within the bounds of `fitting`.

    Without log likelihoods, the logarithms of the agents' own fits are averaged.

    Parameters
    ----------
    thetas, log_likelihoods : of `own`, one per agent or the sums over all agents; none if nobody has them
    scale : the shared unit of values
    noise_variance : the variance of the noise if it is known, in squared units of the values
    noise_floor : smallest noise variance, as a share of the variance of values
    robust : whether to use medians over agents instead of sums and means
    """
    theta = np.log([*[reference(num_features)] * num_features, 1.0, fitting.NOISE_CENTRE])
    if len(thetas):
        theta = np.array((np.median if robust else np.mean)(np.array(thetas), axis=0))
        theta[-2:] -= 2.0 * np.log(scale)
    known = None if noise_variance is None else noise_variance / scale**2
    if len(log_likelihoods):
        given = np.array(log_likelihoods)
        total = len(given) * np.median(given, axis=0) if robust else given.sum(axis=0)
        factor, *theta[-2:] = estimate(total, known)
        theta[:-2] += np.log(reference(num_features)) + factor - theta[:-2].mean()
    if known is not None:
        with np.errstate(divide="ignore"):
            theta[-1] = np.log(known)
    floor = max(noise_floor, fitting.NOISE_BOUNDS[0]) if known is None else noise_floor
    low, high = fitting.bounds(num_features).T
    low = np.append(low[:-1], np.log(floor))
    return Hyperparameters.from_array(kernel, np.clip(theta, low, high))
