"""The racing variant of PF-PNE: the server chooses cells for all agents by upper confidence bound.

The method is in `numerics.bandits.racing`. The user sets neither `nu`, `rho`, `Delta` nor a noise level.

Messages. Stage 1, to agents: depths and indices of new cells; to the server: a mean and a count per cell, and
how many pulls are still to be made. At the end of stage 1, to agents, once: the common tree, and for each
cell the merged mean, pulls per agent, variance between agents, how many agents took part, and whether this
agent did. Stage 2, to the server: only the number of evaluations made.

A batch of stage 1 does not wait for agents that left their last task unanswered; they are asked again, and
take part in the batch that is open when they answer.

Without a barrier, batches of stage 1 still wait for all agents that answer, because the merged mean of a cell
is a mean over agents: a cell that only fast agents have pulled has the mean of another function. Stage 1 uses
1/20 of the pulls at most. In stage 2 nobody waits. Both modes make the same trials.

A failed pull uses up a trial and does not count as a pull of the cell. In stage 2, a cell without a success
counts as the agent's worst mean so far, so that the search avoids cells that fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.bandits.base import (
    ARITIES,
    BanditState,
    BatchedBandit,
    PullMeans,
    branching,
    first_that_fit,
    once_per_state,
    with_outcome,
)
from fbo_flower.algorithms.messages import Content, Replies, real, whole
from fbo_flower.algorithms.options import bounded, choice
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    IntArray,
    Phase,
    Task,
    Trials,
    floats,
    natural_key,
)
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.errors import WireError
from fbo_flower.numerics.arrays import BoolArray
from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.bandits.pulls import CellPulls, Pulls
from fbo_flower.numerics.bandits.racing import (
    STAGE_ONE_PART,
    Gathering,
    RacingOptions,
    RacingSearch,
    StageOneResult,
    first_cells,
    grown_tree,
)
from fbo_flower.space.space import SearchSpace

MAX_CELLS = 2**16
_SEARCH = "search."


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


def _batch(task: Task, agent_state: AgentState, options: RacingOptions, evaluate: Evaluation) -> AgentState:
    """Stage 1: pull the cells that the server chose, `first_pulls` times each."""
    depth, index, cells = _asked(task, options)
    seen, next_trial = read_pulls(agent_state), agent_state.next_trial
    batch = seen.of(cells)
    while next_trial < task.end:
        owed = np.maximum(0, options.first_pulls - batch.count - batch.failed)
        taken = first_that_fit(owed, task.end - next_trial)
        rows = np.flatnonzero(taken)
        if len(rows) == 0:
            break
        outcome = evaluate(_query(agent_state, options, depth[rows], index[rows], taken[rows]))
        batch, next_trial = with_outcome(batch, rows, outcome), outcome.next_trial
    seen = seen.updated(batch.rows(np.argsort(cells)))
    return agent_state.write(**seen.arrays("cells.")).passed_to(next_trial)


def _race(
    task: Task, agent_state: AgentState, options: RacingOptions, budget: int, evaluate: Evaluation
) -> AgentState:
    """Stage 2: again and again, pull the cell with the best upper confidence bound."""
    search = _search(agent_state, options) or _start(task, agent_state, options, budget)
    cell, owed = np.asarray(agent_state.arrays.get("pending", np.zeros(2)), dtype=np.int64).tolist()
    next_trial = agent_state.next_trial
    while next_trial < task.end:
        if owed == 0:  # otherwise the last task ended within the pulls of a cell; continue with it
            with np.errstate(over="ignore", invalid="ignore"):  # squares of huge values
                cell, _, _, owed = search.ask()
        pulls = min(task.end - next_trial, owed)
        if pulls == 0:
            break
        at = search.cells.depth[[cell]], search.cells.index[[cell]]
        outcome = evaluate(_query(agent_state, options, *at, np.array([pulls])))
        search.own, next_trial = with_outcome(search.own, [cell], outcome), outcome.next_trial
        spent = outcome.num_trials
        search.left, owed = search.left - spent, owed - spent
    kept = {f"{_SEARCH}{name}": array for name, array in search.arrays().items()}
    agent_state = agent_state.write(**kept, pending=np.array([cell, owed], dtype=np.int64))
    return agent_state.passed_to(next_trial)


def _asked(task: Task, options: RacingOptions) -> tuple[IntArray, IntArray, IntArray]:
    """Return depth, index and number of the cells in a task."""
    depth, index = (np.asarray(task.arrays[f"cells_{name}"], dtype=np.int64) for name in ("depth", "index"))
    return depth, index, partition.number(depth, index, options.arity)


def _query(
    agent_state: AgentState, options: RacingOptions, depth: IntArray, index: IntArray, pulls: IntArray
) -> Trials:
    each = zip(depth.tolist(), index.tolist(), strict=True)
    centres = [partition.centre(h, np.array([i]), options.dim, options.arity)[0] for h, i in each]
    return Trials(agent_state.space.snap(np.array(centres)), pulls=np.asarray(pulls, dtype=np.int64))


def _start(task: Task, agent_state: AgentState, options: RacingOptions, budget: int) -> RacingSearch:
    """Begin stage 2 with the result of stage 1, and with the agent's own pulls, failed ones included."""
    shared, took_part = unpacked(task.arrays, options)
    tree, size = shared.cells, shared.cells.size
    seen = read_pulls(agent_state).of(partition.number(tree.depth[:size], tree.index[:size], options.arity))
    own = Pulls(seen.count, seen.total, seen.within, seen.failed)
    if not (shared.num_clients > 1).any():  # no other agent took part: use the agent's own means
        took_part = own.count > 0
        shared = replace(shared, num_clients=took_part.astype(np.int64), mean=own.means())
    search = RacingSearch.begin(budget, shared, own, took_part)
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
    tree = grown_tree(options, depth, index, mean)
    return StageOneResult(tree, mean, count, spread, num_clients), pulled > 0


def read_pulls(agent_state: AgentState) -> CellPulls:
    """Return the agent's pulls in stage 1."""
    return CellPulls.read(agent_state.arrays, "cells.")


def _search(agent_state: AgentState, options: RacingOptions) -> RacingSearch | None:
    kept = {n.removeprefix(_SEARCH): a for n, a in agent_state.arrays.items() if n.startswith(_SEARCH)}
    return RacingSearch.from_arrays(options, kept) if kept else None


@dataclass(frozen=True)
class RacingState(BanditState):
    """The server's state, besides what `BanditState` has."""

    gathering: Gathering  # statistics of all finished batches; copied before it is changed
    depth: IntArray  # cells of the present batch, `(n,)`
    index: IntArray
    rows: tuple[str, ...] = ()  # the agents of the gathering's rows
    # agent -> means and counts of the present batch, and how many of its pulls are still to be made
    heard: Mapping[str, tuple[Array, IntArray, int]] = field(default_factory=dict)
    pulls_requested: int = 0  # pulls of one agent in all batches together
    shared: StageOneResult | None = None  # the result of stage 1; None until its end
    synced: tuple[str, ...] = ()  # agents that have received `shared`


@dataclass(frozen=True, kw_only=True)
class RacingPNE(BatchedBandit[RacingState]):
    """Racing PF-PNE; `BatchedBandit` and `Bandit` describe the other options.

    Parameters
    ----------
    variant : "racing"
    nu, rho : lower bounds of the smoothness, which is learned; None: 0
    arity : "binary": each depth halves one dimension; "full": each depth halves every dimension, for `D <= 3`
    """

    name: ClassVar[str] = "pf-pne"
    barrier: ClassVar[str] = ""
    task_content: ClassVar[type[Content]] = Batch
    report_content: ClassVar[type[Content]] = PullMeans

    variant: str = choice("racing", ("racing",))
    nu: float | None = bounded(None, 1e-12)
    rho: float | None = bounded(None, 1e-6, 1 - 1e-6)
    arity: str = choice("binary", ARITIES)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.racing_options(1)

    def racing_options(self, dim: int) -> RacingOptions:
        """Return the settings of the search in `dim` dimensions."""
        return RacingOptions(dim, branching(self.arity, dim), nu=self.nu, rho=self.rho)

    def most_rows(self, space: SearchSpace) -> int:
        """Return the largest number of cells in a report."""
        return MAX_CELLS

    def check(self, space: SearchSpace) -> None:
        self.racing_options(space.dimension)

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> RacingState:
        options = self.racing_options(federation.space.dimension)
        depth, index = first_cells(options, self.budget)
        pulls_requested = len(depth) * options.first_pulls
        return RacingState(
            federation.agents, Gathering(options, self.budget), depth, index, pulls_requested=pulls_requested
        )

    def tell(self, state: RacingState, phase: Phase, reports: Replies) -> RacingState:
        # a silent agent may have answered an earlier task, without the result of stage 1
        received = () if state.shared is None else state.attendance.responsive(reports)
        state = replace(
            state,
            heard={**state.heard, **PullMeans.about(reports, len(state.index))},
            synced=tuple(sorted({*state.synced, *received}, key=natural_key)),
        )
        return super().tell(state, phase, reports)

    def next_pulls(self, state: RacingState, agent: str, left: int) -> tuple[Content | None, int]:
        most = min(left, self.max_evaluations_per_round)
        if state.shared is None:
            owed = len(state.index) * state.gathering.options.first_pulls
            owed = state.heard[agent][2] if agent in state.heard else owed
            batch = Batch(cells_depth=state.depth, cells_index=state.index)
            return (batch, min(most, owed)) if owed else (None, 0)
        if agent not in state.synced:
            return _packed(state.shared, state.gathering, state.rows, agent), most
        return Batch(), most

    def close(self, state: RacingState, waiting: Sequence[str]) -> RacingState:
        """Choose the next batch of cells, once all waiting agents that answer have pulled the present one."""
        responsive = state.attendance.responsive(waiting)
        if waiting and not responsive:
            return state
        behind = any(agent not in state.heard or state.heard[agent][2] > 0 for agent in responsive)
        if state.shared is not None or not state.heard or behind:
            return state
        known = state.rows or state.agents
        rows = (*known, *sorted(set(state.heard) - set(known), key=natural_key))
        nothing = np.zeros(len(state.index)), np.zeros(len(state.index), dtype=np.int64), 0
        means, counts, _ = zip(*(state.heard.get(agent, nothing) for agent in rows), strict=True)
        gathering = state.gathering.copy()
        gathering.hear(np.array(means), np.array(counts))
        with np.errstate(over="ignore", invalid="ignore"):  # squares of huge values
            depth, index = gathering.next_cells(self.budget // STAGE_ONE_PART - state.pulls_requested)
            shared = None if len(depth) else gathering.result()
        return replace(
            state,
            gathering=gathering,
            rows=rows,
            depth=depth,
            index=index,
            heard={},
            pulls_requested=state.pulls_requested + len(depth) * gathering.options.first_pulls,
            shared=shared,
        )

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        options = self.racing_options(agent_state.space.dimension)
        if "cells_depth" in task.arrays:
            return _batch(task, agent_state, options, evaluate)
        return _race(task, agent_state, options, self.budget, evaluate)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        made = self.evaluations(agent_state)
        if "cells_depth" not in task.arrays:
            return PullMeans(evaluations=made)
        options = self.racing_options(agent_state.space.dimension)
        seen = read_pulls(agent_state).of(_asked(task, options)[2])
        owed = np.maximum(0, options.first_pulls - seen.count - seen.failed).sum(keepdims=True)
        return PullMeans(evaluations=made, means=seen.means(), counts=seen.count, owed=owed)

    @once_per_state
    def best_pulled(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return centre `(D,)` and mean of the cell to recommend; None before the first success.

        In stage 2 it has the best lower bound; in stage 1, where all cells have equally many pulls, the best
        mean of the agent's own pulls.
        """
        options = self.racing_options(agent_state.space.dimension)
        search, seen = _search(agent_state, options), read_pulls(agent_state)
        if not (seen if search is None else search.own).count.any():
            return None
        if search is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                depth, index, mean = search.best()
        else:
            means = seen.means(-np.inf)
            best = int(np.argmax(means))
            (depth,), (index,) = (part.tolist() for part in partition.place(seen.cell[[best]], options.arity))
            mean = float(means[best])
        return partition.centre(depth, np.array([index]), options.dim, options.arity)[0], mean


def _packed(shared: StageOneResult, gathering: Gathering, rows: Sequence[str], agent: str) -> Batch:
    """Return the result of stage 1 for one agent; `unpacked` reads it."""
    size = shared.cells.size
    pulled = np.zeros(size, dtype=np.int64)  # whether the agent's own pulls are in a cell's merged mean
    if agent in rows and rows.index(agent) < len(gathering.counts):
        pulled = (gathering.counts[rows.index(agent)] > 0).astype(np.int64)
    return Batch(
        shared_depth=shared.cells.depth[:size],
        shared_index=shared.cells.index[:size],
        shared_mean=shared.mean,
        shared_count=shared.count,
        shared_spread=shared.spread,
        shared_num_clients=shared.num_clients.astype(np.int64),
        shared_pulled=pulled,
    )
