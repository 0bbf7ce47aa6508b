"""PF-PNE, racing variant, the agent's half: pulls for the server, then a search of its own.

A failed pull was paid for. In stage 1 it is no pull of the cell; in stage 2 it counts as the agent's worst
mean so far, so that the search leaves cells that fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fbo_flower.algorithms.records import AgentState, AnyArray, Array, IntArray, Outcome, Query, Task
from fbo_flower.errors import WireError
from fbo_flower.numerics.arrays import BoolArray
from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.bandits.racing import StageOneResult
from fbo_flower.numerics.bandits.racing_cells import RacingOptions, grown_tree
from fbo_flower.numerics.bandits.racing_search import RacingSearch

_TALLY = ("depth", "index", "count", "failed", "total", "squares")
_SEARCH = "search."


@dataclass(frozen=True)
class Tally:
    """Pulls in stage 1: cells, pulls with and without a value, sums and sums of squares; each `(n,)`."""

    depth: IntArray
    index: IntArray
    count: IntArray
    failed: IntArray
    total: Array
    squares: Array

    @staticmethod
    def read(agent_state: AgentState) -> Tally:
        """Return what the agent's state holds."""
        arrays = agent_state.arrays
        whole = (np.asarray(arrays.get(f"tally.{n}", np.empty(0)), dtype=np.int64) for n in _TALLY[:4])
        real = (np.asarray(arrays.get(f"tally.{n}", np.empty(0)), dtype=np.float64) for n in _TALLY[4:])
        depth, index, count, failed = whole
        total, squares = real
        return Tally(depth, index, count, failed, total, squares)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the arrays under the names they have in an agent's state."""
        return {f"tally.{name}": getattr(self, name) for name in _TALLY}

    def of(self, depth: AnyArray, index: AnyArray) -> Tally:
        """Return the rows of some cells, in their order; zeros where nothing was pulled."""
        place = {cell: k for k, cell in enumerate(zip(self.depth.tolist(), self.index.tolist(), strict=True))}
        rows = [place.get(cell, -1) for cell in zip(depth.tolist(), index.tolist(), strict=True)]
        sums = (np.append(getattr(self, name), 0)[rows] for name in _TALLY[2:])
        return Tally(np.asarray(depth, np.int64), np.asarray(index, np.int64), *sums)

    def means(self) -> Array:
        """Return the mean of each cell, 0 without a value."""
        return np.asarray(self.total / np.maximum(1, self.count), dtype=np.float64)

    def worst(self) -> float:
        """Return the smallest mean, 0 if there is none."""
        return float(self.means()[self.count > 0].min(initial=np.inf)) if self.count.any() else 0.0

    def add(self, rows: IntArray, outcome: Outcome) -> Tally:
        """Return this after more pulls of the cells in `rows`."""
        assert outcome.counts is not None and outcome.squares is not None  # noqa: PT018  # repeats were asked
        sums = {name: getattr(self, name).copy() for name in _TALLY[2:]}
        sums["count"][rows] += outcome.counts
        sums["failed"][rows] += outcome.pulls - outcome.counts
        sums["total"][rows] += _sums(outcome)
        sums["squares"][rows] += outcome.squares
        return replace(self, **sums)

    def join(self, other: Tally) -> Tally:
        """Return this with the cells of `other` in place of its own of the same names."""
        place = set(zip(other.depth.tolist(), other.index.tolist(), strict=True))
        mine = zip(self.depth.tolist(), self.index.tolist(), strict=True)
        rest = np.array([cell not in place for cell in mine], dtype=bool)
        return Tally(*(np.concatenate([getattr(self, n)[rest], getattr(other, n)]) for n in _TALLY))


class RacingSession:
    """One task of an agent, of either stage.

    Parameters
    ----------
    budget : `T`
    """

    def __init__(self, task: Task, agent_state: AgentState, options: RacingOptions, budget: int) -> None:
        self._agent_state, self._options, self._budget = agent_state, options, budget
        self._left = task.end - agent_state.next_trial
        self._end = agent_state.next_trial
        self._batch: Tally | None = None
        self._search = _search(agent_state, options)
        self._rows = np.empty(0, dtype=np.int64)
        self._succeeded = bool(np.any(agent_state.arrays.get("succeeded", 0)))
        self._pending = np.asarray(agent_state.arrays.get("pending", np.zeros(2)), dtype=np.int64).copy()
        if "cells.depth" in task.arrays:
            cells = task.arrays["cells.depth"], task.arrays["cells.index"]
            self._batch = Tally.read(agent_state).of(*cells)
        elif self._search is None:
            self._search = self._start(task.arrays)

    def ask(self) -> Query | None:
        if self._left <= 0:
            return None
        if self._batch is not None:
            return self._ask_batch(self._batch)
        search = self._search
        assert search is not None
        if self._pending[1] == 0:  # else the last task ended within the pulls of a cell
            with np.errstate(over="ignore", invalid="ignore"):  # squares of huge values
                cell, _, _, pulls = search.ask()
            self._pending[:] = cell, pulls
        cell, pulls = int(self._pending[0]), min(self._left, int(self._pending[1]))
        if pulls == 0:
            return None
        return self._query(search.cells.depth[[cell]], search.cells.index[[cell]], [pulls])

    def tell(self, outcome: Outcome) -> None:
        assert outcome.counts is not None and outcome.squares is not None  # noqa: PT018  # repeats were asked
        spent = int(outcome.pulls.sum())
        self._left, self._end = self._left - spent, outcome.end
        self._succeeded |= bool(outcome.counts.any())
        if self._batch is not None:
            self._batch = self._batch.add(self._rows, outcome)
            return
        assert self._search is not None
        total, squares = float(_sums(outcome)[0]), float(outcome.squares[0])
        failed = spent - int(outcome.counts[0])
        if failed:
            worst = _worst(self._search)
            total, squares = total + failed * worst, squares + failed * worst**2
        with np.errstate(over="ignore"):
            self._search.tell(int(self._pending[0]), spent, total, squares)
        self._pending[1] -= spent

    def close(self) -> AgentState:
        arrays: dict[str, AnyArray] = {"succeeded": np.array([self._succeeded], dtype=np.int64)}
        if self._batch is not None:
            arrays |= Tally.read(self._agent_state).join(self._batch).arrays()
        elif self._search is not None:
            arrays |= {f"{_SEARCH}{name}": array for name, array in self._search.arrays().items()}
            arrays["pending"] = self._pending
        agent_state = self._agent_state.write(**arrays)
        return replace(agent_state, passed=max(agent_state.passed, self._end))

    def _ask_batch(self, batch: Tally) -> Query | None:
        owed = np.maximum(0, self._options.first_pulls - batch.count - batch.failed)
        taken = np.clip(self._left - (np.cumsum(owed) - owed), 0, owed)
        self._rows = np.flatnonzero(taken)
        if len(self._rows) == 0:
            return None
        return self._query(batch.depth[self._rows], batch.index[self._rows], taken[self._rows])

    def _query(self, depth: IntArray, index: IntArray, pulls: object) -> Query:
        dim, arity = self._options.dim, self._options.arity
        each = zip(depth.tolist(), index.tolist(), strict=True)
        centres = [partition.centre(h, np.array([i]), dim, arity)[0] for h, i in each]
        return Query(self._agent_state.space.snap(np.array(centres)), np.asarray(pulls, dtype=np.int64))

    def _start(self, arrays: Mapping[str, AnyArray]) -> RacingSearch:
        """Begin stage 2 with what all have found; pulls that failed count as the worst mean now."""
        shared, heard = unpacked(arrays, self._options)
        size = shared.cells.size
        tally = Tally.read(self._agent_state).of(shared.cells.depth[:size], shared.cells.index[:size])
        if not (shared.num_clients > 1).any():  # alone: merged means are the agent's own
            heard = tally.count > 0
            shared = replace(shared, num_clients=heard.astype(np.int64), mean=tally.means())
        search = RacingSearch(self._budget, shared, tally.count, tally.total, tally.squares, heard)
        worst = tally.worst()
        for cell in np.flatnonzero(tally.failed):
            failed = int(tally.failed[cell])
            search.tell(int(cell), failed, failed * worst, failed * worst**2)
        search.left = self._budget - self._end
        return search


def unpacked(arrays: Mapping[str, AnyArray], options: RacingOptions) -> tuple[StageOneResult, BoolArray]:
    """Return what stage 1 found, and in which cells' merged means the agent's own pulls are."""
    names = ("depth", "index", "num_clients", "heard", "mean", "count", "spread")
    if any(f"shared.{name}" not in arrays for name in names):
        raise WireError("shared: expected what stage 1 found with the first task of stage 2, got none")
    whole = [np.asarray(arrays[f"shared.{name}"], dtype=np.int64) for name in names[:4]]
    real = [np.asarray(arrays[f"shared.{name}"], dtype=np.float64) for name in names[4:]]
    if len({len(array) for array in (*whole, *real)}) != 1:
        raise WireError("shared: expected arrays of one length")
    depth, index, num_clients, heard = whole
    mean, count, spread = real
    return StageOneResult(
        grown_tree(options, depth, index, mean), mean, count, spread, num_clients
    ), heard > 0


def best_cell(agent_state: AgentState, options: RacingOptions) -> tuple[int, int, float] | None:
    """Return depth, index and mean of the cell to use; None before the first success.

    In stage 2 the best lower bound; in stage 1, where all cells have the same pulls, the best own mean.
    """
    if not np.any(agent_state.arrays.get("succeeded", 0)):
        return None
    search = _search(agent_state, options)
    if search is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            return search.best()
    tally = Tally.read(agent_state)
    mean = np.where(tally.count > 0, tally.means(), -np.inf)
    best = int(np.argmax(mean))
    return int(tally.depth[best]), int(tally.index[best]), float(mean[best])


def _search(agent_state: AgentState, options: RacingOptions) -> RacingSearch | None:
    arrays = {n.removeprefix(_SEARCH): a for n, a in agent_state.arrays.items() if n.startswith(_SEARCH)}
    kept = {name: np.asarray(array) for name, array in arrays.items()}
    return RacingSearch.from_arrays(options, kept) if kept else None  # type: ignore[arg-type]  # as `arrays` wrote them


def _worst(search: RacingSearch) -> float:
    pulled = search.count > 0
    return float((search.total[pulled] / search.count[pulled]).min()) if pulled.any() else 0.0


def _sums(outcome: Outcome) -> Array:
    assert outcome.counts is not None
    return np.where(outcome.counts > 0, outcome.values * outcome.counts, 0.0)
