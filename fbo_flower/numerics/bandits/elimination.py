"""Phased elimination of cells for PF-PNE: constants, criterion, active sets and merged statistics.

Notation [Li2024]: `T` evaluations per client, `M` clients, depth `h`; `L = log(c1 T / delta)`; a cell of
depth `h` is evaluated ("pulled") `tau_h` times; then its mean is within `b` of its value, and no value in the
cell exceeds that of its centre by more than `nu1 rho^h`. An active set is the ascending array of the indices
of the cells of one depth that are still searched.

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024 (arXiv 2310.16323).
[Li2022] Li, Song, Honorio, Lin. Federated X-armed bandit. arXiv 2205.15268 (Fed-PNE).
[Huber1981] Huber. Robust Statistics. Wiley 1981.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray

NEVER = 1 << 30  # transition depth of clients that always search together: deeper than any cell
MAX_PULLS = 1 << 62


@dataclass(frozen=True)
class Constants:
    """The constants that determine the numbers of pulls and the confidence radii.

    Parameters
    ----------
    budget : `T`, evaluations per client
    delta : probability of failure, the paper's `1/M`
    nu, rho : smoothness, `nu1 > 0` and `0 < rho < 1`
    c, c1 : confidence; `c = .1` suits noise of range .2, not the whole range of `[0, 1]`
    """

    budget: int
    delta: float
    nu: float = 1.0
    rho: float = 0.5
    c: float = 0.1
    c1: float = 1.0

    def __post_init__(self) -> None:
        for name, holds, expected in (
            ("budget", self.budget >= 1, "a positive integer"),
            ("delta", 0 < self.delta <= 1, "a number in (0, 1]"),
            ("nu", 0 < self.nu < math.inf, "a positive number"),
            ("rho", 0 < self.rho < 1, "a number in (0, 1)"),
            ("c", 0 < self.c < math.inf, "a positive number"),
            ("c1", self.c1 * self.budget > self.delta, "c1 * budget above delta"),
        ):
            if not holds:
                raise ConfigError(f"{name}: expected {expected}, got {getattr(self, name)!r}")

    @property
    def log_term(self) -> float:
        """`L = log(c1 T / delta)`."""
        return math.log(self.c1 * self.budget / self.delta)

    def variation(self, depth: int) -> float:
        """Return `nu1 rho^h`, the bound of the variation within a cell of depth `h`."""
        return self.nu * self.rho**depth

    def pulls(self, depth: int) -> int:
        """Return `tau_h = max(1, ceil(c^2 L rho^(-2h) / nu1^2))`, the pulls of a cell of depth `h`."""
        exact = self.c**2 * self.log_term * min(self.rho ** (-2.0 * depth), 1e300) / self.nu**2
        return max(1, math.ceil(exact)) if exact < MAX_PULLS else MAX_PULLS

    def pulls_per_client(self, depth: int, num_clients: int) -> int:
        """Return `ceil(tau_h / M)`, the pulls of each client."""
        return -(-self.pulls(depth) // num_clients)

    def radius(self, num_pulls: npt.ArrayLike) -> Array:
        """Return the confidence radius `b(n) = c sqrt(L / n)`, infinite for `n = 0`."""
        n = np.asarray(num_pulls, dtype=np.float64)
        with np.errstate(divide="ignore"):
            return np.asarray(self.c * np.sqrt(self.log_term / n), dtype=np.float64)


def transition_depth(nu: float, rho: float, gap: float, rule: str = "literal") -> int:
    """Return `H0`, the last depth that the clients explore together.

    The paper prints `argmax_h (nu rho^h <= Delta)`, which has no maximum, and `-ceil(log_rho(Delta / nu))`,
    which is negative.

    Parameters
    ----------
    gap : `Delta`; with 0 the clients always search together (Fed-PNE)
    rule : "literal": the deepest `h` with `nu rho^h >= Delta`; "ceil": the first with `nu rho^h <= Delta`

    Returns
    -------
    -1 if the clients never search together ("literal", `Delta > nu`: LocalPNE), `NEVER` if they always do

    >>> transition_depth(1.0, 0.5, 0.01), transition_depth(1.0, 0.5, 0.01, "ceil")
    (6, 7)
    """
    if rule not in {"literal", "ceil"}:
        raise ConfigError(f"h0: expected literal or ceil, got {rule!r}")
    if not gap >= 0 or not 0 < rho < 1 or not nu > 0:
        raise ConfigError(f"gap, nu, rho: expected gap >= 0, nu > 0, 0 < rho < 1; got {gap}, {nu}, {rho}")

    def above(depth: int) -> bool:
        return nu * rho**depth >= gap if rule == "literal" else nu * rho**depth > gap

    if gap == 0:
        return NEVER
    depth = max(0, math.floor((math.log(gap) - math.log(nu)) / math.log(rho)))  # up to rounding
    while depth > 0 and not above(depth - 1):
        depth -= 1
    while above(depth):
        depth += 1
    if nu * rho**depth == 0.0:  # underflow: the gap is negligible
        return NEVER
    return depth - 1 if rule == "literal" else depth


def eliminated(mean: Array, radius: Array, variation: float, protected: BoolArray | None = None) -> BoolArray:
    """Return which cells of one depth cannot contain the optimum, `(n,)`.

    `mean + radius + variation < mean[best] - radius[best]`, strictly; `best` is the first maximum of the
    means, protected cells included [Li2024, Alg. 1 l. 11 and Alg. 3 l. 9].

    Parameters
    ----------
    mean, radius : `(n,)` in ascending order of the index
    variation : `nu1 rho^h`
    protected : `(n,)`, cells that are never eliminated (`K^h` in the second stage)
    """
    if mean.size == 0:
        return np.zeros(0, dtype=np.bool_)
    best = int(np.argmax(mean))
    # [Li2024, Alg. 1 l. 11]
    out = mean + radius + variation < mean[best] - radius[best]
    if protected is not None:
        out &= ~protected
    return np.asarray(out, dtype=np.bool_)


@dataclass(frozen=True)
class Merged:
    """Statistics of the cells of one depth, merged over the clients that replied.

    Attributes
    ----------
    mean : `(n,)`, mean (or trimmed mean) of the clients' means; NaN if no client replied
    count : `(n,)`, `n_eff = M'^2 / sum(1 / T_m)`, the number of pulls that would give this mean's variance;
        the sum of the counts if these are equal. Multiplied by the efficiency of a trimmed mean
    num_clients : `(n,)`, `M'`, the number of clients with a value
    """

    mean: Array
    count: Array
    num_clients: IntArray


def merge(means: npt.ArrayLike, counts: npt.ArrayLike, trim: float = 0.0) -> Merged:
    """Return the merged statistics of the clients' measurements of the same cells.

    All clients have the same weight, however often they pulled, because the estimated quantity is the mean
    objective over the clients.

    Parameters
    ----------
    means : `(M, n)`, in the order of the agents; ignored where the count is 0
    counts : `(M, n)`, 0 where a client has no value
    trim : share of the clients dropped on either side, for each cell, as a defence against false reports; 0:
        the plain mean; 0.5: the median. If objectives differ, the trimmed mean is not their mean
    """
    if not 0 <= trim <= 0.5:
        raise ConfigError(f"trim: expected a share between 0 and 0.5, got {trim!r}")
    means, counts = np.asarray(means, dtype=np.float64), np.asarray(counts, dtype=np.int64)
    if means.ndim != 2 or means.shape != counts.shape or (counts < 0).any():
        raise ConfigError(
            f"counts: expected non-negative {means.shape}, as the means are (M, n); got {counts.shape}"
        )
    there = counts > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = (np.where(there, a, 0.0).sum(axis=0) for a in (1.0, means, 1.0 / counts, counts))
        merged = merge_sums(*sums)
        if not trim:
            return merged
        return Merged(_trimmed(means, there, trim), merged.count * efficiency(trim), merged.num_clients)


def merge_sums(present: Array, means: Array, inverse: Array, counts: Array) -> Merged:
    """Return the result of `merge`, computed from sums over clients; all arrays are `(n,)`.

    Parameters
    ----------
    present : number of clients with a value
    means, inverse, counts : sums over these clients of their means, of 1 / count, and of their counts
    """
    present = np.rint(present)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = means / present
        count = np.where(present > 0, present**2 / inverse, 0.0)
    equal = np.isclose(count, counts, rtol=1e-9, atol=0.0)  # then both numbers are equal up to rounding
    return Merged(mean, np.where(equal, np.rint(counts), count), present.astype(np.int64))


def efficiency(trim: float) -> float:
    """Return the asymptotic efficiency of a trimmed mean of normal draws: Var(mean) / Var(trimmed mean).

    With `q` the `1 - trim` quantile the trimmed mean has `(1 - 2 trim - 2 q phi(q) + 2 trim q^2) /
    (1 - 2 trim)^2` times the variance of the mean, the median `pi / 2` times [Huber1981, section 3.3].

    >>> round(efficiency(0.0), 3), round(efficiency(0.2), 3), round(efficiency(0.5), 3)
    (1.0, 0.874, 0.637)
    """
    kept = 1.0 - 2.0 * trim
    if trim == 0.0:
        return 1.0
    if kept < 1e-6:
        return 2.0 / math.pi
    q = NormalDist().inv_cdf(1.0 - trim)
    # (1 - 2 trim)^2 / (1 - 2 trim - 2 q phi(q) + 2 trim q^2)
    inner = kept - 2.0 * q * NormalDist().pdf(q)
    return kept**2 / (inner + 2.0 * trim * q**2)


def _trimmed(means: Array, there: BoolArray, trim: float) -> Array:
    """Return the trimmed mean `(n,)` of `means (M, n)` over the `M'` clients that are `there`.

    `floor(trim M')` are dropped on either side, but the one or two in the middle always stay (the median).
    """
    number = there.sum(axis=0)
    out = np.minimum(np.floor(trim * number + 1e-9).astype(np.int64), np.maximum(number - 1, 0) // 2)
    ordered = np.sort(np.where(there, means, np.inf), axis=0)
    rank = np.arange(len(means))[:, np.newaxis]
    kept = (rank >= out) & (rank < number - out)
    return np.asarray(np.where(kept, ordered, 0.0).sum(axis=0) / kept.sum(axis=0), dtype=np.float64)


def missing_pulls(count: Array, pulls: int, num_present: int) -> IntArray:
    """Return how many more pulls `(n,)` of each of `num_present` clients a cell needs.

    A cell with `n_eff < tau_h` is not eliminated. `a` more pulls by each client add at least `M' a` to
    `n_eff`, so one further request is enough.
    """
    short = np.maximum(0.0, pulls - np.asarray(count, dtype=np.float64))
    return np.ceil(short / max(1, num_present)).astype(np.int64)


def recommend(mean: Array, radius: Array) -> int:
    """Return the position of the largest lower bound `mean - radius`; of equal ones the first."""
    return int(np.argmax(mean - radius))
