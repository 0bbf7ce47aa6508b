"""Fit the hyperparameters of many Gaussian processes at the same time, as `gp.fit` does for one.

Every process is computed by itself: the number of processes is only ever a loop or an elementwise dimension,
never one of BLAS. So each result is the same, bit for bit, whatever other processes are fitted with it.

A fit of forty observations spends most of its time on the overhead of small NumPy calls. Here the kernel
matrices of B processes with equally many observations are one array, and the optimisations run in parallel: a
projected quasi-Newton method [Bertsekas1982] with Armijo's rule for each process, which starts at the mode of
the prior with the prior's covariance as inverse Hessian. A process that has converged is not evaluated again.
`gp.fit` is the reference version. It uses L-BFGS-B, so if a posterior has two modes (one in twelve fits of
small sites' losses) the two may find different ones.

Notation: as in `gp`; `P = n (n - 1) / 2` pairs of observations, those below the diagonal.

[Bertsekas1982] Bertsekas. Projected Newton methods for optimization problems with simple constraints. SIAM J.
Control and Optimization 20 (1982).
[Kass1995] Kass, Raftery. Bayes factors. J. American Statistical Association 90 (1995), Section 3.2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import bfgs_update, cholesky, lapack
from fbo_flower.numerics.surrogates import gp, kernels

LONGEST_STEP = 2.0  # in units of theta
GRADIENT_TOLERANCE, VALUE_TOLERANCE = 1e-3, 2e-7  # as in `gp.fit`; the second is relative
ARMIJO, SHORTEST_STEP = 1e-4, 1e-6
MAX_EVALUATIONS = 100
TINY = 1e-300
NOISE_MARGIN = 3.0  # of log evidence: strong, 20 to 1 [Kass1995]


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
) -> Modes:
    """Return the mode of the hyperparameters' posterior of every process.

    Parameters
    ----------
    x : `(B, n, F)`, features of the query points
    y : `(B, n)`, standardised observations
    kernel : one of `kernels.KERNELS`
    start : `(B, F + 2)`, e.g. the last modes; None: the mode of the prior
    priors : of the hyperparameters
    """
    kernels.check_kernel(kernel)
    if x.ndim != 3 or y.shape != x.shape[:2]:
        raise ConfigError(f"data: expected x (B, n, F) and y (B, n), got {x.shape} and {y.shape}")
    mean, precision = gp.prior(x.shape[2], priors)
    if x.shape[1] == 0:  # nothing but the prior
        nothing = np.zeros(len(x))
        return Modes(np.tile(mean, (len(x), 1)), nothing, nothing.astype(np.int64))
    rows, columns, _ = _below_diagonal(x.shape[1])
    differences = np.square(x[:, rows] - x[:, columns]).transpose(0, 2, 1).copy()  # (B, F, P)

    def evaluate(which: IntArray, theta: Array) -> tuple[Array, Array]:
        values, gradients = log_marginal_likelihoods(differences[which], y[which], kernel, theta)
        pull = (mean - theta) * precision
        return values + 0.5 * (pull * (theta - mean)).sum(axis=1), gradients + pull

    begin = np.tile(mean, (len(x), 1)) if start is None else start
    metric = np.diag(1.0 / precision)
    return _climb(evaluate, begin, gp.bounds(x.shape[2]), metric)


def fit_with_or_without_noise(
    x: Array, y: Array, kernel: str, start: Array | None, exact: gp.Priors, noisy: gp.Priors
) -> Modes:
    """Return the mode under priors for exact or for noisy values, whichever is better, of every process.

    The posterior of few observations often has two modes: a rough function without noise, and a smooth one
    with noise. A climb finds the one on its side, so each side has a climb. The heights of the modes stand
    for the evidence, and the noisy one must be higher by `NOISE_MARGIN`. Otherwise the result is the one of
    `fit` with the priors `exact`, bit for bit.

    Parameters
    ----------
    start : as in `fit`; the climb of the noisy side begins at its prior's centre of the noise, or above
    """
    quiet = fit(x, y, kernel, start, exact)
    if start is not None:
        least = math.log(noisy.noise_centre)
        start = np.column_stack([start[:, :-1], np.maximum(start[:, -1], least)])
    loud = fit(x, y, kernel, start, noisy)
    takes = loud.values > quiet.values + NOISE_MARGIN
    return Modes(
        np.where(takes[:, None], loud.theta, quiet.theta),
        np.where(takes, loud.values, quiet.values),
        quiet.evaluations + loud.evaluations,
    )


def log_marginal_likelihoods(differences: Array, y: Array, kernel: str, theta: Array) -> tuple[Array, Array]:
    """Return `log N(y; 0, K + s2 I)` of every process and its gradient in `theta` [RW2006, Eqs. 5.8-5.9].

    Parameters
    ----------
    differences : `(B, F, P)`, squared differences of the features
    y : `(B, n)`
    theta : `(B, F + 2)`

    Returns
    -------
    Values `(B,)` and gradients `(B, F + 2)`.
    """
    num_processes, n = y.shape
    rows, columns, below = _below_diagonal(n)
    squared_scales = np.exp(-2.0 * theta[:, :-2])  # l^-2
    outputscale, noise_variance = np.exp(theta[:, -2]), np.exp(theta[:, -1])
    r2 = (squared_scales[:, None, :] @ differences)[:, 0]
    c, slope = kernels.profile_and_slope(kernel, r2)  # (B, P)
    matrices = np.zeros((num_processes, n * n))
    matrices[:, below] = outputscale[:, None] * c
    matrices[:, :: n + 1] = (outputscale + noise_variance)[:, None]
    matrices = matrices.reshape(num_processes, n, n)
    lower = factors(matrices)
    log_determinant = 2.0 * np.log(np.einsum("bii->bi", lower)).sum(axis=1)
    alpha = np.empty_like(y)
    for b in range(num_processes):  # LAPACK's upper factor is the transpose of ours: no copies
        alpha[b] = lapack().dpotrs(lower[b].T, y[b], lower=0)[0]
        lapack().dpotri(lower[b].T, lower=0, overwrite_c=1)
    inverses = lower.reshape(num_processes, -1)  # valid on and below the diagonal only
    fit_part = (y * alpha).sum(axis=1)
    # -1/2 y^T alpha - 1/2 log|K + s2 I| - n/2 log 2 pi  (Eq. 5.8)
    values = -0.5 * (fit_part + log_determinant + n * math.log(2.0 * math.pi))

    # Eq. 5.9 with A = alpha alpha^T - (K + s2 I)^-1: each derivative is tr(A dK / dtheta) / 2
    a = alpha[:, rows] * alpha[:, columns] - inverses[:, below]
    trace = np.square(alpha).sum(axis=1) - inverses[:, :: n + 1].sum(axis=1)
    gradients = np.empty_like(theta)
    weighted = (differences @ (a * slope)[:, :, None])[:, :, 0]
    gradients[:, :-2] = outputscale[:, None] * squared_scales * weighted
    noise_part = noise_variance * trace
    gradients[:, -2] = 0.5 * (fit_part - n - noise_part)  # tr(A (K + s2 I)) = y^T alpha - n
    gradients[:, -1] = 0.5 * noise_part
    return values, gradients


def factors(matrices: Array) -> Array:
    """Return lower Cholesky factors of `(B, n, n)`, reading only lower triangles; with jitter if needed."""
    try:
        lower = np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.array([_factor(matrix) for matrix in matrices])  # only the bad ones get jitter
    diagonals = lower.reshape(len(lower), -1)[:, :: lower.shape[1] + 1]
    if not np.isfinite(diagonals).all():
        raise NumericalError("cholesky: expected finite matrices, got entries that are not")
    return lower


def _factor(matrix: Array) -> Array:
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        return cholesky(np.tril(matrix) + np.tril(matrix, -1).T).lower


@functools.lru_cache(maxsize=2)  # n grows with every round; one fit asks a hundred times
def _below_diagonal(n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows, columns and flat positions of the entries below the diagonal of an `(n, n)` matrix."""
    rows, columns = np.tril_indices(n, -1)
    return rows, columns, rows * n + columns


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
    metric : `(D, D)`, initial approximation of the inverse of minus the Hessian, for every row
    """
    least, most = bounds.T
    x = np.clip(start, least, most)
    which = np.arange(len(x))  # rows not converged; all arrays below but the results hold only these
    values, g = evaluate(which, x)
    h, step = np.tile(metric, (len(x), 1, 1)), np.ones(len(x))
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
