"""ParEGO's scalarisation of several losses: the augmented Tchebycheff function [Knowles2006].

Losses are minimised. `f` in `[0, 1]^k` are the losses, scaled so that the least observed value of each is 0
and the largest 1. The weights `w` sum to 1 and are drawn anew for each proposal. The scalar loss is

`max_j w_j f_j + rho sum_j w_j f_j`

Its minimisers over all `w` are the whole front, including concave parts. `rho > 0` excludes points that are
equal in the worst loss and worse in others.

[Knowles2006] Knowles. ParEGO: a hybrid algorithm with on-line landscape approximation for expensive
multiobjective optimization problems. IEEE Trans. Evolutionary Computation 10 (2006) 50-66.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array

RESOLUTION = 100_000  # s of the lattice, as in [Sun2019]; Knowles uses 10
RHO = 0.05


def normalise(losses: Array) -> Array:
    """Return `losses (n, k)` with each column scaled to `[0, 1]`; constant columns become 0."""
    if losses.ndim != 2 or not np.isfinite(losses).all():
        raise ConfigError(f"losses: expected finite numbers (n, k), got {losses.shape}")
    if len(losses) == 0:
        return losses.copy()
    least = losses.min(axis=0)
    span = losses.max(axis=0) - least
    noise = span <= 1e-12 * np.abs(losses).max(axis=0)  # columns that vary only by rounding count as constant
    return np.asarray(np.where(noise, 0.0, (losses - least) / np.where(noise, 1.0, span)), dtype=np.float64)


def draw_weights(num_losses: int, rng: np.random.Generator) -> Array:
    """Draw weights `(k,)` uniformly from all `(l_1, ..., l_k) / s` with integers `l_j >= 0`, `sum l_j = s`.

    Parameters
    ----------
    num_losses : `k`, at least 1
    """
    if num_losses < 1:
        raise ConfigError(f"weights: expected k from 1, got {num_losses}")
    # stars and bars: choose k - 1 bars among s + k - 1 places; the l_j are the numbers of stars between them
    places = RESOLUTION + num_losses - 1
    bars = np.sort(rng.choice(places, size=num_losses - 1, replace=False))
    edges = np.concatenate([[-1], bars, [places]])
    return np.asarray((np.diff(edges) - 1) / RESOLUTION, dtype=np.float64)


def tchebycheff(losses: Array, weights: Array) -> Array:
    """Return the augmented Tchebycheff loss `(n,)` of normalised `losses (n, k)` for `weights (k,)`.

    Examples
    --------
    >>> tchebycheff(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.5, 0.5])).round(4).tolist()
    [0.525, 0.275]
    """
    if losses.ndim != 2 or weights.shape != losses.shape[1:]:
        raise ConfigError(f"weights: expected one per column of {losses.shape}, got {weights.shape}")
    weighted = losses * weights
    return np.asarray(weighted.max(axis=1) + RHO * weighted.sum(axis=1), dtype=np.float64)
