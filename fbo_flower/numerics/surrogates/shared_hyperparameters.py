"""Hyperparameters of a prior that several agents share, estimated from the observations of all.

Every agent computes log marginal likelihoods of a grid (`likelihood_grid`), which are added. One lengthscale
per parameter would need a grid too large to send. So without isotropy agents also tell their own fit: the
ratios of the lengthscales are averaged over agents; their common factor, outputscale and noise variance come
from the grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates import likelihood_grid as grid


def own(
    x: Array, y: Array, kernel: str, deviation: float, rng: np.random.Generator, *, isotropic: bool
) -> tuple[Array, Array | None]:
    """Return an agent's log likelihoods of the grid, and the logarithms of its own fit if not `isotropic`.

    Parameters
    ----------
    x, y : `(n, F)` and `(n,)`, features and standardised values
    deviation : the unit of `y`, in which the fit is not told
    """
    shape, theta = np.ones(x.shape[1]), None
    if not isotropic:
        fitted = gp.fit(x, y, kernel, rng).hyperparameters
        shape = fitted.lengthscales / np.exp(np.log(fitted.lengthscales).mean())
        theta = fitted.to_array()
        theta[-2:] += 2.0 * np.log(deviation)  # variances: from standardised to transformed values
    return grid.log_likelihoods(x, y, kernel, shape), theta


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
) -> gp.Hyperparameters:
    """Return the hyperparameters that suit all agents, in the shared units, within the bounds of `gp`.

    Without log likelihoods, the logarithms of the agents' own fits are averaged.

    Parameters
    ----------
    thetas, log_likelihoods : of `own`, one per agent or the sums over all agents; none if nobody has them
    scale : the shared unit of values
    noise_variance : the variance of the noise if it is known, in squared units of the values
    noise_floor : smallest noise variance, as a share of the variance of values
    robust : whether to use medians over agents instead of sums and means
    """
    theta = np.log([*[grid.reference(num_features)] * num_features, 1.0, gp.NOISE_CENTRE])
    if len(thetas):
        theta = np.array((np.median if robust else np.mean)(np.array(thetas), axis=0))
        theta[-2:] -= 2.0 * np.log(scale)
    known = None if noise_variance is None else noise_variance / scale**2
    if len(log_likelihoods):
        told = np.array(log_likelihoods)
        total = len(told) * np.median(told, axis=0) if robust else told.sum(axis=0)
        factor, *theta[-2:] = grid.estimate(total, known)
        theta[:-2] += np.log(grid.reference(num_features)) + factor - theta[:-2].mean()
    if known is not None:
        with np.errstate(divide="ignore"):
            theta[-1] = np.log(known)
    floor = max(noise_floor, gp.NOISE_BOUNDS[0]) if known is None else noise_floor
    low = [*[gp.LENGTHSCALE_BOUNDS[0]] * num_features, gp.OUTPUTSCALE_BOUNDS[0], floor]
    high = [*[gp.LENGTHSCALE_BOUNDS[1]] * num_features, gp.OUTPUTSCALE_BOUNDS[1], gp.NOISE_BOUNDS[1]]
    return gp.Hyperparameters.from_array(kernel, np.clip(theta, np.log(low), np.log(high)))
