"""The racing variant of PF-PNE on the server, which chooses cells for all agents by upper confidence bound.

The method is in `numerics.bandits.racing`, the agent's part in `racing_agent.py`. The user sets neither `nu`,
`rho`, `Delta` nor a noise level.

Messages. Stage 1, to agents: depths and indices of new cells; to the server: a mean and a count per cell, and
how many pulls are still to be made. At the end of stage 1, to agents, once: the common tree, and for each
cell the merged mean, pulls per agent, variance between agents, how many agents took part, and whether this
agent did. Stage 2, to the server: only the number of evaluations made.

A batch of stage 1 does not wait for agents that left their last task unanswered; they are asked again, and
take part in the batch that is open when they answer.

Without a barrier, batches of stage 1 still wait for all agents that answer, because the merged mean of a cell
is a mean over agents: a cell that only fast agents have pulled has the mean of another function. Stage 1 uses
1/20 of the pulls at most. In stage 2 nobody waits. Both modes make the same trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.bandits.base import Bandit, branching, check_arity, check_most
from fbo_flower.algorithms.messages import Content
from fbo_flower.algorithms.once import once_per_state
from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.algorithms.pne.racing_agent import Batch, BatchMeans, best_cell, read_tally, session
from fbo_flower.algorithms.progress import Attendance, Progress
from fbo_flower.algorithms.records import (
    AgentState,
    Array,
    Federation,
    IntArray,
    Payload,
    Phase,
    Report,
    Task,
    natural_key,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.bandits.racing import STAGE_ONE_PART, Gathering, StageOneResult
from fbo_flower.numerics.bandits.racing_cells import RacingOptions, first_cells
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class RacingState:
    """The server's state.

    Parameters
    ----------
    agents : agents of the registration; the run ends when all of them have spent their budget
    gathering : statistics of all finished batches; copied before it is changed
    depth, index : cells of the present batch, `(n,)`
    progress : every agent's next trial
    rows : the agents of the gathering's rows
    means, counts : agent -> its statistics of the present batch
    owed : agent -> pulls of the present batch that it has still to make
    pulls_requested : pulls of one agent in all batches together
    shared : the result of stage 1; None until its end
    synced : agents that have received `shared`
    attendance : which agents answer their tasks
    under_way : without a barrier, the agents that are at work; else None
    """

    agents: tuple[str, ...]
    gathering: Gathering
    depth: IntArray
    index: IntArray
    progress: Progress = field(default_factory=Progress)
    rows: tuple[str, ...] = ()
    means: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, IntArray] = field(default_factory=dict)
    owed: Mapping[str, int] = field(default_factory=dict)
    pulls_requested: int = 0
    shared: StageOneResult | None = None
    synced: tuple[str, ...] = ()
    attendance: Attendance = field(default_factory=Attendance)
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

    def init(self, federation: Federation, rng: np.random.Generator) -> RacingState:
        options = self.racing_options(federation.space.dimension)
        depth, index = first_cells(options, self.budget)
        pulls_requested = len(depth) * options.first_pulls
        return RacingState(
            federation.agents, Gathering(options, self.budget), depth, index, pulls_requested=pulls_requested
        )

    def ask(
        self,
        state: RacingState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[RacingState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        waiting = [agent for agent in present if state.progress.of(agent) < self.budget]
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

    def finished(self, state: RacingState) -> bool:
        return state.attendance.is_over(state.agents, state.progress, self.budget)

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
            shared=None if len(depth) else _result(gathering),
        )

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        options = self.racing_options(agent_state.space.dimension)
        return session(task, agent_state, options, self.budget)

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
        options = self.racing_options(agent_state.space.dimension)
        best = best_cell(agent_state, options)
        if best is None:
            return None
        return partition.centre(best[0], np.array([best[1]]), options.dim, options.arity)[0], best[2]


def _result(gathering: Gathering) -> StageOneResult:
    with np.errstate(over="ignore"):
        return gathering.result()


def _packed(shared: StageOneResult, gathering: Gathering, rows: Sequence[str], agent: str) -> Batch:
    """Return the result of stage 1 for one agent; `racing_agent.unpacked` reads it."""
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
