"""Solve the regressions of many agents on the sums of the others, as `trend.ridge_weights` does for one.

Each agent is computed by itself, see `gp_many`. Notation: as in `trend`; `B` agents.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import lapack
from fbo_flower.numerics.surrogates import gp_many, rff
from fbo_flower.numerics.surrogates.trend import packed_size


def others_weights(
    gram: Array,
    moment: Array,
    features: Sequence[rff.RandomFeatures],
    x: Array,
    y: Array,
    ridge: float,
) -> Array:
    """Return `w (B, M)` of the trend of the others, from sums that hold the agents' own parts.

    Parameters
    ----------
    gram : `(B, M (M + 1) / 2)`, upper triangle of the sum of `Phi^T Phi` over all agents
    moment : `(B, M)`, the sum of `Phi^T y`
    features : one per agent, all with `M` features
    x, y : `(B, n, F)` and `(B, n)`, the agent's own observations in the sums; `n` may be 0
    ridge : positive

    Raises
    ------
    NumericalError
        If a sum without the agent's part, plus ridge, is not positive definite.
    """
    num_agents, num_features = moment.shape
    if gram.shape != (num_agents, packed_size(num_features)):
        raise ConfigError(f"gram: expected {packed_size(num_features)} numbers, got {gram.shape[1:]}")
    matrices = np.zeros((num_agents, num_features * num_features))
    matrices[:, _lower(num_features)] = gram
    matrices[:, :: num_features + 1] += ridge
    matrices = matrices.reshape(num_agents, num_features, num_features)
    right = moment
    if x.shape[1]:
        phi = normalised_features(features, x)
        matrices -= phi.transpose(0, 2, 1) @ phi
        right = moment - (y[:, None, :] @ phi)[:, 0]
    lower = gp_many.factors(matrices)
    found = np.empty_like(moment)
    for b in range(num_agents):  # LAPACK's upper factor is the transpose of ours: no copies
        found[b] = lapack().dpotrs(lower[b].T, right[b], lower=0)[0]
    return found


def normalised_features(features: Sequence[rff.RandomFeatures], x: Array) -> Array:
    """Return `phi(x)`, `(B, n, M)`, rows of norm 1, for `x (B, n, F)`."""
    phi = x @ np.array([f.frequencies for f in features]).transpose(0, 2, 1)
    phi += np.array([f.phases for f in features])[:, None, :]
    rff.cosine_in_place(phi.reshape(-1))
    phi /= np.maximum(np.sqrt(np.square(phi).sum(axis=2)), np.finfo(np.float64).tiny)[:, :, None]
    return np.asarray(phi, dtype=np.float64)


@functools.lru_cache(maxsize=8)
def _lower(num_features: int) -> IntArray:
    """Return where a packed upper triangle goes in the lower triangle of a flat `(M, M)` matrix."""
    rows, columns = np.triu_indices(num_features)
    return np.asarray(columns * num_features + rows, dtype=np.int64)
