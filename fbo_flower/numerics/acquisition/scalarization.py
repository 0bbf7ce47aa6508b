"""ParEGO's way from several losses to one: normalise, weigh, take the worst [Knowles2006].

Losses are minimised. `f` in `[0, 1]^k` are the losses between the best and the worst seen of each, `w`
weights that sum to 1, drawn anew for each proposal; the scalar loss is the augmented Tchebycheff function

`max_j w_j f_j + rho sum_j w_j f_j`

whose minimisers over all `w` are the whole front, its concave parts too; `rho > 0` keeps out points that are
as good in the worst loss and worse elsewhere.

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
    """Put `losses (n, k)` between the least, 0, and the largest, 1, of its column; constant ones are 0."""
    if losses.ndim != 2 or not np.isfinite(losses).all():
        raise ConfigError(f"losses: expected finite numbers (n, k), got {losses.shape}")
    if len(losses) == 0:
        return losses.copy()
    least = losses.min(axis=0)
    span = losses.max(axis=0) - least
    noise = span <= 1e-12 * np.abs(losses).max(axis=0)  # differences of rounding are none
    return np.asarray(np.where(noise, 0.0, (losses - least) / np.where(noise, 1.0, span)), dtype=np.float64)


def draw_weights(num_losses: int, rng: np.random.Generator, *, resolution: int = RESOLUTION) -> Array:
    """Draw one of the weight vectors `(l_1, ..., l_k) / s` with `sum l_j = s`, all equally likely.

    Parameters
    ----------
    num_losses : `k`, at least 1
    resolution : `s`, positive

    Returns
    -------
    `(k,)`, sums to 1
    """
    if num_losses < 1 or resolution < 1:
        raise ConfigError(f"weights: expected k and s from 1, got {num_losses} and {resolution}")
    # stars and bars: k - 1 bars among s + k - 1 places, the stars between them are the l_j
    places = resolution + num_losses - 1
    bars = np.sort(rng.choice(places, size=num_losses - 1, replace=False))
    edges = np.concatenate([[-1], bars, [places]])
    return np.asarray((np.diff(edges) - 1) / resolution, dtype=np.float64)


def tchebycheff(losses: Array, weights: Array, *, rho: float = RHO) -> Array:
    """Return the augmented Tchebycheff loss `(n,)` of normalised `losses (n, k)` for `weights (k,)`.

    Examples
    --------
    >>> tchebycheff(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.5, 0.5])).round(4).tolist()
    [0.525, 0.275]
    """
    if losses.ndim != 2 or weights.shape != losses.shape[1:]:
        raise ConfigError(f"weights: expected one per column of {losses.shape}, got {weights.shape}")
    weighted = losses * weights
    return np.asarray(weighted.max(axis=1) + rho * weighted.sum(axis=1), dtype=np.float64)
