"""How much each agent's belief should count in a barycenter.

The mean of a barycenter is `sum_n w_n mu_n`: one agent that was started badly, measures with more noise than
it believes, or sends noise, spoils it in proportion to its weight. Its claimed covariance shows the first of
these only, and anyone can claim a small one; so what an agent claims is held against what the others see.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

LEAST = 1e-6  # share of an absurd or a lonely agent; keeps weights positive
TOLERATED = 2.0  # times the middle agent's error: what sound agents differ by for where they have looked


def reliability(means: Array, covariances: Array) -> Array:
    """Weights for `bures.barycenter` and its mean, positive, summing to 1.

    `w_n` is proportional to `min(1, TOLERATED e / e_n)^2`, where `e_n = max(tr K_n,
    median_{m != n} |mu_n - mu_m|^2 / 2)` estimates `E |mu_n - f|^2`, and `e` is the median of them: what the
    agent claims, or half its squared distance to the other agents if that is more (two independent errors of
    one size are at twice that size from each other). Both medians are the lower one, so that the honest
    majority decides: one absurd message moves nobody else's weight, and a claim of certainty gains nothing.
    With two agents only the claims can differ.

    Sound agents have equal weights. Weights that follow every difference between them, as `e_n^-2` does,
    give a smaller error of the mean at each moment and a worse run: the agent that has seen most draws the
    others to the hill that it happens to be on (docs/results/cokg.md).

    Parameters
    ----------
    means : `(N, S)`, on the point set or in orthonormal coordinates (`pivots.principal`), so that lengths
        are those of functions
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
    errors = np.trace(covariances, axis1=1, axis2=2)
    if num > 1:
        squared = ((means[:, np.newaxis] - means[np.newaxis]) ** 2).sum(axis=2)
        np.fill_diagonal(squared, np.inf)
        errors = np.maximum(errors, 0.5 * np.sort(squared, axis=1)[:, (num - 2) // 2])
    middle = TOLERATED * float(np.sort(errors)[(num - 1) // 2])
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        shares = np.where(errors > middle, middle / errors, 1.0)
    weights = np.maximum(shares, LEAST) ** 2
    return np.asarray(weights / weights.sum())
