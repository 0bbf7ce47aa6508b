"""Recover an agent's observations from its reports in Co-KG.

A posterior at pivots determines the observations behind it. In whitened coordinates
(`numerics.surrogates.pivots`) an observation of `y` at `x`, whose row of the basis is `w`, turns mean and
covariance into

    m' = m + g (y - w^T m),  g = C w / (w^T C w + s2),

and the server chose `x` itself: one linear equation in `y`. Noise `e_t ~ N(0, s^2 I)` on the mean of report
`t` does not change the covariances `C_t`, and therefore no gain. All reports of a run together,

    m_t = C_t (U c + sum_(i <= t) w_i y_i / s2) + e_t,

are one linear regression for all `y_i`; `U` spans the warm-up's observations and follows from `C_1`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky

VISIBLE = 1e-6  # smallest share of the largest eigenvalue that counts as an observation


def value_of_one_round(
    mean_before: Array, covariance_before: Array, mean_after: Array, row: Array, noise_variance: float
) -> float:
    """Recover `y` from the reports before and after it was observed.

    Parameters
    ----------
    mean_before, mean_after : `(r,)`
    covariance_before : `(r, r)`
    row : `(r,)`, row of the basis at the point that the server chose
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
    means, covariances : posteriors in the reports, in order; the first report follows the warm-up
    rows : `(T - 1, r)`, rows of the basis at the points that the server chose after it
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
    """Return for each candidate point `(Q,)` how far it is from the observed points; 0 at each of them.

    `n` observations add `C^-1 - I` to the prior's precision, a matrix whose span is that of their rows of the
    basis. The result is the share of a candidate's row outside this span. So the covariance alone reveals the
    agent's points.

    Parameters
    ----------
    covariance : `(r, r)`, covariance in any report
    rows : `(Q, r)`, rows of the basis at the candidates
    num_observations : `n`, number of the agent's observations, at different points
    """
    added = cholesky(covariance).inverse() - np.eye(len(covariance))
    span = np.linalg.eigh(added)[1][:, -num_observations:]
    return np.asarray(1.0 - np.square(rows @ span).sum(axis=1) / np.square(rows).sum(axis=1))


def values_at(mean: Array, covariance: Array, rows: Array, noise_variance: float) -> Array:
    """Recover the observed values `(n,)` from one report, given the rows `(n, r)` of their points."""
    shift = cholesky(covariance).solve(mean)  # W^T y / s2
    return np.asarray(np.linalg.lstsq(rows.T / noise_variance, shift)[0])
