"""A trend common to several agents: ridge regression from sums over agents, and how far one agent trusts it.

With shared features `phi` an agent's observations enter the regression through two sums only,

    Phi^T Phi (M, M)  and  Phi^T y (M,),      w = (sum Phi^T Phi + ridge I)^-1 sum Phi^T y,

so the sums over all agents suffice, and an agent can subtract its own part. The trend `m(x) = phi(x)^T w` of
the others has then not seen this agent's values, so comparing `m` with them is fair evidence.

The weight `a` of the trend is the mean of a normal posterior for the slope of `y` on `m`,

    a = (strength a_0 + sum_i m(x_i) y_i) / (strength + sum_i m(x_i)^2),

with `m` minus its mean over the points, since values are standardised by each agent for itself, and with
prior mean `a_0`. The same formula over all agents' sums gives an `a_0`: how far the trend has held for the
federation. Where agents have nothing in common it soon is close to 0.
"""

from __future__ import annotations

import functools

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import cholesky

LARGEST_WEIGHT = 1.5


def packed_size(num_features: int) -> int:
    """Return the number of entries in the upper triangle of an `(M, M)` matrix."""
    return num_features * (num_features + 1) // 2


def statistics(phi: Array, y: Array) -> tuple[Array, Array]:
    """Return the upper triangle of `Phi^T Phi` as `(M (M + 1) / 2,)`, and `Phi^T y (M,)`.

    Parameters
    ----------
    phi : `(n, M)`; `n` may be 0
    y : `(n,)`
    """
    if phi.ndim != 2 or y.shape != (len(phi),):
        raise ConfigError(f"statistics: expected phi (n, M) and y (n,), got {phi.shape} and {y.shape}")
    return (phi.T @ phi)[_triangle(phi.shape[1])], phi.T @ y


def unpack(gram: Array, num_features: int) -> Array:
    """Return the symmetric `(M, M)` matrix with the given upper triangle."""
    matrix = np.zeros((num_features, num_features))
    matrix[_triangle(num_features)] = gram
    return np.asarray(matrix + np.triu(matrix, 1).T, dtype=np.float64)


def ridge_weights(gram: Array, moment: Array, ridge: float) -> Array:
    """Return `w (M,)` from sums of `statistics`.

    Parameters
    ----------
    gram : `(M (M + 1) / 2,)`, upper triangle of the sum of `Phi^T Phi`
    moment : `(M,)`, the sum of `Phi^T y`
    ridge : positive

    Raises
    ------
    NumericalError
        If the sum plus ridge is not positive definite, so it is not what agents sent.
    """
    num_features = len(moment)
    if gram.shape != (packed_size(num_features),):
        raise ConfigError(f"gram: expected {packed_size(num_features)} numbers, got {gram.shape}")
    matrix = unpack(gram, num_features)
    matrix.flat[:: num_features + 1] += ridge
    return cholesky(matrix).solve(moment)


def agreement(m: Array, y: Array) -> Array:
    """Return `[sum m_i y_i, sum m_i^2]` with the mean of `m` subtracted; these sums add over agents.

    Each agent standardises its own values, so nothing can be said about the level of the trend.

    Parameters
    ----------
    m, y : `(n,)`, trend and standardised values at an agent's points; `n` may be 0
    """
    if len(m) == 0:
        return np.zeros(2)
    centred = m - m.mean()
    return np.array([centred @ y, centred @ centred])


def trend_weight(sums: Array, prior: float, strength: float) -> float:
    """Return the weight `a` of a trend, between 0 and `LARGEST_WEIGHT`.

    Parameters
    ----------
    sums : `(2,)`, sums of `agreement`
    prior : `a_0`, the weight without any observation
    strength : precision of the prior, in squared units of `y`

    Examples
    --------
    >>> trend_weight(np.array([0.0, 0.0]), 0.5, 1.5), trend_weight(np.array([300.0, 300.0]), 0.5, 1.5) > 0.99
    (0.5, True)
    """
    value = (strength * prior + float(sums[0])) / (strength + float(sums[1]))
    return min(max(value, 0.0), LARGEST_WEIGHT)


@functools.lru_cache(maxsize=8)
def _triangle(num_features: int) -> tuple[IntArray, IntArray]:
    rows, columns = np.triu_indices(num_features)
    return rows, columns
