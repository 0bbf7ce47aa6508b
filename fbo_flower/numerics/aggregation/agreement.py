"""Do the agents share one objective? A test and a Bayes factor, from `Lambda_n` and `eta_n` that they send.

**The test.** Notation as in `surrogates.pooling`. For agent `n` let `N(m, C)` be the posterior of all others.
Its observations enter through `Lambda_n = U S U^T` (rank `k`) as `z = S^{-1/2} U^T eta_n = S^{1/2} U^T v_n +
N(0, I)`, and so, given the others,

    one objective (`v_n = v`):    z ~ N(S^{1/2} U^T m, I + A),  A = S^{1/2} U^T C U S^{1/2}
    another one (`v_n` prior):    z ~ N(0, I + S).

In the generalised eigenvectors of `(I + S, I + A)`, with eigenvalues `rho >= 1`, both covariances are
diagonal. Only directions with `rho >= 2` are compared: there the others' data explain more than half of the
variance of the agent's data. In the other directions the agents evaluated different regions, so a difference
says nothing about their objectives and would depend on the prior, the least reliable part of the model. The
squared length of `z - S^{1/2} U^T m` in the compared directions, whitened, is chi-square with one degree of
freedom per direction. This is exact for objectives from the prior, normal noise, and points chosen
independently of the observations.

With estimated hyperparameters the chi-square law does not hold: with a noise variance estimated from five
points the test rejects most agents that do share their objective. So by default the statistic is divided by
the same statistic of the other agents among each other (the second given the first, the third given both,
..., which are independent). The ratio has Fisher's F distribution. It is exact if outputscale and noise
variance are wrong by the same factor, and nearly so if only the noise is, because in the compared directions
most of the variance is noise.

**The Bayes factor.** Up to a factor that no function changes, the likelihood of an agent's observations,
integrated over functions `v ~ N(0, I)` from the prior, is `Z`,

    log Z(Lambda, eta) = -1/2 log|I + Lambda| + 1/2 eta^T (I + Lambda)^-1 eta.

If agents observe one function, their increments add; if one observes another function, likelihoods multiply.
So, with sums over all agents and over all but `n`, the Bayes factor for agent `n` to share the function of
the others is

    log B_n = log Z(sum Lambda, sum eta) - log Z(sum_-n Lambda, sum_-n eta) - log Z(Lambda_n, eta_n),

exact for the given hyperparameters, and 0 without overlap of data. The least `B_n` speaks for all agents: one
that differs lowers its own, and it is not hidden by many that agree. The test needs no noise variance for its
p-values, but if all agents differ it has no two to calibrate its scale on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates.pooling import Increment, pool

SHARED = 2.0  # least rho of a compared direction
NEGLIGIBLE = 1e-8  # smaller eigenvalues of Lambda, relative to the largest, are rounding errors


@dataclass(frozen=True)
class Agreement:
    """Results of the tests of each agent against all others.

    Attributes
    ----------
    statistic : `(N,)`, chi-square or F distributed if all agents share one objective
    directions : `(N,)`, number of compared directions (degrees of freedom); 0 if the data do not overlap
    p_value : `(N,)`, 1 if nothing was compared
    """

    statistic: Array
    directions: IntArray
    p_value: Array


def agreement(increments: Sequence[Increment], *, known_scale: bool = False) -> Agreement:
    """Test each agent's observations against those of all others.

    An agent with another objective also lowers the other agents' p-values, but its own is the smallest. With
    two agents the test cannot tell which of them differs.

    Parameters
    ----------
    increments : one per agent, at least 2
    known_scale : True if outputscale and noise variance are known, not estimated: uses chi-square, not F
    """
    _check_number(increments)
    agents = [_observe(increment) for increment in increments]
    rows = [_compare(agent, agents[:n] + agents[n + 1 :], known_scale) for n, agent in enumerate(agents)]
    statistic, directions, p_value = zip(*rows, strict=True)
    return Agreement(np.array(statistic), np.array(directions, dtype=np.int64), np.array(p_value))


@dataclass(frozen=True)
class _Agent:
    increment: Increment
    precision: Array  # S (k,)
    root: Array  # U S^{1/2} (r, k)
    z: Array  # (k,)


def _observe(increment: Increment) -> _Agent:
    eigenvalues, vectors = np.linalg.eigh(increment.precision)
    keep = eigenvalues > NEGLIGIBLE * max(float(eigenvalues[-1]), 0.0)
    s, u = eigenvalues[keep], vectors[:, keep]
    return _Agent(increment, s, u * np.sqrt(s), (u.T @ increment.shift) / np.sqrt(s))


def _compare(agent: _Agent, others: Sequence[_Agent], known_scale: bool) -> tuple[float, int, float]:
    from scipy import special

    squared, count = _surprise(agent, others)
    if count == 0:
        return 0.0, 0, 1.0
    if known_scale:
        return squared, count, float(special.chdtrc(count, squared))
    among = [_surprise(other, others[:i]) for i, other in enumerate(others) if i > 0]
    if sum(theirs for _, theirs in among) == 0:  # a single other agent, or no overlap between the others
        first, *rest = (other.increment for other in others)
        whole = _observe(sum(rest, first))
        among = [(float((whole.z * whole.z / (1.0 + whole.precision)).sum()), len(whole.z))]
    total, degrees = (sum(column) for column in zip(*among, strict=True))
    ratio = (squared / count) / max(total / degrees, 1e-300)
    return ratio, count, float(special.fdtrc(count, degrees, ratio))


def _surprise(agent: _Agent, others: Sequence[_Agent]) -> tuple[float, int]:
    """Return the squared length, whitened, of `z - S^{1/2} U^T m` in shared directions, and their count."""
    mean, covariance = pool([other.increment for other in others])
    whitener = cholesky(np.eye(len(agent.z)) + agent.root.T @ covariance @ agent.root)  # of I + A
    half = whitener.solve_lower(np.diag(1.0 + agent.precision))
    rho, vectors = np.linalg.eigh(whitener.solve_lower(half.T))
    surprise = vectors.T @ whitener.solve_lower(agent.z - agent.root.T @ mean)
    shared = rho >= SHARED
    return float(surprise[shared] @ surprise[shared]), int(shared.sum())


def log_bayes_factors(increments: Sequence[Increment]) -> Array:
    """Return `log B_n` of every agent, `(N,)`; positive values speak for one objective.

    Parameters
    ----------
    increments : one per agent, at least 2
    """
    _check_number(increments)
    every, alone = log_evidence(increments), [log_evidence([increment]) for increment in increments]
    others = [log_evidence([*increments[:n], *increments[n + 1 :]]) for n in range(len(increments))]
    return np.asarray(every - np.array(others) - np.array(alone), dtype=np.float64)


def log_evidence(increments: Sequence[Increment]) -> float:
    """Return `log Z` of the observations of one function that all these increments summarise."""
    precision = np.sum([increment.precision for increment in increments], axis=0)
    precision.flat[:: len(precision) + 1] += 1.0
    factor = cholesky(precision)
    half = factor.solve_lower(np.sum([increment.shift for increment in increments], axis=0))
    return 0.5 * (float(np.dot(half, half)) - factor.log_determinant())


def _check_number(increments: Sequence[Increment]) -> None:
    if len(increments) < 2:
        raise ConfigError(f"increments: expected those of at least 2 agents, got {len(increments)}")
