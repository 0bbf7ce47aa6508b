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
    Bandit,
    BanditState,
    Evaluations,
    branching,
    check_arity,
    check_most,
    once_per_state,
)
from fbo_flower.algorithms.messages import Content, real, whole
from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    IntArray,
    Outcome,
    Payload,
    Phase,
    Query,
    Report,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.requests import Draws, Rng, Session
from fbo_flower.errors import WireError
from fbo_flower.numerics.arrays import BoolArray
from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.bandits.cell_table import CellTable
from fbo_flower.numerics.bandits.racing import STAGE_ONE_PART, Gathering, StageOneResult
from fbo_flower.numerics.bandits.racing_cells import RacingOptions, first_cells, grown_tree
from fbo_flower.numerics.bandits.racing_search import RacingSearch, joint_deviations
from fbo_flower.space.space import SearchSpace

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


def _search(agent_state: AgentState, options: RacingOptions) -> RacingSearch | None:
    arrays = {n.removeprefix(_SEARCH): a for n, a in agent_state.arrays.items() if n.startswith(_SEARCH)}
    kept = {name: np.asarray(array) for name, array in arrays.items()}
    return RacingSearch.from_arrays(options, kept) if kept else None  # type: ignore[arg-type]  # as `arrays` wrote them


def _sums(outcome: Outcome) -> Array:
    assert outcome.counts is not None
    return np.where(outcome.counts > 0, outcome.values * outcome.counts, 0.0)


@dataclass(frozen=True)
class RacingState(BanditState):
    """The server's state, besides what `BanditState` has.

    Parameters
    ----------
    gathering : statistics of all finished batches; copied before it is changed
    depth, index : cells of the present batch, `(n,)`
    rows : the agents of the gathering's rows
    means, counts : agent -> its statistics of the present batch
    owed : agent -> pulls of the present batch that it has still to make
    pulls_requested : pulls of one agent in all batches together
    shared : the result of stage 1; None until its end
    synced : agents that have received `shared`
    under_way : without a barrier, the agents that are at work; else None
    """

    gathering: Gathering
    depth: IntArray
    index: IntArray
    rows: tuple[str, ...] = ()
    means: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, IntArray] = field(default_factory=dict)
    owed: Mapping[str, int] = field(default_factory=dict)
    pulls_requested: int = 0
    shared: StageOneResult | None = None
    synced: tuple[str, ...] = ()
    under_way: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RacingPNE(Bandit[RacingState]):
    """Racing PF-PNE; `Bandit` describes the other options.

    Parameters
    ----------
    variant : "racing"
    nu, rho : lower bounds of the smoothness, which is learned; None: 0
    arity : "binary": each depth halves one dimension; "full": each depth halves every dimension, for `D <= 3`
    max_evaluations_per_round : largest number of trials of one agent in a round
    """

    name: ClassVar[str] = "pf-pne"
    barrier: ClassVar[str] = ""
    sees_tasks_under_way: ClassVar[bool] = True
    task_content: ClassVar[type[Content]] = Batch
    report_content: ClassVar[type[Content]] = BatchMeans

    variant: str = "racing"
    nu: float | None = None
    rho: float | None = None
    arity: str = "binary"
    max_evaluations_per_round: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, ("racing",))
        if self.nu is not None:
            check_number("nu", self.nu, 1e-12)
        if self.rho is not None:
            check_number("rho", self.rho, 1e-6, 1 - 1e-6)
        check_arity(self.arity)
        check_most(self.max_evaluations_per_round)
        self.racing_options(1)

    def racing_options(self, dim: int) -> RacingOptions:
        """Return the settings of the search in `dim` dimensions."""
        return RacingOptions(dim, branching(self.arity, dim), nu=self.nu, rho=self.rho)

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

    def ask(
        self, state: RacingState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[RacingState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        waiting = self.unfinished(state, present)
        at_work = state.under_way or ()
        state = self._close_batch(state, [*waiting, *at_work])
        tasks = {agent: self._task(state, agent, server_round) for agent in waiting}
        sent = {agent: task for agent, task in tasks.items() if task is not None}
        return replace(state, attendance=state.attendance.ask([*at_work, *sent])), sent

    def with_under_way(self, state: RacingState, tasks: Mapping[str, Task]) -> RacingState:
        at_work = tuple(sorted(tasks, key=natural_key))
        return replace(state, under_way=at_work, attendance=state.attendance.give_up(at_work))

    def tell(self, state: RacingState, phase: Phase, reports: Mapping[str, Report]) -> RacingState:
        means, counts, owed = dict(state.means), dict(state.counts), dict(state.owed)
        for agent, report in reports.items():
            # a report on another number of cells belongs to another batch
            sent = BatchMeans.of(report)
            if sent.means is None or sent.counts is None or sent.owed is None:
                continue
            if sent.means.shape == sent.counts.shape == state.index.shape:
                means[agent] = np.asarray(sent.means, dtype=np.float64)
                counts[agent] = np.asarray(sent.counts, dtype=np.int64)
                owed[agent] = int(np.sum(sent.owed))
        # a silent agent may have answered an earlier task, without the result of stage 1
        received = () if state.shared is None else state.attendance.responsive(reports)
        synced, attendance = {*state.synced, *received}, state.attendance
        return replace(
            state,
            progress=state.progress.advance(reports),
            means=means,
            counts=counts,
            owed=owed,
            synced=tuple(sorted(synced, key=natural_key)),
            attendance=attendance.tell(reports) if state.under_way is None else attendance.hear(reports),
        )

    def _task(self, state: RacingState, agent: str, server_round: int) -> Task | None:
        """Return an agent's task; None if it has to wait for the others."""
        trial = state.progress.of(agent)
        most = min(self.budget - trial, self.max_evaluations_per_round)
        content = Batch()
        if state.shared is None:
            owed = state.owed.get(agent, len(state.index) * state.gathering.options.first_pulls)
            if owed == 0:
                return None
            content, most = Batch(cells_depth=state.depth, cells_index=state.index), min(most, owed)
        elif agent not in state.synced:
            content = _packed(state.shared, state.gathering, state.rows, agent)
        return content.task(Phase.TRAIN, server_round, trial, most)

    def _close_batch(self, state: RacingState, waiting: Sequence[str]) -> RacingState:
        """Choose the next batch of cells, once all waiting agents that answer have pulled the present one."""
        responsive = state.attendance.responsive(waiting)
        if waiting and not responsive:
            return state
        if state.shared is not None or not state.means or any(state.owed.get(a, 1) > 0 for a in responsive):
            return state
        known = state.rows or state.agents
        rows = (*known, *sorted(set(state.means) - set(known), key=natural_key))
        no_pulls = np.zeros(len(state.index), dtype=np.int64)
        gathering = state.gathering.copy()
        means = np.array([state.means.get(agent, no_pulls.astype(np.float64)) for agent in rows])
        gathering.hear(means, np.array([state.counts.get(agent, no_pulls) for agent in rows]))
        with np.errstate(over="ignore", invalid="ignore"):  # squares of huge values
            depth, index = gathering.next_cells(self.budget // STAGE_ONE_PART - state.pulls_requested)
            shared = None if len(depth) else gathering.result()
        return replace(
            state,
            gathering=gathering,
            rows=rows,
            depth=depth,
            index=index,
            means={},
            counts={},
            owed={},
            pulls_requested=state.pulls_requested + len(depth) * gathering.options.first_pulls,
            shared=shared,
        )

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        options = self.racing_options(agent_state.space.dimension)
        if "cells_depth" in task.arrays:
            return _batch(task, agent_state, options)
        return _race(task, agent_state, options, self.budget)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        made = self.evaluations(agent_state)
        if "cells_depth" not in task.arrays:
            return BatchMeans(evaluations=made).payload
        pulls = self.racing_options(agent_state.space.dimension).first_pulls
        tally = read_tally(agent_state).among(task.arrays["cells_depth"], task.arrays["cells_index"])
        owed = np.maximum(0, pulls - tally.count - tally.failed).sum(keepdims=True)
        sent = BatchMeans(evaluations=made, means=tally.means(), counts=tally.count, owed=owed)
        return sent.payload

    @once_per_state
    def best(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return centre `(D,)` and mean of the cell to recommend; None before the first success.

        In stage 2 it has the best lower bound; in stage 1, where all cells have equally many pulls, the best
        mean of the agent's own pulls.
        """
        if not np.any(agent_state.arrays.get("succeeded", 0)):
            return None
        options = self.racing_options(agent_state.space.dimension)
        search = _search(agent_state, options)
        if search is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                depth, index, mean = search.best()
        else:
            tally = read_tally(agent_state)
            means = np.where(tally.count > 0, tally.means(), -np.inf)
            best = int(np.argmax(means))
            depth, index, mean = int(tally.depth[best]), int(tally.index[best]), float(means[best])
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
