"""Weights of other agents' surrogates by how well they rank the observations of one agent, the target.

Only the ranking counts, because the scales of different agents' values are not comparable. Notation: `n`
points of the target with values `y (n,)`, `K` other agents, `S` draws. The ranking loss of `f` is the share
of ordered pairs `(j, k)`, `y_j != y_k`, that `f` ranks in the wrong order; a tie of `f` counts half.

[Feurer2018] Feurer, Letham, Bakshy. Scalable meta-learning for Bayesian optimization using ranking-weighted
Gaussian process ensembles. AutoML workshop at ICML 2018.
[Wistuba2018] Wistuba, Schilling, Schmidt-Thieme. Scalable Gaussian process-based transfer surrogates for
hyperparameter optimization. Machine Learning 107 (2018) 43-78.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.gp import Posterior

GUARD = 95.0  # an agent is dropped if its median loss exceeds this percentile of the target's losses
TARGET_WEIGHT = 0.75  # the Epanechnikov kernel at 0


def differences(predictions: Array) -> Array:
    """Return `f(x_j) - f(x_k)`, `(S, n, n)`, of predictions `(S, n)`."""
    return predictions[:, :, None] - predictions[:, None, :]


def discordance(gaps: Array, y: Array) -> Array:
    """Return the loss of every ordered pair, `(S, n, n)`: 0 right order, 1 wrong order, 1/2 a tie.

    Parameters
    ----------
    gaps : `(S, n, n)`, `f(x_j) - f(x_k)`; `f` may differ from row `j` to row
    y : `(n,)`; the loss of pairs with equal values is 0
    """
    if gaps.shape[1:] != (len(y), len(y)):
        raise ConfigError(f"gaps: expected (S, {len(y)}, {len(y)}), got {gaps.shape}")
    order = np.sign(y[:, None] - y[None, :])
    return np.asarray(0.5 * (np.abs(order) - np.sign(gaps) * order), dtype=np.float64)


def ranking_losses(gaps: Array, y: Array) -> Array:
    """Return the ranking loss of every draw, `(S,)`, in `[0, 1]`; 0 where no two values differ."""
    pairs = np.count_nonzero(y[:, None] != y[None, :])
    return np.asarray(discordance(gaps, y).sum(axis=(1, 2)) / max(pairs, 1), dtype=np.float64)


def prediction_losses(predictions: Array, y: Array) -> Array:
    """Return the ranking losses `(S,)` of functions with finite values `predictions (S, n)`."""
    order = np.argsort(y, kind="stable")
    ascending = y[order]
    columns = np.ascontiguousarray(predictions[:, order].T)  # (n, S), by increasing y
    larger = np.searchsorted(ascending, ascending, side="right")  # the first column with a larger value
    num_pairs = int((len(y) - larger).sum())
    if num_pairs == 0:
        return np.zeros(len(predictions))
    # a wrong order counts once as > and once as >=, a tie only as >=: twice the loss of the pair
    twice = np.zeros(len(predictions), dtype=np.int64)
    count = np.uint8 if len(y) < 256 else np.uint32
    for row, first in enumerate(larger):
        above, later = columns[row], columns[first:]
        for wrong in (above > later, above >= later):
            twice += wrong.view(np.uint8).sum(axis=0, dtype=count)
    return 0.5 * twice / num_pairs


def bootstrap_losses(gaps: Array, y: Array, counts: Array) -> Array:
    """Return the ranking loss of one function on every resampled history, `(S,)`.

    Parameters
    ----------
    gaps : `(n, n)`, of the function, or of leave-one-out functions row by row
    counts : `(S, n)`, how often each observation is in the resample
    """
    wrong = discordance(gaps[None], y)[0]
    compared = (y[:, None] != y[None, :]).astype(np.float64)
    total, all_pairs = (((counts @ m) * counts).sum(axis=1) for m in (wrong, compared))
    return np.asarray(total / np.maximum(all_pairs, 1.0), dtype=np.float64)


def leave_one_out_gaps(posterior: Posterior, num_draws: int, rng: np.random.Generator) -> Array:
    """Draw `f_(-j)(x_j) - f_(-j)(x_k)`, `(S, n, n)`: the target's leave-one-out predictions.

    `f_(-j)` is a draw of the posterior without observation `j`, for all `j` from one draw of the prior
    (Matheron's rule): with `A = K + s2 I`, `r = y - f_0 - e` and `a = A^-1 r`, leaving out `j` takes
    `a_j / (A^-1)_jj` times the column `K A^-1 e_j` away from `f_0 + K a`.

    Parameters
    ----------
    num_draws : `S`; 0 gives the means instead, `(1, n, n)`
    """
    h, x = posterior.hyperparameters, posterior.x
    n = len(x)
    k = h.outputscale * gp.kernel(h.kernel, x, x, h.lengthscales)
    inverse = posterior.inverse
    if num_draws:
        prior = rng.standard_normal((num_draws, n)) @ cholesky(k + 1e-9 * h.outputscale * np.eye(n)).lower.T
        noise = np.sqrt(h.noise_variance) * rng.standard_normal((num_draws, n))
    else:
        prior = noise = np.zeros((1, n))
    a = (posterior.y - prior - noise) @ inverse  # (S, n)
    whole = prior + a @ k
    step = a / inverse.diagonal()  # (S, n)
    columns = k @ inverse  # (n, n): column j is what leaving out j takes away
    own = whole - step * columns.diagonal()  # f_(-j)(x_j)
    others = whole[:, None, :] - step[:, :, None] * columns.T[None, :, :]  # f_(-j)(x_k)
    return np.asarray(own[:, :, None] - others, dtype=np.float64)


def ensemble_weights(losses: Array, target: Array) -> Array:
    """Return how often each surrogate has the least ranking loss [Feurer2018]: `(K + 1,)`, target last.

    An agent whose median loss exceeds the 95th percentile of the target's losses is dropped. Otherwise many
    useless agents would win some draws by chance and dilute the weights of the useful ones. A tie goes to the
    target if it is among the best, else in equal parts to the tied agents.

    Parameters
    ----------
    losses : `(K, S)`, ranking losses of the other agents
    target : `(S,)`, ranking losses of the target
    """
    if losses.ndim != 2 or target.ndim != 1 or losses.shape[1] != len(target) or len(target) == 0:
        raise ConfigError(f"losses: expected (K, S) and (S,), S > 0, got {losses.shape} and {target.shape}")
    weights = np.zeros(len(losses) + 1)
    kept = np.flatnonzero(np.median(losses, axis=1) <= np.percentile(target, GUARD))
    if len(kept) == 0:
        weights[-1] = 1.0
        return weights
    rivals = losses[kept]
    best = rivals.min(axis=0)
    target_wins = target <= best
    winners = (rivals == best) & ~target_wins
    share = winners / np.maximum(winners.sum(axis=0), 1)
    weights[kept] = share.mean(axis=1)
    weights[-1] = target_wins.mean()
    return weights


def kernel_weights(losses: Array, bandwidth: float) -> Array:
    """Return the Epanechnikov weights `3/4 (1 - (loss / bandwidth)^2)`, 0 beyond the bandwidth [Wistuba2018].

    Parameters
    ----------
    losses : `(K,)`, ranking losses of the agents' mean predictions
    bandwidth : positive; with 1/2 an agent that ranks at random gets weight 0
    """
    if not bandwidth > 0.0:
        raise ConfigError(f"bandwidth: expected a positive number, got {bandwidth}")
    return np.asarray(TARGET_WEIGHT * np.maximum(1.0 - (losses / bandwidth) ** 2, 0.0), dtype=np.float64)
