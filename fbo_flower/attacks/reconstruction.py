"""What a curious server of Co-KG reads out of an agent's reports: the values that it observed.

A posterior at pivots determines the observations behind it. In whitened coordinates (`numerics.pivots`) an
observation of `y` at `x`, whose row of the basis is `w`, turns mean and covariance into

    m' = m + g (y - w^T m),  g = C w / (w^T C w + s2),

and the server chose `x` itself: one linear equation in `y`. Noise `e_t ~ N(0, s^2 I)` on the mean of report
`t` leaves the covariances `C_t`, and with them every gain, as they are. All reports of a run together,

    m_t = C_t (U c + sum_(i <= t) w_i y_i / s2) + e_t,

are one regression for all `y_i`; `U` spans what the warm-up added, as `C_1` tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky

VISIBLE = 1e-6  # share of the largest eigenvalue that an observation of the warm-up adds at least


def value_of_one_round(
    mean_before: Array, covariance_before: Array, mean_after: Array, row: Array, noise_variance: float
) -> float:
    """Recover `y` from the reports before and after it was observed.

    Parameters
    ----------
    mean_before, mean_after : `(r,)`
    covariance_before : `(r, r)`
    row : `(r,)`, of the basis, at the point that the server chose
    """
    gain = covariance_before @ row
    gain /= row @ gain + noise_variance
    change = mean_after - mean_before
    return float(row @ mean_before + (gain @ change) / (gain @ gain))


def values_of_a_run(
    means: Sequence[Array], covariances: Sequence[Array], rows: Array, noise_variance: float
) -> Array:
    """Estimate every `y` after the warm-up, `(T - 1,)`, from all `T` reports together, by least squares.

    Parameters
    ----------
    means, covariances : of the reports in their order; the first is the one after the warm-up
    rows : `(T - 1, r)`, of the basis, at the points chosen since
    """
    added = cholesky(covariances[0]).inverse() - np.eye(len(means[0]))
    eigenvalues, vectors = np.linalg.eigh(added)
    warm_up = vectors[:, eigenvalues > VISIBLE * eigenvalues[-1]]  # U
    blocks = []
    for t, covariance in enumerate(covariances):
        known = rows.T / noise_variance * (np.arange(len(rows)) < t)
        blocks.append(covariance @ np.hstack([warm_up * eigenvalues[-1], known]))
    solution = np.linalg.lstsq(np.vstack(blocks), np.concatenate(means), rcond=1e-12)[0]
    return np.asarray(solution[warm_up.shape[1] :])


def outside(covariance: Array, rows: Array, num_observations: int) -> Array:
    """Return how far candidate points are from those that were observed, `(Q,)`, 0 at each of them.

    What `n` observations add to the prior's precision, `C^-1 - I`, has the span of their rows of the basis;
    the result is the share of a candidate's row that is outside. The covariance alone tells where an agent
    was.

    Parameters
    ----------
    covariance : `(r, r)`, of any report
    rows : `(Q, r)`, of the basis, at the candidates
    num_observations : `n`, that the agent has made, at different points
    """
    added = cholesky(covariance).inverse() - np.eye(len(covariance))
    span = np.linalg.eigh(added)[1][:, -num_observations:]
    return np.asarray(1.0 - np.square(rows @ span).sum(axis=1) / np.square(rows).sum(axis=1))


def values_at(mean: Array, covariance: Array, rows: Array, noise_variance: float) -> Array:
    """Recover what was observed, `(n,)`, from one report, the rows `(n, r)` of the points being known."""
    shift = cholesky(covariance).solve(mean)  # W^T y / s2
    return np.asarray(np.linalg.lstsq(rows.T / noise_variance, shift)[0])
