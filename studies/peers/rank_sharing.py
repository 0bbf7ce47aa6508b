"""Average the hyperparameters of related agents' Gaussian processes, related by how these rank public points.

Each of `N` agents ranks the same `P` points by its model's predictions. The dissimilarity of two rankings is

    d = (1 - rho) / 2   in [0, 1],      rho = 1 - 6 sum_p (r_p - s_p)^2 / (P^3 - P)

with Spearman's rank correlation `rho`; an agent weights another one by `max(0, 1 - 2 d) = max(0, rho)`, and
itself by 1. So rankings that agree no better than chance have no weight. Hyperparameters are averaged as
logarithms.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray


def ranks_of(values: Array) -> IntArray:
    """Return the rank of each of `P` values, 0 for the smallest; equal values in order.

    >>> ranks_of(np.array([0.3, -1.0, 0.5])).tolist()
    [1, 0, 2]
    """
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def dissimilarities(ranks: IntArray, own: IntArray) -> Array:
    """Return the dissimilarity `(N,)` of rankings `(N, P)` to one ranking `(P,)`.

    Rows that are no permutation, as a faulty agent may send, have some number as a result.
    """
    if ranks.ndim != 2 or ranks.shape[1:] != own.shape or len(own) < 2:
        raise ConfigError(f"ranks: expected (N, P) and (P,), P > 1, got {ranks.shape} and {own.shape}")
    count = len(own)
    squares = ((ranks - own[None, :]).astype(np.float64) ** 2).sum(axis=1)
    return np.asarray(3.0 * squares / (count**3 - count), dtype=np.float64)


def shared_hyperparameters(theta: Array, dissimilarity: Array) -> tuple[Array, Array]:
    """Return the weighted mean `(H,)` of hyperparameters `(N, H)`, and the weights `(N,)` with the sum 1.

    Parameters
    ----------
    theta : logarithms of the agents' hyperparameters
    dissimilarity : `(N,)`, to the agent that the mean is for; its own is 0
    """
    weights = np.maximum(0.0, 1.0 - 2.0 * dissimilarity)
    weights = weights / weights.sum()
    return np.asarray(weights @ theta, dtype=np.float64), weights
