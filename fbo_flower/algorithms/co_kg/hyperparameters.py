"""The hyperparameters of the shared prior, estimated from the observations of all agents.

Every agent reports log marginal likelihoods of a grid (`numerics.surrogates.likelihood_grid`), and the server
adds them. One lengthscale per parameter would need a grid too large to send. So with `isotropic = False`
agents also report their own fit: the ratios of the lengthscales are averaged over agents; their common
factor, outputscale and noise variance come from the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.state import WarmUp
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates import likelihood_grid as grid

State = TypeVar("State")


def own_likelihoods(
    options: CoKGOptions[State], x: Array, y: Array, deviation: float, rng: np.random.Generator
) -> dict[str, AnyArray]:
    """Return an agent's log likelihoods of the grid, with its own fit if the prior is not isotropic.

    Parameters
    ----------
    x, y : `(n, F)` and `(n,)`, features and standardised values
    deviation : the unit of `y`, in which `theta` is not reported
    """
    shape = np.ones(x.shape[1])
    found: dict[str, AnyArray] = {}
    if not options.isotropic:
        fitted = gp.fit(x, y, options.kernel, rng).hyperparameters
        shape = fitted.lengthscales / np.exp(np.log(fitted.lengthscales).mean())
        theta = fitted.to_array()
        theta[-2:] += 2.0 * np.log(deviation)  # variances: from standardised to transformed values
        found["theta"] = theta
    return found | {"log_likelihoods": grid.log_likelihoods(x, y, options.kernel, shape)}


def shared_hyperparameters(
    options: CoKGOptions[State], warm_ups: Sequence[WarmUp], scale: float, num_features: int
) -> gp.Hyperparameters:
    """Return the hyperparameters that suit all agents, in the shared units, within the bounds of `gp`.

    Without log likelihoods, the logarithms of the agents' own fits are averaged: their mean, or under
    `weights = "reliability"` their median.

    Parameters
    ----------
    warm_ups : one per agent, or one that holds the sums over all agents
    scale : the shared unit of values
    """
    robust = options.weights == "reliability"
    theta = np.log([*[grid.reference(num_features)] * num_features, 1.0, gp.NOISE_CENTRE])
    thetas = [w.theta for w in warm_ups if len(w.theta)]
    if thetas:
        theta = np.array((np.median if robust else np.mean)(np.array(thetas), axis=0))
        theta[-2:] -= 2.0 * np.log(scale)
    known = None if options.noise_variance is None else options.noise_variance / scale**2
    likelihoods = np.array([w.log_likelihoods for w in warm_ups if len(w.log_likelihoods)])
    if len(likelihoods):
        total = len(likelihoods) * np.median(likelihoods, axis=0) if robust else likelihoods.sum(axis=0)
        factor, *theta[-2:] = grid.estimate(total, known)
        theta[:-2] += np.log(grid.reference(num_features)) + factor - theta[:-2].mean()
    if known is not None:
        with np.errstate(divide="ignore"):
            theta[-1] = np.log(known)
    floor = max(options.noise_floor, gp.NOISE_BOUNDS[0]) if known is None else options.noise_floor
    low = [*[gp.LENGTHSCALE_BOUNDS[0]] * num_features, gp.OUTPUTSCALE_BOUNDS[0], floor]
    high = [*[gp.LENGTHSCALE_BOUNDS[1]] * num_features, gp.OUTPUTSCALE_BOUNDS[1], gp.NOISE_BOUNDS[1]]
    return gp.Hyperparameters.from_array(options.kernel, np.clip(theta, np.log(low), np.log(high)))
