"""PF-PNE on the agent: its own statistics, and the elimination of stage 2 [Li2024, Alg. 2-3].

Notation: `h` depth, `K_m^h` the agent's active cells (ascending indices), `K^h` the survivors of stage 1.
The agent's state stores a count and a sum per cell, not a row per pull.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import AgentState, AnyArray, Array, IntArray, Query, Task
from fbo_flower.algorithms.session import Session
from fbo_flower.numerics.arrays import BoolArray
from fbo_flower.numerics.bandits import elimination, partition

_NONE = np.empty(0, dtype=np.int64)
PATIENCE, LEAST_FAILURES = 2, 8  # a cell is left after max(2 tau_h, 8) failed pulls


@dataclass(frozen=True)
class Survivors:
    """Survivors of stage 1 with the server's statistics, depth by depth; all arrays `(n,)`."""

    depth: IntArray
    index: IntArray
    mean: Array
    radius: Array

    @staticmethod
    def nothing() -> Survivors:
        """Return the survivors before any depth of stage 1 has ended: none."""
        return Survivors(_NONE, _NONE, np.empty(0), np.empty(0))

    @staticmethod
    def from_arrays(arrays: Mapping[str, AnyArray]) -> Survivors:
        """Return the survivors that `to_arrays` wrote; none if the arrays are missing."""
        if "shared.depth" not in arrays:
            return Survivors.nothing()
        depth, index = (np.asarray(arrays[f"shared.{n}"], dtype=np.int64) for n in ("depth", "index"))
        mean, radius = (np.asarray(arrays[f"shared.{n}"], dtype=np.float64) for n in ("mean", "radius"))
        return Survivors(depth, index, mean, radius)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays under their names in a task and in an agent's state."""
        return {f"shared.{n}": getattr(self, n) for n in ("depth", "index", "mean", "radius")}

    def add(self, depth: int, index: IntArray, mean: Array, radius: Array) -> Survivors:
        """Return these survivors with those of one more depth appended."""
        return Survivors(
            np.concatenate([self.depth, np.full(len(index), depth, dtype=np.int64)]),
            np.concatenate([self.index, index]),
            np.concatenate([self.mean, mean]),
            np.concatenate([self.radius, radius]),
        )

    def after(self, rows: int) -> Survivors:
        """Return these survivors without the first `rows` rows."""
        return Survivors(self.depth[rows:], self.index[rows:], self.mean[rows:], self.radius[rows:])

    def join(self, received: Survivors) -> Survivors:
        """Return these survivors with the new depths of `received` appended."""
        rows = ~np.isin(received.depth, self.depth)
        return Survivors(
            np.concatenate([self.depth, received.depth[rows]]),
            np.concatenate([self.index, received.index[rows]]),
            np.concatenate([self.mean, received.mean[rows]]),
            np.concatenate([self.radius, received.radius[rows]]),
        )

    def at(self, depth: int) -> tuple[IntArray, Array, Array]:
        """Return indices, means and radii of one depth."""
        rows = self.depth == depth
        return self.index[rows], self.mean[rows], self.radius[rows]


@dataclass(frozen=True)
class CellStatistics:
    """The cells that the agent pulled, by depth and index; all arrays `(n,)`.

    Parameters
    ----------
    count, total : number of pulls that gave a value, and their sum
    failed : number of pulls without a value
    """

    depth: IntArray
    index: IntArray
    count: IntArray
    total: Array
    failed: IntArray

    @staticmethod
    def read(agent_state: AgentState) -> CellStatistics:
        """Return the statistics in the agent's state."""
        if "cells.depth" not in agent_state.arrays:
            return CellStatistics(_NONE, _NONE, _NONE, np.empty(0), _NONE)
        names = ("depth", "index", "count", "failed")
        depth, index, count, failed = (
            np.asarray(agent_state.arrays[f"cells.{n}"], dtype=np.int64) for n in names
        )
        total = np.asarray(agent_state.arrays["cells.total"], dtype=np.float64)
        return CellStatistics(depth, index, count, total, failed)

    def of(self, depth: int, index: IntArray) -> tuple[IntArray, Array]:
        """Return pulls and sums of values of cells `(n,)` of one depth; 0 for cells without pulls."""
        known, place = self._places(depth, index)
        count, total = np.zeros(len(index), dtype=np.int64), np.zeros(len(index))
        count[known], total[known] = self.count[place], self.total[place]
        return count, total

    def failures(self, depth: int, index: IntArray) -> IntArray:
        """Return the failed pulls of cells `(n,)` of one depth; 0 for cells without pulls."""
        known, place = self._places(depth, index)
        failed = np.zeros(len(index), dtype=np.int64)
        failed[known] = self.failed[place]
        return failed

    def _places(self, depth: int, index: IntArray) -> tuple[BoolArray, IntArray]:
        """Return which cells of one depth have pulls, and the rows of these."""
        rows = np.flatnonzero(self.depth == depth)
        known = elimination.contains(self.index[rows], index)
        return known, rows[elimination.positions(self.index[rows], index[known])]

    def add(
        self, depth: int, index: IntArray, count: IntArray, total: Array, failed: IntArray
    ) -> CellStatistics:
        """Return the statistics with more pulls of cells of one depth added."""
        before, sums = self.of(depth, index)
        failures = self.failures(depth, index)
        rest = ~((self.depth == depth) & elimination.contains(np.sort(index), self.index))
        depths = np.concatenate([self.depth[rest], np.full(len(index), depth, dtype=np.int64)])
        indices = np.concatenate([self.index[rest], index])
        order = np.lexsort((indices, depths))
        return CellStatistics(
            depths[order],
            indices[order],
            np.concatenate([self.count[rest], before + count])[order],
            np.concatenate([self.total[rest], sums + total])[order],
            np.concatenate([self.failed[rest], failures + failed])[order],
        )


@dataclass(frozen=True)
class PhasedSearch:
    """The state of the agent's elimination in stage 2: `h`, `K_m^h` and the survivors of stage 1."""

    num_agents: int
    depth: int
    active: IntArray
    shared: Survivors

    @staticmethod
    def read(agent_state: AgentState, num_agents: int, task: Task) -> PhasedSearch:
        """Return the search in the agent's state, with the survivors in the task added."""
        arrays = agent_state.arrays
        shared = Survivors.from_arrays(arrays).join(Survivors.from_arrays(task.arrays))
        depth = int(np.asarray(arrays["search.depth"])[0]) if "search.depth" in arrays else 0
        active = np.asarray(arrays.get("search.active", np.zeros(1, dtype=np.int64)), dtype=np.int64)
        return PhasedSearch(num_agents, depth, active, shared)


def session(task: Task, agent_state: AgentState, constants: elimination.Constants, arity: int) -> Session:
    """Store the survivors in the task, then pull the cells of a depth until the task's trials are used."""
    search = PhasedSearch.read(agent_state, int(task.values["agents"]), task)
    agent_state = write(agent_state, CellStatistics.read(agent_state), search)
    while (left := task.end - agent_state.next_trial) > 0:
        if "cells" in task.arrays:  # stage 1 [Li2024, Alg. 2, lines 5-7]
            cells = np.asarray(task.arrays["cells"], dtype=np.int64)
            wanted = np.asarray(task.arrays["pulls"], dtype=np.int64)
            work = together(agent_state, int(task.values["depth"]), cells, wanted, left, search)
        else:  # stage 2 [Li2024, Alg. 3]
            work = alone(agent_state, search, constants, arity, left)
        if len(work.index) == 0:
            break
        search, space = work.search, agent_state.space
        centres = partition.centre(work.depth, work.index, space.dimension, arity)
        outcome = yield Query(space.snap(centres), work.pulls)
        assert outcome.counts is not None
        sums = np.where(outcome.counts > 0, outcome.values * outcome.counts, 0.0)
        statistics = CellStatistics.read(agent_state).add(
            work.depth, work.index, outcome.counts, sums, outcome.pulls - outcome.counts
        )
        agent_state = write(agent_state.passed_to(outcome.end), statistics, search)
    return agent_state


@dataclass(frozen=True)
class Work:
    """Cells of one depth to pull next, ascending, with the pulls of each, and the search at that point."""

    depth: int
    index: IntArray
    pulls: IntArray
    search: PhasedSearch


def write(agent_state: AgentState, statistics: CellStatistics, search: PhasedSearch) -> AgentState:
    """Return the agent's state with these statistics and this search stored."""
    cells = {f"cells.{n}": getattr(statistics, n) for n in ("depth", "index", "count", "total", "failed")}
    return agent_state.write(
        **cells,
        **search.shared.to_arrays(),
        **{
            "agents": np.array([search.num_agents], dtype=np.int64),
            "search.depth": np.array([search.depth], dtype=np.int64),
            "search.active": search.active,
        },
    )


def together(
    agent_state: AgentState, depth: int, cells: IntArray, wanted: IntArray, left: int, search: PhasedSearch
) -> Work:
    """Return the pulls of `cells` that stage 1 still needs, at most `left` [Li2024, Alg. 2, lines 5-7]."""
    count, _ = CellStatistics.read(agent_state).of(depth, cells)
    return _fit(depth, cells, np.maximum(0, wanted - count), left, search)


def alone(
    agent_state: AgentState, search: PhasedSearch, constants: elimination.Constants, arity: int, left: int
) -> Work:
    """Return the pulls that stage 2 makes next [Li2024, Alg. 3].

    At every depth without missing pulls, cells are eliminated and the search moves to the next depth. A cell
    whose pulls fail too often keeps the successes that it has; without any it is dropped.
    """
    statistics = CellStatistics.read(agent_state)
    depth, active = search.depth, search.active
    deepest = partition.max_depth(agent_state.space.dimension, arity)
    while True:
        survivors, mean_of, radius_of = search.shared.at(depth)
        protected = elimination.contains(survivors, active)
        own = active[~protected]  # K_m^h \ K^h
        count, total = statistics.of(depth, own)
        pulls, failed = constants.pulls(depth), statistics.failures(depth, own)
        missing = np.maximum(0, pulls - count)  # line 4: T_m,h,i < tau_h
        missing[failed >= max(PATIENCE * pulls, LEAST_FAILURES)] = 0
        if np.any(missing) or depth >= deepest:
            return _fit(
                depth, own, missing, left, PhasedSearch(search.num_agents, depth, active, search.shared)
            )
        mean, radius = np.empty(len(active)), np.empty(len(active))
        mean[~protected], radius[~protected] = total / np.maximum(1, count), constants.radius(count)  # line 7
        fails = np.zeros(len(active), dtype=np.bool_)
        fails[~protected] = count == 0
        mean[fails], radius[fails] = -np.inf, 0.0
        place = elimination.positions(survivors, active[protected])
        mean[protected], radius[protected] = mean_of[place], radius_of[place]  # Alg. 2, line 11
        out = elimination.eliminated(mean, radius, constants.variation(depth), protected)  # lines 8-9
        active, depth = partition.children(active[~out], arity), depth + 1  # lines 10-11


def recommend(agent_state: AgentState, constants: elimination.Constants) -> tuple[int, int, float] | None:
    """Return depth, index and mean of the cell with the best lower bound; None before the first success.

    For cells that survived stage 1 the server's statistics are used.
    """
    statistics = CellStatistics.read(agent_state)
    shared = Survivors.from_arrays(agent_state.arrays)
    pulled = statistics.count > 0
    if not pulled.any():
        return None
    depth, index = statistics.depth[pulled], statistics.index[pulled]
    mean = statistics.total[pulled] / statistics.count[pulled]
    radius = constants.radius(statistics.count[pulled])
    for h in np.unique(shared.depth).tolist():
        survivors, mean_of, radius_of = shared.at(h)
        rows = np.flatnonzero(depth == h)
        rows = rows[elimination.contains(survivors, index[rows])]
        place = elimination.positions(survivors, index[rows])
        mean[rows], radius[rows] = mean_of[place], radius_of[place]
    best = elimination.recommend(mean, radius)
    return int(depth[best]), int(index[best]), float(mean[best])


def _fit(depth: int, index: IntArray, missing: IntArray, left: int, search: PhasedSearch) -> Work:
    """Return the first `left` of the missing pulls, in ascending order of the cells."""
    taken = np.clip(left - (np.cumsum(missing) - missing), 0, missing)
    some = taken > 0
    return Work(depth, index[some], taken[some], search)
