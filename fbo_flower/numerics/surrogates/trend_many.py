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
from fbo_flower.numerics.surrogates import gp_many
from fbo_flower.numerics.surrogates.trend import packed_size


def others_weights(
    grams: Sequence[Array],
    moment: Array,
    phi: Array,
    y: Array,
    ridge: float,
) -> Array:
    """Return `w (B, M)` of the trend of the others, from sums that hold the agents' own parts.

    Parameters
    ----------
    grams : `B` times `(M (M + 1) / 2,)`, upper triangle of the sum of `Phi^T Phi` over all agents; agents
        that received the same array share the work of unpacking it
    moment : `(B, M)`, the sum of `Phi^T y`
    phi, y : `(B, n, M)` and `(B, n)`, features and values of the agents' own parts; `n` may be 0
    ridge : positive

    Raises
    ------
    NumericalError
        If a sum without the agent's part, plus ridge, is not positive definite.
    """
    num_agents, num_features = moment.shape
    matrices = np.empty((num_agents, num_features, num_features))
    unpacked: dict[int, Array] = {}
    for matrix, gram in zip(matrices, grams, strict=True):
        if id(gram) not in unpacked:
            unpacked[id(gram)] = _unpacked(gram, num_features, ridge)
        matrix[:] = unpacked[id(gram)]
    right = moment
    if phi.shape[1]:
        matrices -= phi.transpose(0, 2, 1) @ phi
        right = moment - (y[:, None, :] @ phi)[:, 0]
    lower = gp_many.factors(matrices)
    found = np.empty_like(moment)
    for b in range(num_agents):  # LAPACK's upper factor is the transpose of ours: no copies
        found[b] = lapack().dpotrs(lower[b].T, right[b], lower=0)[0]
    return found


def _unpacked(gram: Array, num_features: int, ridge: float) -> Array:
    """Return the matrix `(M, M)` with a packed upper triangle in its lower one, plus ridge."""
    if gram.shape != (packed_size(num_features),):
        raise ConfigError(f"gram: expected {packed_size(num_features)} numbers, got {gram.shape}")
    matrix = np.zeros(num_features * num_features)
    matrix[_lower(num_features)] = gram
    matrix[:: num_features + 1] += ridge
    return matrix.reshape(num_features, num_features)


@functools.lru_cache(maxsize=8)
def _lower(num_features: int) -> IntArray:
    """Return where a packed upper triangle goes in the lower triangle of a flat `(M, M)` matrix."""
    rows, columns = np.triu_indices(num_features)
    return np.asarray(columns * num_features + rows, dtype=np.int64)
