"""Choose one point per agent to maximise a joint value of the batch plus each agent's own value.

`alpha(x) = central(x) + beta sum_n local_n(x_n)` over `x = (x_1, .., x_N)` of a finite set [Zhan2025, Eq. 6].
The batch is built greedily, agent by agent, and improved by coordinate ascent: each agent in turn moves to
the best point given the others', until no move improves the value. Then pairs of agents may exchange their
points. On small sets, where every step evaluates all points, two agents may also move together. Every step
increases one fixed function of the batch, so the search ends.

With more than `FEW` agents a move changes little of the value, and what the last moves gain is fitted to the
draws of the acquisition. So each step evaluates fewer points, the search ends after `MOST_SWEEPS` sweeps over
all agents, or one that gains less than `SMALL_GAIN`, and agents do not exchange points.

A central acquisition has two methods: `guess` estimates the value of every point for one agent cheaply, and
`values` computes the values of a few points. The search evaluates the points with the best guesses; on small
sets these are all points.

Points under way are entries of the batch that do not move. The acquisition is a mean over what all its points
may observe, so their draws are fantasies of what they will observe: asynchronous q-KG [Wu2016]. BoTorch's
`qKnowledgeGradient` adds its `X_pending` in the same way. To believe in one value, e.g. the mean, would
ignore that such an observation may move the maximum.

[Zhan2025] Zhan et al. Collaborative Bayesian optimization via Wasserstein barycenters. 2025.
[Wu2016] Wu, Frazier. The parallel knowledge gradient method for batch Bayesian optimization. NIPS 2016.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray

SHORTLIST = 32  # points evaluated per step
FEW = 8  # agents up to which the search is exhaustive in its moves
FEWEST = 4  # points evaluated per step with very many agents
SMALL_GAIN = 1e-3  # least relative gain of a sweep over more agents
MOST_SWEEPS = 3  # of more agents
TOLERANCE = 1e-12  # least relative improvement of a move
PIVOT = 1e-12  # smaller relative pivots are rounding errors
NONE_PENDING: IntArray = np.empty(0, dtype=np.int64)


class BatchAcquisition(ABC):
    """A function of batches of up to `num_agents` points, given as indices into a set of `num_points`.

    Parameters
    ----------
    mean : `(S,)`, central posterior mean
    factor : `(S, r)`, the central covariance is `factor factor^T`
    num_agents : `N`, size of the largest batch
    """

    def __init__(self, mean: Array, factor: Array, num_agents: int) -> None:
        if factor.ndim != 2 or len(factor) != len(mean):
            raise ConfigError(f"factor: expected ({len(mean)}, r), got {factor.shape}")
        self.num_points, self.num_agents = len(mean), num_agents

    @abstractmethod
    def guess(self, design: IntArray, agent: int) -> Array:
        """Return estimates of `values` for all points, `(S,)`, up to an additive constant."""

    @abstractmethod
    def values(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        """Return the value of the batch `design (n,)`, entry `agent` replaced by each candidate, `(C,)`."""


def maximise_batch(
    acquisition: BatchAcquisition,
    local: Array,
    beta: float,
    num_starts: int,
    rng: np.random.Generator,
    pending: IntArray = NONE_PENDING,
) -> tuple[IntArray, float]:
    """Return the agents' points `(N,)` with the largest `acquisition(x) + beta sum_n local_n(x_n)`, and it.

    Parameters
    ----------
    acquisition : central value, `S` points
    local : `(N, S)`, each agent's own value of every point
    beta : weight of the agents' own values, not negative
    num_starts : number of starts; the first is greedy, the others continue greedily from two random points
    pending : `(P,)`, indices of the points under way, the first entries of the acquisition's batch
    """
    num_agents, num_points = local.shape
    most = acquisition.num_agents - len(pending)
    if num_points != acquisition.num_points or not 1 <= num_agents <= most:
        raise ConfigError(
            f"local: expected up to {most} agents and {acquisition.num_points} points, got {local.shape}"
        )
    if not beta >= 0 or num_starts < 1:
        raise ConfigError(f"expected beta >= 0 and at least one start, got {beta} and {num_starts}")
    search = _Search(acquisition, beta * local, pending)
    ends = []
    for start in range(num_starts):
        fixed = np.zeros(0, dtype=np.int64)
        if start:
            fixed = rng.integers(num_points, size=min(2, num_agents))
        ends.append(search.run(fixed))
    return max(ends, key=lambda end: end[1])


class _Search:
    """The moves of the search."""

    def __init__(self, acquisition: BatchAcquisition, own: Array, pending: IntArray) -> None:
        self.acquisition, self.own, self.pending = acquisition, own, pending
        self.length = max(SHORTLIST * FEW // max(len(own), FEW), FEWEST)  # of a shortlist

    def run(self, fixed: IntArray) -> tuple[IntArray, float]:
        """Complete a batch greedily and improve it; return it with its value."""
        design, value = fixed, -np.inf
        for agent in range(len(fixed), len(self.own)):
            design, value = self.best(np.append(design, 0), agent, -np.inf)
        if len(fixed) == len(self.own):
            value = self.value(design)
        if len(self.own) > FEW:
            return self.sweep(design, value)
        design, value = self.ascend(design, value, resting=int(len(fixed) < len(self.own)))
        while True:
            moved, better = self.swap(design, value)
            if moved is design:
                moved, better = self.pair(design, value)
            if moved is design:
                return design, value
            design, value = self.ascend(moved, better)

    def value(self, design: IntArray) -> float:
        """`alpha` of a batch."""
        central = self.values(design, 0, design[:1])[0]
        return float(central + self.own[np.arange(len(design)), design].sum())

    def values(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        """Return the central values `(C,)` of a batch and the points under way, as of the acquisition."""
        return self.acquisition.values(
            np.concatenate([self.pending, design]), len(self.pending) + agent, candidates
        )

    def shortlist(self, design: IntArray, agent: int) -> tuple[IntArray, Array]:
        """Return the points with the best guesses for an agent, best value first, and their values."""
        num_points, own = self.own.shape[1], self.own[agent]
        if num_points <= self.length:
            points = np.arange(num_points)
        else:
            whole = np.concatenate([self.pending, design])
            guess = self.acquisition.guess(whole, len(self.pending) + agent) + own
            points = np.argpartition(-guess, self.length)[: self.length]
        others = np.delete(np.arange(len(design)), agent)
        rest = self.own[others, design[others]].sum()
        values = self.values(design, agent, points) + own[points] + rest
        order = np.argsort(-values, kind="stable")
        return points[order], values[order]

    def best(self, design: IntArray, agent: int, value: float) -> tuple[IntArray, float]:
        """Return the batch and value after moving one agent to its best point, if that exceeds `value`."""
        points, values = self.shortlist(design, agent)
        if not values[0] - TOLERANCE * abs(values[0]) > value:
            return design, value
        moved = design.copy()
        moved[agent] = points[0]
        return moved, float(values[0])

    def ascend(self, design: IntArray, value: float, resting: int = 0) -> tuple[IntArray, float]:
        """Move agents in turn until no move helps; the last `resting` agents are known not to gain."""
        agent = 0
        while resting < len(design):
            moved, better = self.best(design, agent, value)
            resting = resting + 1 if moved is design else 1
            design, value = moved, better
            agent = (agent + 1) % len(design)
        return design, value

    def sweep(self, design: IntArray, value: float) -> tuple[IntArray, float]:
        """Move all agents in turn, a few times, until such a sweep gains little."""
        for _ in range(MOST_SWEEPS):
            before = value
            for agent in range(len(design)):
                design, value = self.best(design, agent, value)
            if not value - before > SMALL_GAIN * abs(value):
                break
        return design, value

    def swap(self, design: IntArray, value: float) -> tuple[IntArray, float]:
        """Return the batch after the best exchange of two agents' points; unchanged if none helps."""
        best = design, value
        for first, second in itertools.combinations(range(len(design)), 2):
            if design[first] != design[second]:
                moved = design.copy()
                moved[[first, second]] = design[[second, first]]
                better = self.value(moved)
                if better - TOLERANCE * abs(better) > best[1]:
                    best = moved, better
        return best

    def pair(self, design: IntArray, value: float) -> tuple[IntArray, float]:
        """On a small set, return the first better batch with two agents moved; unchanged if none exists."""
        num_points = self.own.shape[1]
        if num_points > SHORTLIST:
            return design, value
        for first, second in itertools.permutations(range(len(design)), 2):
            points, _ = self.shortlist(design, first)
            for point in points[points != design[first]]:
                moved = design.copy()
                moved[first] = point
                moved, better = self.best(moved, second, value)
                if better > value:
                    return moved, better
        return design, value


def replaced(design: IntArray, agent: int, candidates: IntArray) -> IntArray:
    """Return the batches `(C, n)` in which each candidate replaces `design[agent]`."""
    designs = np.repeat(design[np.newaxis], len(candidates), axis=0)
    designs[:, agent] = candidates
    return designs


def batch_covariances(factor: Array, design: IntArray, agent: int, candidates: IntArray) -> Array:
    """Return `K(x, x)`, `(C, n, n)`, of every batch of `replaced`, for `K = factor factor^T`."""
    cross = factor[candidates] @ factor[design].T  # (C, n)
    own = factor[candidates]
    covariances = np.repeat((factor[design] @ factor[design].T)[np.newaxis], len(candidates), axis=0)
    covariances[:, agent, :] = covariances[:, :, agent] = cross
    covariances[:, agent, agent] = np.einsum("cr,cr->c", own, own)
    return covariances


def stacked_cholesky(matrices: Array) -> Array:
    """Return lower Cholesky factors of positive semi-definite matrices `(C, n, n)`.

    A pivot below `1e-12` of its diagonal entry counts as 0, and its column is 0: so duplicated points stay
    equal.
    """
    lower = np.zeros_like(matrices)
    diagonal = np.einsum("cii->ci", matrices)
    for j in range(matrices.shape[1]):
        rest = matrices[:, j:, j] - np.einsum("cik,ck->ci", lower[:, j:, :j], lower[:, j, :j])
        pivot = rest[:, 0]
        positive = (pivot > PIVOT * diagonal[:, j])[:, np.newaxis]
        np.divide(rest, np.sqrt(np.abs(pivot))[:, np.newaxis], out=lower[:, j:, j], where=positive)
    return lower
