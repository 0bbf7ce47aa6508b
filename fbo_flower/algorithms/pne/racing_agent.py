"""The racing variant of PF-PNE on the agent: pulls for the server, then a search of its own.

A failed pull uses up a trial and does not count as a pull of the cell. In stage 2, a cell without a success
counts as the agent's worst mean so far, so that the search avoids cells that fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from fbo_flower.algorithms.bandits.base import Evaluations
from fbo_flower.algorithms.messages import Content, real, whole
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, IntArray, Outcome, Query, Task, floats
from fbo_flower.algorithms.session import Session
from fbo_flower.errors import WireError
from fbo_flower.numerics.arrays import BoolArray
from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.bandits.cell_table import CellTable
from fbo_flower.numerics.bandits.racing import StageOneResult
from fbo_flower.numerics.bandits.racing_cells import RacingOptions, grown_tree
from fbo_flower.numerics.bandits.racing_search import RacingSearch, joint_deviations

MAX_CELLS = 2**16
_SEARCH = "search."
_SUMS = ("count", "failed", "total", "within")


@dataclass(frozen=True, kw_only=True)
class Batch(Content):
    """A task: new cells to pull (stage 1); or once the common tree with its statistics; or nothing (stage 2).

    Of each cell of the tree: the merged mean, pulls per agent, the variance between agents, how many agents
    took part, and whether this one did.
    """

    cells_depth: Annotated[IntArray | None, whole(None, most=MAX_CELLS)] = None
    cells_index: Annotated[IntArray | None, whole(None, most=MAX_CELLS)] = None
    shared_depth: Annotated[IntArray | None, whole(None, most=MAX_CELLS)] = None
    shared_index: Annotated[IntArray | None, whole(None, most=MAX_CELLS)] = None
    shared_num_clients: Annotated[IntArray | None, whole(None, most=MAX_CELLS)] = None
    shared_pulled: Annotated[IntArray | None, whole(None, high=1, most=MAX_CELLS)] = None
    shared_mean: Annotated[Array | None, real(None, most=MAX_CELLS)] = None
    shared_count: Annotated[Array | None, real(None, most=MAX_CELLS)] = None
    shared_spread: Annotated[Array | None, real(None, most=MAX_CELLS)] = None


@dataclass(frozen=True, kw_only=True)
class BatchMeans(Evaluations):
    """A report: mean and count of every cell of the task, and how many pulls are still to be made."""

    means: Annotated[Array | None, real(None, most=MAX_CELLS)] = None
    counts: Annotated[IntArray | None, whole(None, high=1e9, most=MAX_CELLS)] = None
    owed: Annotated[IntArray | None, whole(1, high=1e9)] = None


@dataclass(frozen=True)
class Tally(CellTable):
    """Pulls in stage 1: pulls with and without a value, sums, and sums of squared deviations."""

    count: IntArray
    failed: IntArray
    total: Array
    within: Array

    def among(self, depth: AnyArray, index: AnyArray) -> Tally:
        """Return the rows of the given cells, in their order; zeros for cells without pulls."""
        place = {cell: k for k, cell in enumerate(zip(self.depth.tolist(), self.index.tolist(), strict=True))}
        rows = [place.get(cell, -1) for cell in zip(depth.tolist(), index.tolist(), strict=True)]
        sums = (np.append(getattr(self, name), 0)[rows] for name in _SUMS)
        return Tally(np.asarray(depth, np.int64), np.asarray(index, np.int64), *sums)

    def means(self) -> Array:
        """Return the mean of each cell, 0 for a cell without a successful pull."""
        return np.asarray(self.total / np.maximum(1, self.count), dtype=np.float64)

    def add(self, rows: IntArray, outcome: Outcome) -> Tally:
        """Return the tally with more pulls of the cells in `rows` added."""
        assert outcome.counts is not None and outcome.deviations is not None  # noqa: PT018  # repeats were asked
        sums = {name: getattr(self, name).copy() for name in _SUMS}
        with np.errstate(over="ignore", invalid="ignore"):  # huge values
            before = self.count[rows], self.total[rows], self.within[rows]
            sums["within"][rows] = joint_deviations(
                before, (outcome.counts, _sums(outcome), outcome.deviations)
            )
        sums["count"][rows] += outcome.counts
        sums["failed"][rows] += outcome.pulls - outcome.counts
        sums["total"][rows] += _sums(outcome)
        return replace(self, **sums)

    def updated(self, other: Tally) -> Tally:
        """Return the tally with the rows of `other` replacing or extending its own."""
        replaced = set(zip(other.depth.tolist(), other.index.tolist(), strict=True))
        mine = zip(self.depth.tolist(), self.index.tolist(), strict=True)
        return self.rows(np.array([cell not in replaced for cell in mine], dtype=bool)).joined(other)


def session(task: Task, agent_state: AgentState, options: RacingOptions, budget: int) -> Session:
    """Return the generator that does an agent's work on one task of stage 1 or 2.

    Parameters
    ----------
    budget : `T`, trials of the agent in all
    """
    if "cells_depth" in task.arrays:
        return _batch(task, agent_state, options)
    return _race(task, agent_state, options, budget)


def _batch(task: Task, agent_state: AgentState, options: RacingOptions) -> Session:
    """Stage 1: pull the cells that the server chose, `first_pulls` times each."""
    batch = read_tally(agent_state).among(task.arrays["cells_depth"], task.arrays["cells_index"])
    next_trial, succeeded = agent_state.next_trial, bool(np.any(agent_state.arrays.get("succeeded", 0)))
    while next_trial < task.end:
        owed = np.maximum(0, options.first_pulls - batch.count - batch.failed)
        taken = np.clip(task.end - next_trial - (np.cumsum(owed) - owed), 0, owed)
        rows = np.flatnonzero(taken)
        if len(rows) == 0:
            break
        outcome = yield _query(agent_state, options, batch.depth[rows], batch.index[rows], taken[rows])
        assert outcome.counts is not None
        batch, next_trial = batch.add(rows, outcome), outcome.end
        succeeded |= bool(outcome.counts.any())
    agent_state = agent_state.write(
        succeeded=np.array([succeeded], dtype=np.int64),
        **read_tally(agent_state).updated(batch).arrays("tally."),
    )
    return agent_state.passed_to(max(agent_state.passed, next_trial))


def _race(task: Task, agent_state: AgentState, options: RacingOptions, budget: int) -> Session:
    """Stage 2: again and again, pull the cell with the best upper confidence bound."""
    search = _search(agent_state, options)
    if search is None:
        search = _start(task, agent_state, options, budget)
    cell, owed = np.asarray(agent_state.arrays.get("pending", np.zeros(2)), dtype=np.int64).tolist()
    next_trial, succeeded = agent_state.next_trial, bool(np.any(agent_state.arrays.get("succeeded", 0)))
    while next_trial < task.end:
        if owed == 0:  # otherwise the last task ended within the pulls of a cell; continue with it
            with np.errstate(over="ignore", invalid="ignore"):  # squares of huge values
                cell, _, _, owed = search.ask()
        pulls = min(task.end - next_trial, owed)
        if pulls == 0:
            break
        outcome = yield _query(
            agent_state, options, search.cells.depth[[cell]], search.cells.index[[cell]], np.array([pulls])
        )
        assert outcome.counts is not None and outcome.deviations is not None  # noqa: PT018  # repeats were asked
        spent, next_trial = int(outcome.pulls.sum()), outcome.end
        succeeded |= bool(outcome.counts.any())
        total, within = float(_sums(outcome)[0]), float(outcome.deviations[0])
        succeeded_pulls = int(outcome.counts[0])
        with np.errstate(over="ignore", invalid="ignore"):  # huge values
            if succeeded_pulls:
                search.tell(cell, succeeded_pulls, total, within)
            search.tell_failed(cell, spent - succeeded_pulls)
        owed -= spent
    kept = {f"{_SEARCH}{name}": array for name, array in search.arrays().items()}
    agent_state = agent_state.write(
        succeeded=np.array([succeeded], dtype=np.int64),
        **kept,
        pending=np.array([cell, owed], dtype=np.int64),
    )
    return agent_state.passed_to(max(agent_state.passed, next_trial))


def _query(
    agent_state: AgentState, options: RacingOptions, depth: IntArray, index: IntArray, pulls: IntArray
) -> Query:
    each = zip(depth.tolist(), index.tolist(), strict=True)
    centres = [partition.centre(h, np.array([i]), options.dim, options.arity)[0] for h, i in each]
    return Query(agent_state.space.snap(np.array(centres)), np.asarray(pulls, dtype=np.int64))


def _start(task: Task, agent_state: AgentState, options: RacingOptions, budget: int) -> RacingSearch:
    """Begin stage 2 with the result of stage 1, and with the agent's own pulls, failed ones included."""
    shared, pulled = unpacked(task.arrays, options)
    size = shared.cells.size
    tally = read_tally(agent_state).among(shared.cells.depth[:size], shared.cells.index[:size])
    if not (shared.num_clients > 1).any():  # no other agent took part: use the agent's own means
        pulled = tally.count > 0
        shared = replace(shared, num_clients=pulled.astype(np.int64), mean=tally.means())
    search = RacingSearch(budget, shared, tally.count, tally.total, tally.within, pulled)
    for cell in np.flatnonzero(tally.failed):
        search.tell_failed(int(cell), int(tally.failed[cell]))
    search.left = budget - agent_state.next_trial
    return search


def unpacked(arrays: Mapping[str, AnyArray], options: RacingOptions) -> tuple[StageOneResult, BoolArray]:
    """Return the result of stage 1, and for each cell whether its merged mean has pulls of this agent."""
    found = {name: array for name, array in arrays.items() if name.startswith("shared_")}
    if len(found) != 7 or len({array.shape for array in found.values()}) != 1:
        got = ", ".join(f"{name} {array.shape}" for name, array in found.items()) or "none"
        raise WireError(f"shared: expected seven arrays of one length with the result of stage 1, got {got}")
    names = ("depth", "index", "num_clients", "pulled")
    depth, index, num_clients, pulled = (np.asarray(found[f"shared_{n}"], dtype=np.int64) for n in names)
    mean, count, spread = (floats(found[f"shared_{name}"]) for name in ("mean", "count", "spread"))
    return StageOneResult(
        grown_tree(options, depth, index, mean), mean, count, spread, num_clients
    ), pulled > 0


def read_tally(agent_state: AgentState) -> Tally:
    """Return the tally in the agent's state."""
    return Tally.read(agent_state.arrays, "tally.")


def best_cell(agent_state: AgentState, options: RacingOptions) -> tuple[int, int, float] | None:
    """Return depth, index and mean of the cell to recommend; None before the first success.

    In stage 2 it has the best lower bound; in stage 1, where all cells have equally many pulls, the best mean
    of the agent's own pulls.
    """
    if not np.any(agent_state.arrays.get("succeeded", 0)):
        return None
    search = _search(agent_state, options)
    if search is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            return search.best()
    tally = read_tally(agent_state)
    mean = np.where(tally.count > 0, tally.means(), -np.inf)
    best = int(np.argmax(mean))
    return int(tally.depth[best]), int(tally.index[best]), float(mean[best])


def _search(agent_state: AgentState, options: RacingOptions) -> RacingSearch | None:
    arrays = {n.removeprefix(_SEARCH): a for n, a in agent_state.arrays.items() if n.startswith(_SEARCH)}
    kept = {name: np.asarray(array) for name, array in arrays.items()}
    return RacingSearch.from_arrays(options, kept) if kept else None  # type: ignore[arg-type]  # as `arrays` wrote them


def _sums(outcome: Outcome) -> Array:
    assert outcome.counts is not None
    return np.where(outcome.counts > 0, outcome.values * outcome.counts, 0.0)
