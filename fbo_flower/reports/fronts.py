"""Fronts and hypervolumes of any number of losses, computed by moocore.

They are not in `numerics`, which devices load and which imports only NumPy and SciPy. Only reports need more
than two losses; for two there is `numerics.acquisition.pareto`.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray


def non_dominated(losses: Array) -> BoolArray:
    """Return which of `losses (n, k)` no other dominates, `(n,)`; of equal losses, only the first."""
    _check(losses)
    if len(losses) == 0:
        return np.zeros(0, dtype=np.bool_)
    import moocore

    return np.asarray(moocore.is_nondominated(losses, keep_weakly=False), dtype=np.bool_)


def hypervolume(losses: Array, reference: Array) -> float:
    """Return the volume between `losses (n, k)` and `reference (k,)`; 0 if no loss is below the reference.

    Examples
    --------
    >>> hypervolume(np.full((1, 3), 0.5), np.ones(3))
    0.125
    """
    _check(losses)
    if reference.shape != losses.shape[1:]:
        raise ConfigError(f"reference: expected {losses.shape[1]} numbers, got {reference.shape}")
    # moocore counts equal points once; we drop points beyond the reference
    inside = losses[(losses < reference).all(axis=1)]
    if len(inside) == 0:
        return 0.0
    import moocore

    return float(moocore.hypervolume(inside, ref=reference))


def _check(losses: Array) -> None:
    if losses.ndim != 2 or not np.isfinite(losses).all():
        raise ConfigError(f"losses: expected finite numbers (n, k), got {losses.shape}")
