"""Barycenter of Gaussians in the 2-Wasserstein metric, and weights of those that are averaged.

`W_2^2(N(a, A), N(b, B)) = |a - b|^2 + min_Q |A^{1/2} - B^{1/2} Q|_F^2` over orthogonal `Q`: covariances are
compared by factors, `K = F F^T`, which are unique up to a rotation from the right. So the barycenter of
`K_n = B_n B_n^T` is a mean of rotated factors (generalised Procrustes),

    F <- sum_n w_n B_n Q_n,  Q_n the orthogonal polar factor of B_n^T F,

which is the fixed point of [Alvarez2016], `K <- K^{-1/2} (sum_n w_n (K^{1/2} K_n K^{1/2})^{1/2})^2
K^{-1/2}`, without an inverse: neither small eigenvalues nor singular covariances hurt it. With `T = sum_n w_n
(F^T K_n F)^{1/2}`, the fixed point [Zhan2025, Eq. 8] is `T = F^T F`, and `F^T F_new = T`.

The plain iteration converges linearly and never increases the spread. Two earlier iterates are mixed in such
that the combined residual `T - F^T F` is least [Anderson1965], which saves about a third of the steps; a step
that increases the spread is taken back and repeated plainly.

**Weights.** The mean of a barycenter is `sum_n w_n mu_n`. An agent with a bad start, with more noise than it
assumes, or with invented data distorts it in proportion to its weight. The covariance that an agent sends
reveals only the first of these, and an agent can claim any covariance. So each agent's claimed error is
compared with its distance to the other agents' means.

[Alvarez2016] Alvarez-Esteban, del Barrio, Cuesta-Albertos, Matran. A fixed-point approach to barycenters in
Wasserstein space. J. Math. Anal. Appl. 441, 2016.
[Anderson1965] Anderson. Iterative procedures for nonlinear integral equations. J. ACM 12, 1965.
[Zhan2025] Zhan et al. Collaborative Bayesian optimization via Wasserstein barycenters. 2025.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.arrays import Array, IntArray

MEMORY = 2  # earlier iterates that are mixed in
SHARE_OF_MEAN = 0.1  # of the arithmetic mean in a warm start
FINE = 1e-7  # below this tolerance square roots come from singular values, not from eigenvalues
LEAST = 1e-6  # least share; keeps the weight of an outlier positive
TOLERATED = 2.0  # agents with up to this multiple of the median error get full weight
INDEFINITE = 1e-6  # a covariance with an eigenvalue below minus this share of its largest is refused


@dataclass(frozen=True)
class Barycenter:
    """The last iterate; the caller decides what to do if it has not converged.

    Attributes
    ----------
    covariance : `(S, S)`
    iterations : number of steps
    residual : `|sum_n w_n (K^{1/2} K_n K^{1/2})^{1/2} - K|_F / |K|_F`, Eq. 8; small at a wrong point too if
        `covariance` is singular, so check `spread` too
    spread : `sum_n w_n W_2^2(K_n, K)`, what the barycenter minimises
    rank : number of eigenvectors of the mean covariance that were kept
    converged : whether `residual` met the tolerance
    """

    covariance: Array
    iterations: int
    residual: float
    spread: float
    rank: int
    converged: bool


def barycenter(
    covariances: Array,
    weights: Array | None = None,
    tolerance: float = 1e-6,
    *,
    start: Array | None = None,
    rank_cut: float = 1e-8,
    max_iterations: int = 100,
) -> Barycenter:
    """Return the covariance that minimises `sum_n w_n W_2^2(K_n, K)`; means are averaged likewise.

    The iteration works in the span of the eigenvectors of the arithmetic mean that matter, so a dense `(N, S,
    S)` of rank `r` costs one `eigh` of `(S, S)`, then `N` of `(r, r)` per step. The minimum is unique if one
    `K_n` of positive weight has full rank in that span. Use tolerance 1e-6 to report results, 1e-3 (with
    `rank_cut` 1e-5) for speed.

    Parameters
    ----------
    covariances : `(N, S, S)`, symmetric, positive semi-definite
    weights : `(N,)`, not negative, not all 0, divided by their sum; equal if None
    tolerance : of `residual`. Down to 1e-7 by `eigh` of `F^T K_n F`, whose rounding is 1e-8; below that by
        the singular values of `B_n^T F` at twice the time, which reaches 1e-12 at any `rank_cut`
    start : `(S, S)`, e.g. the barycenter of the last round; the arithmetic mean if None. A tenth of the
        mean is mixed in: a singular start cannot keep the iteration out of directions that the `K_n` have
    rank_cut : eigenvalues of the mean covariance below this share of the largest are dropped
    max_iterations : largest number of steps

    Raises
    ------
    NumericalError
        If a covariance has a clearly negative eigenvalue.
    """
    w = _check(covariances, weights, start)
    mean = np.tensordot(w, covariances, axes=1)
    eigenvalues, vectors = np.linalg.eigh(mean)
    if eigenvalues[0] < -INDEFINITE * abs(eigenvalues[-1]):
        _check_definite(np.asarray(np.linalg.eigvalsh(covariances)), np.arange(len(w)))
    keep = eigenvalues > rank_cut * max(float(eigenvalues[-1]), 0.0)
    trace = float(mean.trace())
    if not keep.any():
        return Barycenter(np.zeros_like(mean), 0, 0.0, trace, 0, True)
    basis = vectors[:, keep]
    counted = np.flatnonzero(w)
    inside = basis.T @ covariances[counted] @ basis
    factor = np.diag(np.sqrt(eigenvalues[keep]))
    if start is not None:
        inner = (1.0 - SHARE_OF_MEAN) * (basis.T @ start @ basis) + SHARE_OF_MEAN * (factor * factor)
        factor = _factors(inner[np.newaxis], np.array([-1]))[0]
    step = (_step_by_svd if tolerance < FINE else _step_by_eigh)(inside, w[counted], counted)
    factor, iterations, residual, gain = _iterate(step, factor, tolerance, max_iterations)
    lifted = basis @ factor
    return Barycenter(
        lifted @ lifted.T, iterations, residual, max(trace + gain, 0.0), len(factor), residual <= tolerance
    )


def _iterate(
    step: Callable[[Array], Array], factor: Array, tolerance: float, max_iterations: int
) -> tuple[Array, int, float, float]:
    """Return `F`, the number of steps, the residual, and `|F|^2 - 2 tr T`, spread minus `sum w_n tr K_n`."""
    history: list[tuple[Array, Array]] = []  # of (T - F^T F, F_new)
    plain, last = factor, math.inf
    for iteration in range(max_iterations + 1):
        pulled = step(factor)
        gram, t = factor.T @ factor, factor.T @ pulled
        gain = float(gram.trace() - 2.0 * t.trace())
        defect = t - gram  # T - F^T F [Zhan2025, Eq. 8]
        residual = float(np.linalg.norm(defect) / np.linalg.norm(gram))
        if residual <= tolerance or iteration == max_iterations:
            break
        if gain > last + 1e-12 * abs(last) and history:
            factor, history, last = plain, [], math.inf  # the mixed step increased it: repeat it plainly
            continue
        last, plain = gain, pulled
        history = [*history[-MEMORY:], (defect, pulled)]
        factor = _mix(history)
    return factor, iteration, residual, gain


def _mix(history: list[tuple[Array, Array]]) -> Array:
    """Return the combination of the `F_new`, with coefficients of sum 1, of least residual [Anderson1965]."""
    defect, pulled = history[-1]
    if len(history) == 1:
        return pulled
    differences = np.array([(other - defect).ravel() for other, _ in history[:-1]])
    normal, right = differences @ differences.T, -(differences @ defect.ravel())
    shares = np.linalg.lstsq(normal, right, rcond=1e-12)[0]
    mixed = (1.0 - shares.sum()) * pulled
    for share, (_, other) in zip(shares, history[:-1], strict=True):
        mixed += share * other
    return np.asarray(mixed)


def _step_by_eigh(covariances: Array, weights: Array, names: IntArray) -> Callable[[Array], Array]:
    """Return the step `F -> sum_n w_n K_n F (F^T K_n F)^{-1/2} = sum_n w_n B_n Q_n`, by `eigh` per `n`."""
    checked = False

    def step(factor: Array) -> Array:
        nonlocal checked
        product = covariances @ factor  # (N, r, r)
        eigenvalues, vectors = np.linalg.eigh(factor.T @ product)
        if not checked:
            _check_definite(eigenvalues, names)
            checked = True
        floor = 1e-15 * np.maximum(eigenvalues[:, -1:], 1e-300)  # below it there is only rounding
        scale = np.where(eigenvalues > floor, weights[:, np.newaxis], 0.0)
        scale /= np.sqrt(np.maximum(eigenvalues, floor))
        root = (vectors * scale[:, np.newaxis, :]) @ vectors.transpose(0, 2, 1)
        return np.asarray((product @ root).sum(axis=0))

    return step


def _step_by_svd(covariances: Array, weights: Array, names: IntArray) -> Callable[[Array], Array]:
    """Return the step `F -> sum_n w_n B_n Q_n`, `Q_n = U V^T` from `B_n^T F = U S V^T`: more precise."""
    factors = _factors(covariances, names)
    transposed, weighted = factors.transpose(0, 2, 1), weights[:, np.newaxis, np.newaxis] * factors

    def step(factor: Array) -> Array:
        u, _, vt = np.linalg.svd(transposed @ factor)
        return np.asarray((weighted @ (u @ vt)).sum(axis=0))

    return step


def _factors(covariances: Array, names: IntArray) -> Array:
    """Return `B_n` with `B_n B_n^T = K_n`, `(N, S, S)`; the `K_n` may be singular."""
    eigenvalues, vectors = np.linalg.eigh(covariances)
    _check_definite(eigenvalues, names)
    return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[:, np.newaxis, :])


def _check_definite(eigenvalues: Array, names: IntArray) -> None:
    lowest, highest = eigenvalues.min(axis=1), np.abs(eigenvalues).max(axis=1)
    bad = np.flatnonzero(lowest < -INDEFINITE * highest)
    if len(bad):
        raise NumericalError(
            f"covariance {names[bad[0]]}: expected positive semi-definite, got an eigenvalue that is "
            f"{lowest[bad[0]] / highest[bad[0]]:.3g} of the largest"
        )


def _check(covariances: Array, weights: Array | None, start: Array | None) -> Array:
    if covariances.ndim != 3 or covariances.shape[1] != covariances.shape[2] or 0 in covariances.shape:
        raise ConfigError(f"covariances: expected (N, S, S) with N, S > 0, got {covariances.shape}")
    num, size, _ = covariances.shape
    if not np.isfinite(covariances).all():
        raise ConfigError("covariances: expected finite numbers, got some that are not")
    if start is not None and (start.shape != (size, size) or not np.isfinite(start).all()):
        raise ConfigError(f"start: expected finite ({size}, {size}), got {start.shape}")
    if weights is None:
        return np.full(num, 1.0 / num)
    if weights.shape != (num,) or not (np.isfinite(weights).all() and weights.min() >= 0 and weights.any()):
        raise ConfigError(f"weights: expected ({num},) numbers >= 0, not all 0, got {weights}")
    return np.asarray(weights / weights.sum())


def reliability(means: Array, covariances: Array) -> Array:
    """Return weights `(N,)` for `bures.barycenter` and its mean: positive, with sum 1.

    `w_n` is proportional to `min(1, TOLERATED e / e_n)^2`. The error estimate `e_n = max(tr K_n, median_{m !=
    n} |mu_n - mu_m|^2 / 2)` of `E |mu_n - f|^2` is what the agent claims, or half its squared distance to the
    other agents if that is larger (two independent errors of equal size have twice that squared distance).
    `e` is the median of all `e_n`. Both medians are lower medians, so a majority of honest agents decides:
    one extreme message does not change the other agents' weights, and claiming a small covariance gains
    nothing. With two agents only the claimed covariances can differ.

    Reliable agents have equal weights on purpose. Weights such as `e_n^-2`, which follow every difference,
    give a smaller error of the mean in each round but worse runs: the agent with most observations draws the
    others to its own local optimum (docs/results/cokg.md).

    Parameters
    ----------
    means : `(N, S)`, on the point set or in orthonormal coordinates (`pivots.principal`), so that Euclidean
        distances are those of the functions on the point set
    covariances : `(N, S, S)`, in the same coordinates
    """
    num, size = means.shape if means.ndim == 2 else (0, 0)
    if num == 0 or covariances.shape != (num, size, size):
        raise ConfigError(
            f"beliefs: expected means (N, S) and covariances (N, S, S), "
            f"got {means.shape} and {covariances.shape}"
        )
    if not (np.isfinite(means).all() and np.isfinite(covariances).all()):
        raise ConfigError("beliefs: expected finite numbers, got some that are not")
    # e_n = max(tr K_n, lower median_{m != n} |mu_n - mu_m|^2 / 2)
    errors = np.trace(covariances, axis1=1, axis2=2)
    if num > 1:
        squared = ((means[:, np.newaxis] - means[np.newaxis]) ** 2).sum(axis=2)
        np.fill_diagonal(squared, np.inf)
        errors = np.maximum(errors, 0.5 * np.sort(squared, axis=1)[:, (num - 2) // 2])
    middle = TOLERATED * float(np.sort(errors)[(num - 1) // 2])
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        shares = np.where(errors > middle, middle / errors, 1.0)
    weights = np.maximum(shares, LEAST) ** 2  # min(1, TOLERATED e / e_n)^2
    return np.asarray(weights / weights.sum())
