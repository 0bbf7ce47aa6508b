"""Fit and condition many Gaussian processes at once.

Every process is computed by itself: the number of processes is only ever a loop or an elementwise dimension,
never one of BLAS. So each result is the same, bit for bit, whatever other processes are fitted with it.

A fit of forty observations spends most of its time on the overhead of small NumPy calls. Here the kernel
matrices of B processes with equally many observations are one array, and the optimisations run in parallel: a
projected quasi-Newton method [Bertsekas1982] with Armijo's rule for each process, which starts at the mode of
the prior with the prior's covariance as inverse Hessian. A process that has converged is not evaluated again.
`gp.fit` is the reference version. It uses L-BFGS-B, so if a posterior has two modes (one in twelve fits of
small sites' losses) the two may find different ones.

Notation: as in `gp`.

[Bertsekas1982] Bertsekas. Projected Newton methods for optimization problems with simple constraints. SIAM J.
Control and Optimization 20 (1982).
[Kass1995] Kass, Raftery. Bayes factors. J. American Statistical Association 90 (1995), Section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import bfgs_update, factors, solve, solve_and_invert
from fbo_flower.numerics.surrogates import gp, kernels, rff

LONGEST_STEP = 2.0  # in units of theta
GRADIENT_TOLERANCE, VALUE_TOLERANCE = 1e-3, 2e-7  # as in `gp.fit`; the second is relative
ARMIJO, SHORTEST_STEP = 1e-4, 1e-6
MAX_EVALUATIONS = 100
TINY = 1e-300
NOISE_MARGIN = 3.0  # of log evidence: strong, 20 to 1 [Kass1995]


@dataclass(frozen=True)
class Known:
    """What is known about a process beside its own observations.

    Attributes
    ----------
    covariance : `(n, n)`, added to the kernel matrix: of the prior mean, which others' observations gave
    lengthscales : `(F,)`, centres of their priors
    lengthscale_stddev : standard deviation of the logarithms of lengthscales
    outputscale : centre of its prior
    """

    covariance: Array
    lengthscales: Array
    lengthscale_stddev: float
    outputscale: float


@dataclass(frozen=True)
class Conditioned:
    """A Gaussian process conditioned on observations, with the inverse of their covariance.

    Attributes
    ----------
    x : `(n, F)`
    hyperparameters : as given
    alpha : `(K + s2 I)^-1 y`, `(n,)`
    inverse : `(K + s2 I)^-1`, `(n, n)`
    means : posterior means at the observed points, `(n,)`
    """

    x: Array
    hyperparameters: gp.Hyperparameters
    alpha: Array
    inverse: Array
    means: Array


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
    priors: gp.Priors = gp.DEFAULT_PRIORS,
    known: Sequence[Known] = (),
) -> Modes:
    """Return the mode of the hyperparameters' posterior of every process.

    Parameters
    ----------
    x : `(B, n, F)`, features of the query points
    y : `(B, n)`, standardised observations
    kernel : one of `kernels.KERNELS`
    start : `(B, F + 2)`, e.g. the last modes; None: the mode of the prior
    priors : of the hyperparameters
    known : of every process, what replaces the priors of lengthscales and outputscale; (): nothing
    """
    kernels.check_kernel(kernel)
    if x.ndim != 3 or y.shape != x.shape[:2]:
        raise ConfigError(f"data: expected x (B, n, F) and y (B, n), got {x.shape} and {y.shape}")
    mean, precision = gp.prior(x.shape[2], priors)
    # what is known moves the priors: the climb is in the differences from their centres
    shift, precisions = np.zeros((len(x), len(mean))), np.tile(precision, (len(x), 1))
    for b, one in enumerate(known):
        shift[b, :-1] = np.log([*one.lengthscales, one.outputscale]) - mean[:-1]
        precisions[b, :-2] = one.lengthscale_stddev**-2
    if x.shape[1] == 0:  # nothing but the prior
        nothing = np.zeros(len(x))
        return Modes(mean + shift, nothing, nothing.astype(np.int64))
    differences = gp.pair_differences(x)
    covariances = np.array([one.covariance for one in known]) if known else None

    def evaluate(which: IntArray, moved: Array) -> tuple[Array, Array]:
        added = None if covariances is None else covariances[which]
        theta = moved + shift[which]
        values, gradients = gp.log_marginal_likelihoods(differences[which], y[which], kernel, theta, added)
        pull = (mean - moved) * precisions[which]
        return values + 0.5 * (pull * (moved - mean)).sum(axis=1), gradients + pull

    begin = np.tile(mean, (len(x), 1)) if start is None else start - shift
    metrics = np.array([np.diag(1.0 / row) for row in precisions])
    modes = _climb(evaluate, begin, gp.bounds(x.shape[2]), metrics)
    return Modes(modes.theta + shift, modes.values, modes.evaluations)


def fit_with_or_without_noise(
    x: Array,
    y: Array,
    kernel: str,
    start: Array | None,
    exact: gp.Priors,
    noisy: gp.Priors,
    known: Sequence[Known] = (),
) -> Modes:
    """Return the mode under priors for exact or for noisy values, whichever is better, of every process.

    The posterior of few observations often has two modes: a rough function without noise, and a smooth one
    with noise. A climb finds the one on its side, so each side has a climb. The heights of the modes stand
    for the evidence, and the noisy one must be higher by `NOISE_MARGIN`. Otherwise the result is the one of
    `fit` with the priors `exact`, bit for bit.

    Parameters
    ----------
    start, known : as in `fit`; the climb of the noisy side begins at its prior's centre of the noise, or
        above
    """
    quiet = fit(x, y, kernel, start, exact, known)
    if start is not None:
        least = math.log(noisy.noise_centre)
        start = np.column_stack([start[:, :-1], np.maximum(start[:, -1], least)])
    loud = fit(x, y, kernel, start, noisy, known)
    takes = loud.values > quiet.values + NOISE_MARGIN
    return Modes(
        np.where(takes[:, None], loud.theta, quiet.theta),
        np.where(takes, loud.values, quiet.values),
        quiet.evaluations + loud.evaluations,
    )


def condition(
    x: Array, y: Array, hyperparameters: Sequence[gp.Hyperparameters], added: Array | None = None
) -> list[Conditioned]:
    """Condition each process on its observations.

    Parameters
    ----------
    x, y : `(B, n, F)` and `(B, n)`; `n` may be 0
    hyperparameters : one per process, all of one kernel
    added : `(B, n, n)`, covariances that are added to `K`; None: 0
    """
    n = x.shape[1]
    scales = np.array([h.lengthscales for h in hyperparameters])
    outputscale = np.array([h.outputscale for h in hyperparameters])
    noise_variance = np.array([h.noise_variance for h in hyperparameters])
    if n == 0:
        return [Conditioned(x[b], h, y[b], np.empty((0, 0)), y[b]) for b, h in enumerate(hyperparameters)]
    matrices = gp.covariances(hyperparameters[0].kernel, x, scales, outputscale, noise_variance)
    if added is not None:
        matrices = matrices + added
    lower = factors(matrices)
    alpha = solve_and_invert(lower, y)
    below = np.tril(lower, -1)  # potri leaves the zeros above the diagonal
    inverses = lower + below.transpose(0, 2, 1)
    # K alpha = y - s2 alpha, because (K + s2 I) alpha = y, and K holds what was added
    means = y - noise_variance[:, None] * alpha
    return [Conditioned(*parts) for parts in zip(x, hyperparameters, alpha, inverses, means, strict=True)]


def sample_weights_many(
    features: Sequence[rff.RandomFeatures],
    x: Array,
    y: Array,
    noise_variance: float,
    rngs: Sequence[np.random.Generator],
) -> Array:
    """Draw `omega (B, M)` of every agent, as `rff.sample_weights_dual` does for one.

    Parameters
    ----------
    features : one per agent, all with `M` features
    x, y : `(B, n, F)` and `(B, n)`
    """
    phi = x @ np.array([f.frequencies for f in features]).transpose(0, 2, 1)
    phi += np.array([f.phases for f in features])[:, None, :]
    rff.cosine_in_place(phi.reshape(-1))
    phi /= np.maximum(np.sqrt(np.square(phi).sum(axis=2)), np.finfo(np.float64).tiny)[:, :, None]
    num_features = phi.shape[2]
    normals = np.array([rng.standard_normal(num_features + y.shape[1]) for rng in rngs])
    w0, e = normals[:, :num_features], math.sqrt(noise_variance) * normals[:, num_features:]
    gram = phi @ phi.transpose(0, 2, 1)
    gram.reshape(len(gram), -1)[:, :: y.shape[1] + 1] += noise_variance
    # omega = w_0 + Phi^T (Phi Phi^T + sigma^2 I)^-1 (y - Phi w_0 - e)
    residual = solve(gram, y - (phi @ w0[:, :, None])[:, :, 0] - e)
    update: Array = (phi.transpose(0, 2, 1) @ residual[:, :, None])[:, :, 0]
    return w0 + update


Evaluate = Callable[[IntArray, Array], tuple[Array, Array]]


def _climb(
    evaluate: Evaluate,
    start: Array,
    bounds: Array,
    metric: Array,
) -> Modes:
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
