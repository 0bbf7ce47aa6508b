"""Do the agents share one objective? A test and a Bayes factor, from `Lambda_n` and `eta_n` that they send.

**The test.** Notation as in `surrogates.pivots`. For agent `n` let `N(m, C)` be the posterior of all others.
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

**The common unit** of several agents' values follows from the moments of each: number, mean and deviation.
Values may be as large as a float64, so nothing on the way may overflow or underflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.surrogates.pivots import Increment, pool

LARGEST = float(np.finfo(np.float64).max)
UNITS = 2.0 ** np.array([-60.0, -30.0, 0.0, 30.0, 60.0])  # factors of values in power sums
LARGEST_SUM = 1e15
FARTHEST = 4.0  # moments are clipped to this many deviations of the median agent


def moments(values: Array) -> Array:
    """Return number, mean and standard deviation `(3,)`, of values `(n,)`."""
    largest = float(np.max(np.abs(values), initial=0.0))
    exponent = int(np.frexp(largest)[1])
    small = np.ldexp(values, -exponent)
    spread = float(small.std())
    if spread <= 1e-12 * float(np.max(np.abs(small), initial=0.0)):
        spread = 0.0
    return np.array([len(values), np.ldexp(small.mean(), exponent), np.ldexp(spread, exponent)])


def pooled_units(moments: Sequence[Array]) -> tuple[float, float]:
    """Return mean and standard deviation of all values, from each agent's number, mean and deviation."""
    number, mean, stddev = np.array(moments).T
    exponent = int(np.frexp(float(np.max(np.abs(np.concatenate([mean, stddev])))))[1])
    # so that squares neither overflow nor underflow
    mean, stddev = np.ldexp(mean, -exponent), np.ldexp(stddev, -exponent)
    weights = number / number.sum()
    shift = float(weights @ mean)
    variance = float(weights @ (stddev**2 + (mean - shift) ** 2))
    with np.errstate(over="ignore"):
        scale = min(float(np.ldexp(np.sqrt(variance), exponent)), LARGEST)
    return float(np.ldexp(shift, exponent)), scale if scale > 0.0 else 1.0


def bounded_moments(moments: Sequence[Array]) -> list[Array]:
    """Return each agent's number, mean and deviation clipped to a range around the medians over agents.

    The number is at most the median number, the deviation within a factor of `FARTHEST` of the median
    deviation, the mean within `FARTHEST` median deviations of the median mean. For an even number of agents
    the lower median is used, because averaging two huge values could overflow.
    """
    number, mean, stddev = np.array(moments).T
    middle = [float(np.sort(column)[(len(column) - 1) // 2]) for column in (number, mean, stddev)]
    with np.errstate(over="ignore"):
        reach = min(FARTHEST * middle[2], LARGEST)
        low, high = max(middle[1] - reach, -LARGEST), min(middle[1] + reach, LARGEST)
    number = np.minimum(number, middle[0])
    mean, stddev = np.clip(mean, low, high), np.clip(stddev, middle[2] / FARTHEST, reach)
    return list(np.stack([number, mean, stddev], axis=1))


def power_sums(moments: Array) -> Array:
    """Return number, sum and sum of squares of an agent's values, `(5, 3)`, from its moments.

    Secure sums have fixed points, and nobody knows the unit of the values yet. So the sums are there once for
    each of `UNITS`, with zeros where they are too large.
    """
    number, mean, stddev = moments
    with np.errstate(over="ignore"):
        scaled = np.outer(UNITS, [mean, stddev])
        values = number * np.stack([np.ones(len(UNITS)), scaled[:, 0], (scaled**2).sum(axis=1)], axis=1)
    values[~(np.abs(values) <= LARGEST_SUM).all(axis=1)] = 0.0
    return np.asarray(values, dtype=np.float64)


def from_power_sums(sums: Array) -> Array | None:
    """Return the moments `(3,)` of all agents' values from their summed power sums; None without values."""
    counts = sums[:, 0]
    if counts.max() < 1.0:
        return None
    finest = int(np.flatnonzero(counts > counts.max() - 0.5)[-1])  # of the units that suit all agents
    number, total, squares = sums[finest]
    mean = total / number
    stddev = float(np.sqrt(max(0.0, squares / number - mean**2))) / UNITS[finest]
    return np.array([number, mean / UNITS[finest], stddev])


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
