"""Estimate the hyperparameters of Gaussian processes by the mode of their posterior, of many at once.

The priors over `theta` are independent normals (mean, s.d.):

- `log lengthscale ~ N(log(0.3 sqrt F), 0.75)`: distances in the unit cube grow like `sqrt F`, where a
  category counts as three numbers; two s.d. cover .07 to 1.3 `sqrt F`, which is narrow enough to regularise
  fits of three points
- `log outputscale ~ N(0, 0.5)`: `y` is standardised
- `log noise_variance ~ N(log 3e-3, 1.5)`: 1.5e-4 to .06 within two s.d., with a floor of 1e-6

A fit of forty observations spends most of its time on the overhead of small NumPy calls. Here the kernel
matrices of `B` processes with equally many observations are one array, and the optimisations run in parallel:
a projected quasi-Newton method [Bertsekas1982] with Armijo's rule for each process, which starts at the mode
of the prior with the prior's covariance as inverse Hessian. A process that has converged is not evaluated
again, and none depends on the others. (With L-BFGS-B, the oracle of the tests, one in twelve fits of small
sites' losses ends in another mode, better or worse.)

Notation: as in `gp`.

[Bertsekas1982] Bertsekas. Projected Newton methods for optimization problems with simple constraints. SIAM J.
Control and Optimization 20 (1982).
[Kass1995] Kass, Raftery. Bayes factors. J. American Statistical Association 90 (1995), Section 3.2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.categories import breadth, category_columns
from fbo_flower.numerics.linalg import bfgs_update
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.gp import Hyperparameters, log_marginal_likelihoods, pair_differences

LENGTHSCALE_CENTRE, LENGTHSCALE_STDDEV = 0.3, 0.75  # the centre is in units of `sqrt F`
OUTPUTSCALE_CENTRE, OUTPUTSCALE_STDDEV = 1.0, 0.5
NOISE_CENTRE, NOISE_STDDEV = 3e-3, 1.5
LENGTHSCALE_BOUNDS = (0.01, 30.0)
OUTPUTSCALE_BOUNDS = (0.05, 20.0)
NOISE_BOUNDS = (1e-6, 2.0)


@dataclass(frozen=True)
class Priors:
    """Centre of the noise's prior, and standard deviations of logarithms; reasons are above."""

    lengthscale_stddev: float = LENGTHSCALE_STDDEV
    noise_centre: float = NOISE_CENTRE
    noise_stddev: float = NOISE_STDDEV


DEFAULT_PRIORS = Priors()
LONGEST_STEP = 2.0  # in units of theta
GRADIENT_TOLERANCE, VALUE_TOLERANCE = 1e-3, 2e-7  # the second is relative
ARMIJO, SHORTEST_STEP = 1e-4, 1e-6
MAX_EVALUATIONS = 100
TINY = 1e-300
NOISE_MARGIN = 3.0  # of log evidence: strong, 20 to 1 [Kass1995]


@dataclass(frozen=True)
class Known:
    """What is known about a process beside its own observations.

    Attributes
    ----------
    covariance : `(n, n)`, added to the kernel matrix: of the prior mean, which others' observations gave, or
        known variances of the noise
    lengthscales : `(F,)`, centres of their priors; None: those of `Priors`, with the outputscale's
    lengthscale_stddev : standard deviation of the logarithms of lengthscales
    outputscale : centre of its prior
    """

    covariance: Array
    lengthscales: Array | None = None
    lengthscale_stddev: float = LENGTHSCALE_STDDEV
    outputscale: float = OUTPUTSCALE_CENTRE


@dataclass(frozen=True)
class Modes:
    """The modes found, one per process.

    Attributes
    ----------
    theta : `(B, F + 2)`
    values : `(B,)`, log marginal likelihood plus log prior at `theta`
    evaluations : `(B,)`, number of evaluations that each process took
    """

    theta: Array
    values: Array
    evaluations: IntArray


def fit(
    x: Array,
    y: Array,
    kernel: str,
    start: Array | None = None,
    priors: Priors = DEFAULT_PRIORS,
    known: Sequence[Known] = (),
    noisy: Priors | None = None,
) -> Modes:
    """Return the mode of the hyperparameters' posterior of every process.

    The posterior of few observations often has two modes: a rough function without noise, and a smooth one
    with noise. A climb finds the one on its side, so with `noisy` each side has a climb. The heights of the
    modes stand for the evidence, and the noisy one must be higher by `NOISE_MARGIN`. Otherwise the result is
    that without `noisy`, bit for bit.

    Parameters
    ----------
    x : `(B, n, F)`, features of the query points; `n` may be 0
    y : `(B, n)`, standardised observations
    kernel : one of `gp.KERNELS`
    start : `(B, F + 2)`, e.g. the last modes; None: the mode of the prior
    priors : of the hyperparameters
    known : of every process, what replaces the priors of lengthscales and outputscale; (): nothing
    noisy : priors for noisy values, which are used if they explain the values clearly better; None: none. The
        climb on this side begins at their centre of the noise, or above
    """
    quiet = _modes(x, y, kernel, start, priors, known)
    if noisy is None:
        return quiet
    if start is not None:
        least = math.log(noisy.noise_centre)
        start = np.column_stack([start[:, :-1], np.maximum(start[:, -1], least)])
    loud = _modes(x, y, kernel, start, noisy, known)
    takes = loud.values > quiet.values + NOISE_MARGIN
    return Modes(
        np.where(takes[:, None], loud.theta, quiet.theta),
        np.where(takes, loud.values, quiet.values),
        quiet.evaluations + loud.evaluations,
    )


def _modes(
    x: Array, y: Array, kernel: str, start: Array | None, priors: Priors, known: Sequence[Known]
) -> Modes:
    """Return the modes under one set of priors."""
    gp.check_kernel(kernel)
    if x.ndim != 3 or y.shape != x.shape[:2]:
        raise ConfigError(f"data: expected x (B, n, F) and y (B, n), got {x.shape} and {y.shape}")
    mean, precision = prior(x.shape[2], priors, len(category_columns(x)))
    # what is known moves the priors: the climb is in the differences from their centres
    shift, precisions = np.zeros((len(x), len(mean))), np.tile(precision, (len(x), 1))
    for b, one in enumerate(known):
        if one.lengthscales is None:
            continue
        shift[b, :-1] = np.log([*one.lengthscales, one.outputscale]) - mean[:-1]
        precisions[b, :-2] = one.lengthscale_stddev**-2
    if x.shape[1] == 0:  # nothing but the prior
        nothing = np.zeros(len(x))
        return Modes(mean + shift, nothing, nothing.astype(np.int64))
    differences = pair_differences(x)
    covariances = np.array([one.covariance for one in known]) if known else None

    def evaluate(which: IntArray, moved: Array) -> tuple[Array, Array]:
        added = None if covariances is None else covariances[which]
        theta = moved + shift[which]
        values, gradients = log_marginal_likelihoods(differences[which], y[which], kernel, theta, added)
        pull = (mean - moved) * precisions[which]
        return values + 0.5 * (pull * (moved - mean)).sum(axis=1), gradients + pull

    begin = np.tile(mean, (len(x), 1)) if start is None else start - shift
    metrics = np.array([np.diag(1.0 / row) for row in precisions])
    modes = _climb(evaluate, begin, bounds(x.shape[2]), metrics)
    return Modes(modes.theta + shift, modes.values, modes.evaluations)


def fit_one(
    x: Array, y: Array, kernel: str, priors: Priors = DEFAULT_PRIORS, known: Known | None = None
) -> Hyperparameters:
    """Return `fit` of one process with `x (n, F)` and `y (n,)`."""
    modes = fit(x[None], y[None], kernel, priors=priors, known=() if known is None else [known])
    return Hyperparameters.from_array(kernel, modes.theta[0])


def bounds(num_scales: int) -> Array:
    """Return lower and upper bounds of `theta`, `(num_scales + 2, 2)`."""
    return np.log([LENGTHSCALE_BOUNDS] * num_scales + [OUTPUTSCALE_BOUNDS, NOISE_BOUNDS])


@functools.cache
def prior(num_dims: int, priors: Priors = DEFAULT_PRIORS, num_categories: int = 0) -> tuple[Array, Array]:
    """Return means and precisions `(F + 2,)` of the priors over `theta`."""
    centre = LENGTHSCALE_CENTRE * math.sqrt(breadth(num_dims, num_categories))
    mean = np.log([*[centre] * num_dims, OUTPUTSCALE_CENTRE, priors.noise_centre])
    stddev = np.array([*[priors.lengthscale_stddev] * num_dims, OUTPUTSCALE_STDDEV, priors.noise_stddev])
    mean.setflags(write=False)
    return mean, stddev**-2


Evaluate = Callable[[IntArray, Array], tuple[Array, Array]]


def _climb(evaluate: Evaluate, start: Array, bounds: Array, metric: Array) -> Modes:
    """Maximise a function of each row independently, within `bounds (D, 2)`.

    Parameters
    ----------
    evaluate : from row numbers `(b,)` and points `(b, D)` to values `(b,)` and gradients `(b, D)`
    start : `(B, D)`
    metric : `(B, D, D)`, initial approximations of the inverses of minus the Hessians
    """
    least, most = bounds.T
    x = np.clip(start, least, most)
    which = np.arange(len(x))  # rows not converged; all arrays below but the results hold only these
    values, g = evaluate(which, x)
    h, step = metric.copy(), np.ones(len(x))
    found, best = x.copy(), values.copy()
    evaluations = np.ones(len(x), dtype=np.int64)
    for _ in range(MAX_EVALUATIONS):
        free = ~(((x <= least) & (g < 0.0)) | ((x >= most) & (g > 0.0)))
        on = (np.abs(np.where(free, g, 0.0)).max(axis=1) > GRADIENT_TOLERANCE) & (step > SHORTEST_STEP)
        if not on.all():
            which, x, g, h, step, values, free = (a[on] for a in (which, x, g, h, step, values, free))
        if len(which) == 0:
            break
        direction = np.where(free, (h @ np.where(free, g, 0.0)[:, :, None])[:, :, 0], 0.0)
        length = np.sqrt(np.square(direction).sum(axis=1))
        scale = step * np.minimum(1.0, LONGEST_STEP / np.maximum(length, TINY))
        trial = np.minimum(np.maximum(x + scale[:, None] * direction, least), most)
        trial_values, trial_g = evaluate(which, trial)
        evaluations[which] += 1
        moved = trial - x
        gain, predicted = trial_values - values, (g * moved).sum(axis=1)
        accepted = gain >= ARMIJO * np.maximum(predicted, 0.0)
        # shorten a failed step to the maximum of the parabola through both values and the slope, but to
        # between .1 and .5 of its length
        shorter = np.minimum(np.maximum(0.5 * predicted / np.maximum(predicted - gain, TINY), 0.1), 0.5)
        step = np.where(accepted, 1.0, step * shorter)
        bend = np.where(accepted[:, None], g - trial_g, 0.0)
        curvature = (moved * bend).sum(axis=1)
        update = accepted & (curvature > 1e-10 * np.square(bend).sum(axis=1))
        h[update] = bfgs_update(h[update], moved[update], bend[update], curvature[update])
        x, g = np.where(accepted[:, None], trial, x), np.where(accepted[:, None], trial_g, g)
        values = np.where(accepted, trial_values, values)
        found[which], best[which] = x, values
        arrived = accepted & (gain <= VALUE_TOLERANCE * np.maximum(np.abs(values), 1.0))
        step = np.where(arrived, 0.0, step)
    return Modes(found, best, evaluations)
