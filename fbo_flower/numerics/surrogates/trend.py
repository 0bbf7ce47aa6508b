"""A trend common to several agents: ridge regression from sums over agents, and how far one agent trusts it.

With shared features `phi` an agent's observations enter the regression through two sums only,

    Phi^T Phi (M, M)  and  Phi^T y (M,),      w = (sum Phi^T Phi + ridge I)^-1 sum Phi^T y,

so the sums over all agents suffice, and an agent can subtract its own part. The trend `m(x) = phi(x)^T w` of
the others has then not seen this agent's values, so comparing `m` with them is fair evidence.

**An agent's weight** `a` of the trend is the mean of a normal posterior for the slope of `y` on `m`,

    a = (strength a_0 + sum_i m(x_i) y_i) / (strength + sum_i m(x_i)^2),

with `m` minus its mean over the points, since values are standardised by each agent for itself. `a_0` is the
federation's weight. No weight is negative, so if their mean `a_0` is close to 0, all are: the prior's
standard deviation is proportional to `a_0`, and its strength to `a_0^-2`.

**The federation's weight** `a_0` is the same formula over all agents' sums, times `1 - 4 / z^2` with
`z = sum m y / sqrt(sum m^2)`, the evidence in standard deviations of chance. The factor is that of James and
Stein, but for 4 in place of 1: values at an agent's points are correlated, so chance is larger.

**Before the first exchange** no agent has tested a trend. But agents that have something in common have
similar values at points that lie close together. With `b_i = Phi_i^T y_i` and values of mean 0,

    |sum b_i|^2 / sum |b_i|^2 - 1 = sum_(i != j) b_i^T b_j / sum |b_i|^2.

If agents are unrelated and points uniform, its mean is 0 and its variance about `2 tr(C^2) / tr(C)^2`, where
`C` is the covariance of the features over the search space. One more summed number, `|b_i|^2`, tests this.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import cholesky

LARGEST_WEIGHT = 1.5
PRIOR_WEIGHT = 0.5  # a_0 before anything is known
FEDERATION_STRENGTH = 3.0  # of this prior
OWN_STRENGTH = 1.5  # of a_0 as the prior of an agent's weight: as much as one or two observations
DOUBT, FIRST_DOUBT = 4.0, 1.0  # z^2 up to which evidence counts as chance, and before the first exchange


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
    return (phi.T @ phi).ravel()[_upper(phi.shape[1])], phi.T @ y


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


def filtered_weights(
    mean: Array, phi: Array, num_agents: int, num_observations: int, noise_variance: float, ridge: float
) -> Array:
    """Return `w (M,)` from a noisy sum of `Phi_i^T y_i / t_i` over agents, without `Phi^T Phi`.

    `Phi_i^T Phi_i / t_i` is replaced by its mean `C` over the search space. In its eigenvectors, with
    eigenvalues `c` and `n` agents of `t` observations, the sum has mean `n c w` and variance
    `noise_variance + n c / t`, so with the ridge as prior `w = n c mean / (n^2 c^2 + ridge * variance)`.
    Without noise that is the ridge regression with the Gram matrix `n t C`.

    Parameters
    ----------
    mean : `(M,)`
    phi : `(S, M)`, features of points spread uniformly over the search space
    num_observations : of all agents together
    """
    centred = phi - phi.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(phi))
    scaled = num_agents * np.maximum(values, 0.0)  # n c
    variance = noise_variance + scaled * num_agents / num_observations
    gain = scaled / np.maximum(scaled**2 + ridge * variance, 1e-300)
    return np.asarray(vectors @ (gain * (vectors.T @ mean)), dtype=np.float64)


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


def alignment(moment: Array, energy: float, phi: Array) -> float:
    """Return by how many standard deviations agents' values agree more than those of unrelated agents.

    Parameters
    ----------
    moment : `(M,)`, the sum of `b_i = Phi_i^T y_i` over agents
    energy : the sum of `|b_i|^2`
    phi : `(n, M)`, features of points spread uniformly over the search space
    """
    centred = phi - phi.mean(axis=0)
    covariance = centred.T @ centred
    if energy <= 0.0 or covariance.trace() <= 0.0:
        return 0.0
    stddev = math.sqrt(2.0 * float((covariance * covariance).sum())) / float(covariance.trace())
    return (float(moment @ moment) / energy - 1.0) / stddev


def beyond_chance(z: float, doubt: float = DOUBT) -> float:
    """Return `1 - doubt / z^2`, or 0 if that or `z` is negative.

    Examples
    --------
    >>> beyond_chance(-5.0), beyond_chance(1.0), beyond_chance(4.0)
    (0.0, 0.0, 0.75)
    """
    return max(0.0, 1.0 - doubt / z**2) if z > 0.0 else 0.0


def deviations(sums: Array) -> float:
    """Return `z = sum m y / sqrt(sum m^2)` of the sums of `agreement`; 0 without any."""
    return float(sums[0]) / math.sqrt(float(sums[1])) if sums[1] > 0.0 else 0.0


def federation_weight(sums: Array) -> float:
    """Return `a_0` from the sums `(2,)` of `agreement` over all agents; `sum m^2` is positive."""
    return _slope(sums, PRIOR_WEIGHT, FEDERATION_STRENGTH) * beyond_chance(deviations(sums))


def noisy_federation_weight(sums: Array, stddev: float) -> float:
    """Return `a_0` from sums of `agreement` with noise of this standard deviation on each of the two."""
    product, square = float(sums[0]), max(float(sums[1]), 0.0)
    z = product / math.sqrt(square + stddev**2) if square + stddev > 0.0 else 0.0
    return _slope(np.array([product, square]), PRIOR_WEIGHT, FEDERATION_STRENGTH) * beyond_chance(z)


def first_weight(z: float) -> float:
    """Return `a_0` before any agent has tested a trend, from the `alignment` of their values."""
    return PRIOR_WEIGHT * beyond_chance(z, FIRST_DOUBT)


def own_weight(sums: Array, federation: float) -> float:
    """Return an agent's weight `a`, between 0 and `LARGEST_WEIGHT`.

    Parameters
    ----------
    sums : `(2,)`, the agent's own sums of `agreement`
    federation : `a_0`, the weight without any observation

    Examples
    --------
    >>> own_weight(np.array([0.0, 0.0]), 0.5), own_weight(np.array([300.0, 300.0]), 0.5) > 0.99
    (0.5, True)
    >>> own_weight(np.array([2.0, 2.0]), 0.05) < 0.1, own_weight(np.array([9.0, 9.0]), 0.0)
    (True, 0.0)
    """
    if federation <= 0.0:
        return 0.0
    return _slope(sums, federation, OWN_STRENGTH * max(1.0, PRIOR_WEIGHT / federation) ** 2)


def _slope(sums: Array, prior: float, strength: float) -> float:
    value = (strength * prior + float(sums[0])) / (strength + float(sums[1]))
    return min(max(value, 0.0), LARGEST_WEIGHT)


@functools.lru_cache(maxsize=8)
def _upper(num_features: int) -> IntArray:
    """Return the places of the upper triangle in a flat `(M, M)` matrix."""
    rows, columns = _triangle(num_features)
    return np.asarray(rows * num_features + columns, dtype=np.int64)


@functools.lru_cache(maxsize=8)
def _triangle(num_features: int) -> tuple[IntArray, IntArray]:
    rows, columns = np.triu_indices(num_features)
    return rows, columns
