"""The parts of a run of an X-armed bandit: a surface, clients with a budget, and the record of the run.

Client `m` draws its noise from `default_rng([seed, 2, m])` in the order of its pulls, so algorithms with the
same seed are paired. Regret uses the noiseless value at a cell's centre.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.bandits import partition
from fbo_flower.simulation.problems import Problem

NOISE_CHUNK = 1 << 16  # noise draws in memory


class Surface(Protocol):
    """The clients' objectives, as functions of cells; an `XArmed` problem is one."""

    @property
    def num_agents(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    @property
    def noise(self) -> float: ...

    def values(self, points: Array, client: int, /) -> Array:
        """Return values without noise, `(n,)`, at points `(n, D)`."""
        ...

    def optimum(self, client: int, /) -> float: ...


@dataclass(frozen=True)
class Tabulated:
    """The surface of a problem over Float parameters; each point is evaluated once and its value kept.

    Parameters
    ----------
    table : `(client, point as bytes) -> value`, extended in place; runs may share it
    optima : `(M,)`, the largest values on a fine grid, since the problem does not know its optima
    noise : half the range of uniform noise, added by the driver
    """

    problem: Problem
    optima: Array
    noise: float = 0.0
    table: dict[tuple[int, bytes], float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_agents(self) -> int:
        return self.problem.num_agents

    @property
    def dimension(self) -> int:
        return self.problem.space.dimension

    def values(self, points: Array, client: int) -> Array:
        out = np.empty(len(points))
        for row, point in enumerate(np.ascontiguousarray(points, dtype=np.float64)):
            key = (client, point.tobytes())
            if key not in self.table:
                value = self.problem.true_value(self.problem.space.decode(point), client)
                if value is None:
                    raise ConfigError(f"{self.problem.name}: expected a problem without noise")
                self.table[key] = value
            out[row] = self.table[key]
        return out

    def optimum(self, client: int) -> float:
        return float(self.optima[client])


@dataclass(frozen=True)
class BanditRun:
    """The record of one algorithm on one problem.

    Attributes
    ----------
    times : `(g,)`, numbers of pulls at which regret was recorded
    regret : `(M, g)`, cumulative regret
    simple : `(M,)`, regret of the recommended cell
    pulls : `(M,)`, numbers of pulls
    dropped : per client, depths and indices of the cells that it eliminated for good
    """

    times: IntArray
    regret: Array
    simple: Array
    pulls: IntArray
    dropped: tuple[tuple[tuple[int, IntArray], ...], ...] = ()

    @property
    def final(self) -> Array:
        """Return the final cumulative regret of each client, `(M,)`."""
        return np.asarray(self.regret[:, -1], dtype=np.float64)


class Client:
    """One client: its remaining budget, its noise and the record of its pulls."""

    def __init__(self, surface: Surface, client: int, budget: int, seed: int) -> None:
        self.surface, self.client, self.budget = surface, client, budget
        self.rng = np.random.default_rng([seed, 2, client])
        self.optimum = surface.optimum(client)
        self.left = budget
        self.known: dict[tuple[int, int], float] = {}
        self.dropped: list[tuple[int, IntArray]] = []
        self.lengths: list[IntArray] = []
        self.gaps: list[Array] = []

    def cell_values(self, depth: int, index: IntArray) -> Array:
        """Return the values at the centres of cells, `(n,)`."""
        points = partition.centre(depth, index, self.surface.dimension)
        return self.surface.values(points, self.client)

    def pull(self, depth: int, index: IntArray, counts: IntArray) -> tuple[IntArray, Array]:
        """Pull cells in order until the budget is spent.

        Returns
        -------
        pulls made `(n,)` and sums of what was observed `(n,)`
        """
        return self.pull_values(self.cell_values(depth, index), counts)

    def pull_values(self, values: Array, counts: IntArray) -> tuple[IntArray, Array]:
        """Like `pull`, for arms whose values `(n,)` the driver knows."""
        before = np.cumsum(counts) - counts
        made = np.clip(self.left - before, 0, counts)
        self.left -= int(made.sum())
        self.lengths.append(made)
        self.gaps.append(self.optimum - values)
        return made, values * made + self.noise_sums(made)

    def observe(self, depth: IntArray, index: IntArray, pulls: int) -> tuple[IntArray, Array, Array]:
        """Pull cells of any depth `pulls` times each; return pulls, sums and squared deviations `(n,)`."""
        made, (total, within) = np.zeros(len(depth), dtype=np.int64), np.zeros((2, len(depth)))
        for row, (h, i) in enumerate(zip(depth.tolist(), index.tolist(), strict=True)):
            n = min(pulls, self.left)
            if (h, i) not in self.known:
                self.known[h, i] = float(self.cell_values(h, np.array([i]))[0])
            value = self.known[h, i]
            noise = self.surface.noise
            y = value + (self.rng.uniform(-noise, noise, n) if noise else np.zeros(n))
            made[row], total[row], within[row] = n, y.sum(), ((y - y.mean()) ** 2).sum() if n else 0.0
            self.left -= n
            self.lengths.append(np.array([n]))
            self.gaps.append(np.array([self.optimum - value]))
        return made, total, within

    def noise_sums(self, counts: IntArray) -> Array:
        """Return `(n,)` sums, the `j`-th of the next `counts[j]` noise draws."""
        sums = np.zeros(len(counts))
        total = int(counts.sum())
        if self.surface.noise == 0.0 or total == 0:
            return sums
        ends = np.cumsum(counts)
        for first in range(0, total, NOISE_CHUNK):
            stop = min(first + NOISE_CHUNK, total)
            draws = self.rng.uniform(-self.surface.noise, self.surface.noise, stop - first)
            inside = np.flatnonzero((ends > first) & (ends - counts < stop) & (counts > 0))
            starts = np.maximum((ends - counts)[inside] - first, 0)
            sums[inside] += np.add.reduceat(draws, starts)
        return sums

    def curve(self, times: IntArray) -> Array:
        """Return the cumulative regret after each of `times` pulls, `(g,)`."""
        lengths, gaps = np.concatenate(self.lengths), np.concatenate(self.gaps)
        done = np.concatenate([[0], np.cumsum(lengths)])
        regret = np.concatenate([[0.0], np.cumsum(lengths * gaps)])
        return np.asarray(np.interp(times, done, regret), dtype=np.float64)


def locate(points: Array, depth: int) -> IntArray:
    """Return the index of the cell that contains each of `points (n, D)`, `(n,)`.

    A point on a border belongs to the upper cell; a coordinate of 1 belongs to the last cell.
    """
    dim, index = points.shape[1], np.zeros(len(points), dtype=np.int64)
    for level in range(depth):
        cells = 2.0 ** (level // dim + 1)  # of the axis
        corner = np.minimum(np.floor(points[:, level % dim] * cells), cells - 1)
        index = 2 * index + corner.astype(np.int64) % 2
    return index


def lost(run: BanditRun, client: int, point: Array) -> int | None:
    """Return the depth at which `client` eliminated the cell of `point` `(D,)`; None if it did not."""
    for depth, index in run.dropped[client]:
        if locate(point[np.newaxis], depth)[0] in index:
            return depth
    return None


def thinned(budget: int, num_points: int = 200) -> IntArray:
    """Return the numbers of pulls at which curves are recorded; the last is the budget."""
    return np.unique(np.linspace(0, budget, num_points + 1).astype(np.int64))


def finish(clients: list[Client], simple: Array) -> BanditRun:
    """Return the record of clients that have spent their budget; `simple (M,)`: of the recommended cells."""
    times = thinned(clients[0].budget)
    return BanditRun(
        times,
        np.array([client.curve(times) for client in clients]),
        simple,
        np.array([np.sum(np.concatenate(client.lengths)) for client in clients]),
        tuple(tuple(client.dropped) for client in clients),
    )
