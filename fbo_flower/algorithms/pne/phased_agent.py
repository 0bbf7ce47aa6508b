"""The agent's half of PF-PNE: its own statistics, and the second elimination [Li2024, Alg. 2-3].

Notation: `h` depth, `K_m^h` the agent's active cells (ascending indices), `K^h` the survivors of stage 1.
All of it lives in the agent's state's arrays: sums per cell, never a row per pull.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import AgentState, AnyArray, Array, IntArray, Query, Task
from fbo_flower.algorithms.session import Session
from fbo_flower.numerics.bandits import elimination, partition

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Survivors:
    """Survivors of stage 1 with the server's statistics, depth by depth; all arrays `(n,)`."""

    depth: IntArray
    index: IntArray
    mean: Array
    radius: Array

    @staticmethod
    def nothing() -> Survivors:
        """Return what an agent alone has."""
        return Survivors(_NONE, _NONE, np.empty(0), np.empty(0))

    @staticmethod
    def from_arrays(arrays: Mapping[str, AnyArray]) -> Survivors:
        """Read what `to_arrays` wrote; nothing if it is not there."""
        if "shared.depth" not in arrays:
            return Survivors.nothing()
        depth, index = (np.asarray(arrays[f"shared.{n}"], dtype=np.int64) for n in ("depth", "index"))
        mean, radius = (np.asarray(arrays[f"shared.{n}"], dtype=np.float64) for n in ("mean", "radius"))
        return Survivors(depth, index, mean, radius)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays under the names they have in a task and in an agent's state."""
        return {f"shared.{n}": getattr(self, n) for n in ("depth", "index", "mean", "radius")}

    def add(self, depth: int, index: IntArray, mean: Array, radius: Array) -> Survivors:
        """Return this with one more depth behind it."""
        return Survivors(
            np.concatenate([self.depth, np.full(len(index), depth, dtype=np.int64)]),
            np.concatenate([self.index, index]),
            np.concatenate([self.mean, mean]),
            np.concatenate([self.radius, radius]),
        )

    def after(self, rows: int) -> Survivors:
        """Return this without its first rows."""
        return Survivors(self.depth[rows:], self.index[rows:], self.mean[rows:], self.radius[rows:])

    def join(self, news: Survivors) -> Survivors:
        """Return this with the depths of `news` behind it that were not known yet."""
        rows = ~np.isin(news.depth, self.depth)
        return Survivors(
            np.concatenate([self.depth, news.depth[rows]]),
            np.concatenate([self.index, news.index[rows]]),
            np.concatenate([self.mean, news.mean[rows]]),
            np.concatenate([self.radius, news.radius[rows]]),
        )

    def at(self, depth: int) -> tuple[IntArray, Array, Array]:
        """Return indices, means and radii of one depth."""
        rows = self.depth == depth
        return self.index[rows], self.mean[rows], self.radius[rows]


@dataclass(frozen=True)
class Levels:
    """All cells that the agent pulled: depth, index, pulls and sum of values, each `(n,)`, in their order."""

    depth: IntArray
    index: IntArray
    count: IntArray
    total: Array

    @staticmethod
    def read(agent_state: AgentState) -> Levels:
        """Return what the agent's state holds."""
        if "cells.depth" not in agent_state.arrays:
            return Levels(_NONE, _NONE, _NONE, np.empty(0))
        names = ("depth", "index", "count")
        depth, index, count = (np.asarray(agent_state.arrays[f"cells.{n}"], dtype=np.int64) for n in names)
        return Levels(depth, index, count, np.asarray(agent_state.arrays["cells.total"], dtype=np.float64))

    def of(self, depth: int, index: IntArray) -> tuple[IntArray, Array]:
        """Return pulls and sums of cells `(n,)` of one depth; 0 where it was never pulled."""
        rows = np.flatnonzero(self.depth == depth)
        known = elimination.contains(self.index[rows], index)
        place = rows[elimination.positions(self.index[rows], index[known])]
        count, total = np.zeros(len(index), dtype=np.int64), np.zeros(len(index))
        count[known], total[known] = self.count[place], self.total[place]
        return count, total

    def add(self, depth: int, index: IntArray, count: IntArray, total: Array) -> Levels:
        """Return this after more pulls of cells of one depth."""
        before, sums = self.of(depth, index)
        rest = ~((self.depth == depth) & elimination.contains(np.sort(index), self.index))
        depths = np.concatenate([self.depth[rest], np.full(len(index), depth, dtype=np.int64)])
        indices = np.concatenate([self.index[rest], index])
        order = np.lexsort((indices, depths))
        return Levels(
            depths[order],
            indices[order],
            np.concatenate([self.count[rest], before + count])[order],
            np.concatenate([self.total[rest], sums + total])[order],
        )


@dataclass(frozen=True)
class PhasedSearch:
    """Where the agent's own elimination stands: `h` and `K_m^h`."""

    num_agents: int
    depth: int
    active: IntArray
    shared: Survivors

    @staticmethod
    def read(agent_state: AgentState, num_agents: int, task: Task) -> PhasedSearch:
        """Return what the agent's state holds, with what the task tells of stage 1."""
        arrays = agent_state.arrays
        shared = Survivors.from_arrays(arrays).join(Survivors.from_arrays(task.arrays))
        depth = int(np.asarray(arrays["search.depth"])[0]) if "search.depth" in arrays else 0
        active = np.asarray(arrays.get("search.active", np.zeros(1, dtype=np.int64)), dtype=np.int64)
        return PhasedSearch(num_agents, depth, active, shared)


def session(task: Task, agent_state: AgentState, constants: elimination.Constants, arity: int) -> Session:
    """Take in what the server has found, then pull the cells of a depth until the task's trials are used."""
    search = PhasedSearch.read(agent_state, int(task.values["agents"]), task)
    agent_state = write(agent_state, Levels.read(agent_state), search)
    while (left := task.end - agent_state.next_trial) > 0:
        if "cells" in task.arrays:  # stage 1 [Li2024, Alg. 1]
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
        levels = Levels.read(agent_state).add(work.depth, work.index, outcome.counts, sums)
        agent_state = write(agent_state.passed_to(outcome.end), levels, search)
    return agent_state


@dataclass(frozen=True)
class Work:
    """Cells of one depth to pull next, ascending, and how often; and where the search stands then."""

    depth: int
    index: IntArray
    pulls: IntArray
    search: PhasedSearch


def write(agent_state: AgentState, levels: Levels, search: PhasedSearch) -> AgentState:
    """Return the agent's state with these statistics."""
    cells = {f"cells.{n}": getattr(levels, n) for n in ("depth", "index", "count", "total")}
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
    """Return what stage 1 still wants of `cells`, as far as `left` pulls go."""
    count, _ = Levels.read(agent_state).of(depth, cells)
    return _fit(depth, cells, np.maximum(0, wanted - count), left, search)


def alone(
    agent_state: AgentState, search: PhasedSearch, constants: elimination.Constants, arity: int, left: int
) -> Work:
    """Return what stage 2 pulls next; depths that are done are eliminated on the way [Li2024, Alg. 3]."""
    levels = Levels.read(agent_state)
    depth, active = search.depth, search.active
    deepest = partition.max_depth(agent_state.space.dimension, arity)
    while True:
        survivors, mean_of, radius_of = search.shared.at(depth)
        protected = elimination.contains(survivors, active)
        own = active[~protected]
        count, total = levels.of(depth, own)
        owed = np.maximum(0, constants.pulls(depth) - count)
        if np.any(owed) or depth >= deepest:
            return _fit(depth, own, owed, left, PhasedSearch(search.num_agents, depth, active, search.shared))
        mean, radius = np.empty(len(active)), np.empty(len(active))
        mean[~protected], radius[~protected] = total / count, constants.radius(count)
        place = elimination.positions(survivors, active[protected])
        mean[protected], radius[protected] = mean_of[place], radius_of[place]
        out = elimination.eliminated(mean, radius, constants.variation(depth), protected)
        active, depth = partition.children(active[~out], arity), depth + 1


def recommend(agent_state: AgentState, constants: elimination.Constants) -> tuple[int, int, float] | None:
    """Return depth, index and mean of the cell with the best lower bound; None before the first success.

    Cells that survived stage 1 count with the server's statistics.
    """
    levels = Levels.read(agent_state)
    shared = Survivors.from_arrays(agent_state.arrays)
    pulled = levels.count > 0
    if not pulled.any():
        return None
    depth, index = levels.depth[pulled], levels.index[pulled]
    mean = levels.total[pulled] / levels.count[pulled]
    radius = constants.radius(levels.count[pulled])
    for h in np.unique(shared.depth).tolist():
        survivors, mean_of, radius_of = shared.at(h)
        rows = np.flatnonzero(depth == h)
        rows = rows[elimination.contains(survivors, index[rows])]
        place = elimination.positions(survivors, index[rows])
        mean[rows], radius[rows] = mean_of[place], radius_of[place]
    best = elimination.recommend(mean, radius)
    return int(depth[best]), int(index[best]), float(mean[best])


def _fit(depth: int, index: IntArray, owed: IntArray, left: int, search: PhasedSearch) -> Work:
    """Take the owed pulls in ascending order of the cells until `left` are taken."""
    taken = np.clip(left - (np.cumsum(owed) - owed), 0, owed)
    some = taken > 0
    return Work(depth, index[some], taken[some], search)
