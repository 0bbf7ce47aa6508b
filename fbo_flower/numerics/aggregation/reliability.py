"""Weights of the agents' posteriors in a barycenter, which limit the influence of unreliable agents.

The mean of a barycenter is `sum_n w_n mu_n`. An agent with a bad start, with more noise than it assumes, or
with invented data distorts it in proportion to its weight. The covariance that an agent sends reveals only
the first of these, and an agent can claim any covariance. So each agent's claimed error is compared with its
distance to the other agents' means.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

LEAST = 1e-6  # least share; keeps the weight of an outlier positive
TOLERATED = 2.0  # agents with up to this multiple of the median error get full weight


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
