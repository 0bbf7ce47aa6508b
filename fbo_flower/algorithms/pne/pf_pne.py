"""PF-PNE, the personalised federated X-armed bandit, and each of its two stages alone [Li2024].

Stage 1 is run by the server: all agents pull the active cells of one depth, the server averages their means
and eliminates the cells that cannot hold the optimum of the mean objective, depth by depth down to the
transition depth `H0` (Alg. 1). Stage 2 is run by each agent alone, from the root again: the survivors of
stage 1 are protected and keep the server's statistics; the agent pulls all other cells and eliminates them by
its own statistics (Alg. 3). A cell is dropped only when both stages have eliminated it. (To pull a cell is to
evaluate the objective at its centre.)

A depth of stage 1 does not wait for agents that left their last task unanswered: the others make the missing
pulls. A silent agent is asked again in every round and takes part in the depth that is open when it answers.

Our variants without parameters to set are `racing.py`, and for small budgets `gp.py`. The mathematics is in
`numerics.bandits.elimination`. `docs/errata.md` lists the paper's misprints that the
code corrects.

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024 (arXiv 2310.16323).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.bandits.base import (
    BanditState,
    Evaluations,
    XArmedBandit,
    first_that_fit,
    in_order,
    once_per_state,
    with_outcome,
)
from fbo_flower.algorithms.messages import Content, Replies, real, summable, whole
from fbo_flower.algorithms.options import bounded, check_secure_sums, checked, choice
from fbo_flower.algorithms.pne.gp import GPPNE
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    IntArray,
    Phase,
    Task,
    Trials,
    natural_key,
)
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination, partition
from fbo_flower.numerics.bandits.pulls import CellPulls, Survivors
from fbo_flower.space.space import SearchSpace

MAX_CELLS = 2**20  # active cells of one depth
PATIENCE = 2  # an agent is not waited for after this many times the pulls of a depth
LEAST_FAILURES = 8  # in stage 2, a cell is left after max(2 tau_h, 8) failed pulls
ALL_DEPTHS = 2 * MAX_CELLS  # survivors of all depths together


@dataclass(frozen=True, kw_only=True)
class CellTask(Content):
    """A task: pull these cells of a depth (stage 1), or search alone (stage 2); survivors not sent before."""

    agents: int = 0  # M
    depth: int = -1  # h
    sum: bool = False  # whether the reports are summed securely
    cells: Annotated[IntArray | None, whole(None, most=MAX_CELLS)] = None  # K^h
    pulls: Annotated[IntArray | None, whole(None, high=1e9, most=MAX_CELLS)] = None
    shared_cell: Annotated[IntArray | None, whole(None, high=2.0**63, most=ALL_DEPTHS)] = None
    shared_mean: Annotated[Array | None, real(None, most=ALL_DEPTHS)] = None
    shared_radius: Annotated[Array | None, real(None, most=ALL_DEPTHS)] = None

    @classmethod
    def report_kind(cls, task: Task) -> str | None:
        return f"depth {cls.of(task).depth}" if "cells" in task.arrays else None


@dataclass(frozen=True, kw_only=True)
class Means(Evaluations):
    """A report: mean and count of every cell of the task; in stage 2 neither.

    A sum over agents also needs who has pulls and 1 / count, see `elimination.merge_sums`.
    """

    means: Annotated[Array | None, summable("len(cells)", bound=1e12, most=MAX_CELLS, repeats=False)] = None
    counts: Annotated[
        Array | None, summable("len(cells)", bound=1e9, low=0.0, most=MAX_CELLS, repeats=False)
    ] = None
    present: Annotated[
        Array | None, summable("len(cells)", bound=1.0, only_if="secure_sums", repeats=False)
    ] = None
    inverse: Annotated[
        Array | None, summable("len(cells)", bound=1.0, only_if="secure_sums", repeats=False)
    ] = None

    @classmethod
    def asks_for_sum(cls, task: Task) -> bool:
        return CellTask.of(task).sum

    @classmethod
    def sum_name(cls, task: Task, agent_state: AgentState) -> str:
        return f"depth {CellTask.of(task).depth}"

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        depth = np.array([CellTask.of(task).depth], dtype=np.int64)
        return {"cells": task.arrays["cells"], "pulls": task.arrays["pulls"], "depth": depth}


@dataclass(frozen=True)
class PNEState(BanditState):
    """The server's state, besides what `BanditState` has."""

    dim: int  # `D`
    depth: int = 0  # `h` of stage 1
    active: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))  # `K^h`, ascending
    # pulls of each active cell that every agent has to make at this depth
    wanted: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    # agent -> means and counts of the active cells, over all its pulls at this depth
    reports: Mapping[str, tuple[Array, IntArray]] = field(default_factory=dict)
    # survivors of stage 1 with their statistics, depth after depth
    shared: Survivors = field(default_factory=lambda: Survivors.read({}, ""))
    stage_two: bool = False  # whether stage 1 is over
    # agent -> how many rows of `shared` it has received
    synced: Mapping[str, int] = field(default_factory=dict)
    # agent -> trials that it made at this depth, failed ones included
    spent: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)  # agent -> how many of these failed
    # the secure sum of this depth, turned into statistics over all agents; None: there is none yet
    merged: elimination.Merged | None = None
    # whether the secure sum of this depth failed, so that none of its cells is eliminated
    skipped: bool = False


@dataclass(frozen=True)
class CellSearch:
    """What an agent keeps: stage 2's `h` and `K_m^h`, the survivors of stage 1, and its own pulls."""

    num_agents: int
    depth: int
    active: IntArray
    shared: Survivors
    pulls: CellPulls

    @staticmethod
    def read(state: AgentState) -> CellSearch:
        """Return the search in the agent's state; at the root before the first task."""
        num_agents, depth = (int(np.sum(state.arrays.get(name, 0))) for name in ("agents", "search.depth"))
        active = np.asarray(state.arrays.get("search.active", [0]), dtype=np.int64)
        shared, pulls = Survivors.read(state.arrays, "shared."), CellPulls.read(state.arrays, "cells.")
        return CellSearch(num_agents, depth, active, shared, pulls)

    def write(self, state: AgentState) -> AgentState:
        """Return the agent's state with this search stored."""
        numbers = {"agents": self.num_agents, "search.depth": self.depth}
        arrays = {name: np.array([number], dtype=np.int64) for name, number in numbers.items()}
        tables = self.shared.arrays("shared.") | self.pulls.arrays("cells.")
        return state.write(**arrays, **tables, **{"search.active": self.active})


@dataclass(frozen=True, kw_only=True)
class PhasedPNE(XArmedBandit[PNEState]):
    """Phased elimination of cells; `XArmedBandit` describes the other options.

    Parameters
    ----------
    c1 : constant of the confidence radius `c sqrt(log(c1 T / delta) / n)`
    delta : probability that a confidence interval fails; None: `1 / M`, for `M` agents
    aggregate : how the server merges the agents' means of a cell: "mean" (the paper); "median" or "trimmed"
        if some agents may lie, which takes more pulls at every depth
    trim : share of the agents that "trimmed" leaves out at each end
    secure_sums : smallest number of agents in a secure sum of statistics: the server sees the sum but no
        agent's own report; only with `aggregate = "mean"`. 0: the server sees all reports
    """

    task_content: ClassVar[type[Content]] = CellTask
    report_content: ClassVar[type[Content]] = Means

    c1: float = bounded(1.0, 1e-12)
    delta: float | None = bounded(None, 1e-300, 1)
    aggregate: str = choice("mean", ("mean", "median", "trimmed"))
    trim: float = bounded(0.2, 0, 0.5)
    secure_sums: int = checked(0, check_secure_sums)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.secure_sums and self.aggregate != "mean":
            raise ConfigError(f"aggregate: expected 'mean' with secure_sums, got {self.aggregate!r}")

    @abstractmethod
    def transition(self) -> int:
        """Return `H0`, the last depth of stage 1; -1 if there is no stage 1, `NEVER` if no stage 2."""

    def constants(self, num_agents: int) -> elimination.Constants:
        """Return the constants of `tau_h` (pulls) and `b` (confidence radius)."""
        delta = 1.0 / num_agents if self.delta is None else self.delta  # 1 / M
        return elimination.Constants(self.budget, delta, self.nu, self.rho, self.c, self.c1)

    def check(self, space: SearchSpace) -> None:
        partition.max_depth(space.dimension, self.branching(space.dimension))

    # -- the server: stage 1 -------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> PNEState:
        state = PNEState(federation.agents, federation.space.dimension, stage_two=self.transition() < 0)
        return self._open_depth(state)

    def ask(
        self, state: PNEState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[PNEState, dict[str, Task]]:
        if phase is Phase.EVALUATE:
            return state, {}
        state = self._close_depth(state, present)
        sums_now = phase is Phase.TRAIN and self._can_complete_depth(state, present)
        # Alg. 1, line 13: survivors with their statistics; agents that have the same rows share the arrays
        news: dict[int, CellTask] = {}
        for rows in {state.synced.get(agent, 0) for agent in present}:
            new: dict[str, Any] = state.shared.rows(slice(rows, None)).arrays("shared_")
            news[rows] = CellTask(agents=len(state.agents), **(new if len(new["shared_cell"]) else {}))
        tasks = {}
        for agent in present:
            content, trial = news[state.synced.get(agent, 0)], state.progress.of(agent)
            most = min(self.budget - trial if phase is Phase.TRAIN else 0, self.max_evaluations_per_round)
            if sums_now or (most > 0 and not state.stage_two):
                most = min(most, 0 if self._is_stuck(state, agent) else self._missing_pulls(state, agent))
                if most == 0 and not sums_now:
                    continue  # waits for the others; in a sum it reports its statistics, too
                content = replace(
                    content, depth=state.depth, cells=state.active, pulls=state.wanted, sum=sums_now
                )
            elif most == 0 and content.shared_cell is None:
                continue  # its recommendation has the last survivors
            tasks[agent] = content.task(phase, server_round, trial, most)
        return replace(state, attendance=state.attendance.ask(tasks)), tasks

    def tell(self, state: PNEState, phase: Phase, replies: Replies) -> PNEState:
        heard = dict(state.reports)
        for agent, report in replies.items():
            sent = Means.of(report)
            # Alg. 1, line 6; a report on another number of cells belongs to another depth
            if sent.means is None or sent.counts is None:
                continue
            if sent.means.shape == sent.counts.shape == state.active.shape:
                heard[agent] = np.asarray(sent.means, np.float64), np.asarray(sent.counts, np.int64)
        # a silent agent may have answered an earlier task, about another depth and without the last survivors
        punctual = state.attendance.responsive(replies)
        synced = {**state.synced, **{agent: len(state.shared.cell) for agent in punctual}}
        progress, spent, failed = state.progress.advance(replies), dict(state.spent), dict(state.failed)
        for agent in punctual if not state.stage_two else ():
            spent[agent] = spent.get(agent, 0) + progress.of(agent) - state.progress.of(agent)
            failed[agent] = failed.get(agent, 0) + replies[agent].num_failed
        state = replace(state, spent=in_order(spent), failed=in_order(failed))
        state = replace(state, reports=heard, synced=in_order(synced))
        if self.secure_sums:
            state = self._with_sums(state, replies)
        return super().tell(state, phase, replies)

    def _with_sums(self, state: PNEState, replies: Replies) -> PNEState:
        """Return the state with the statistics over all agents of a depth.

        If the sum failed, all its cells are divided, unless nobody had evaluations left for it.
        """
        if replies.failed:
            any_pulls = any(spent > state.failed.get(agent, 0) for agent, spent in state.spent.items())
            return replace(state, skipped=any_pulls)
        if not (sums := replies.sums):
            return state
        found = elimination.merge_sums(sums["present"], sums["means"], sums["inverse"], sums["counts"])
        fits = found.mean.shape == state.active.shape and bool(np.any(found.count))  # some agent has pulls
        return replace(state, merged=found if fits else None)

    def _open_depth(self, state: PNEState) -> PNEState:
        """Ask for `ceil(tau_h / M)` pulls of each active cell [Li2024, Alg. 2, line 6]."""
        pulls = self.constants(len(state.agents)).pulls_per_client(state.depth, len(state.agents))
        wanted = np.full(len(state.active), min(pulls, self.budget), dtype=np.int64)
        return replace(state, wanted=wanted, reports={}, spent={}, failed={}, merged=None, skipped=False)

    def _missing_pulls(self, state: PNEState, agent: str) -> int:
        """Return how many pulls an agent has still to make at this depth.

        With secure sums the server knows only how many trials the agent made and how many failed.
        """
        if self.secure_sums:
            done = state.spent.get(agent, 0) - state.failed.get(agent, 0)
            return max(0, int(np.sum(state.wanted)) - done)
        counts = state.reports[agent][1] if agent in state.reports else 0
        return int(np.sum(np.maximum(0, state.wanted - counts)))

    def _is_stuck(self, state: PNEState, agent: str) -> bool:
        """Return whether an agent made twice the trials of this depth and still has pulls to make.

        Then its objective fails in some cell, or it lies. The server does not wait for it.
        """
        spent = state.spent.get(agent, 0)
        return spent >= PATIENCE * int(np.sum(state.wanted)) and self._missing_pulls(state, agent) > 0

    def _close_depth(self, state: PNEState, present: Sequence[str]) -> PNEState:
        """Eliminate cells, once all agents that answer have made their pulls [Li2024, Alg. 1, lines 6-14]."""
        if state.stage_two or not (self.secure_sums or state.reports):
            return state
        if self.secure_sums:  # one sum per depth: the difference of two would be a late agent's report
            if state.skipped:
                return self._deeper(state, state.active)  # nothing is known: all cells survive
            return state if state.merged is None else self._eliminate(state, state.merged)
        replying = state.attendance.responsive(present)
        waiting = [a for a in replying if state.progress.of(a) < self.budget]
        responsive = [a for a in waiting if not self._is_stuck(state, a)]
        if any(self._missing_pulls(state, a) for a in (responsive if waiting else state.reports)):
            return state  # if no agent is waiting, the budget ended within this depth
        means, counts = zip(*(state.reports[a] for a in sorted(state.reports, key=natural_key)), strict=True)
        trim = {"mean": 0.0, "median": 0.5, "trimmed": self.trim}[self.aggregate]
        merged = elimination.merge(means, counts, trim)  # Alg. 1, lines 7-9
        pulls = self.constants(len(state.agents)).pulls(state.depth)
        missing = elimination.missing_pulls(merged.count, pulls, len(responsive))
        if np.any(missing) and (responsive or not waiting or not np.any(merged.count)):
            # some agents did not make their pulls: the responsive ones make them instead
            return replace(state, wanted=state.wanted + missing) if waiting else state
        return self._eliminate(state, merged)

    def _eliminate(self, state: PNEState, merged: elimination.Merged) -> PNEState:
        """Eliminate cells of this depth by the merged statistics, and continue below the survivors."""
        constants = self.constants(len(state.agents))
        radius = constants.radius(merged.count)
        known = merged.count > 0  # a cell where every pull failed is dropped
        stays = known.copy()  # Alg. 1, lines 10-12
        variation = constants.variation(state.depth)
        stays[known] = ~elimination.eliminated(merged.mean[known], radius[known], variation)
        cells = partition.number(state.depth, state.active, self.branching(state.dim))
        kept = Survivors(cells[stays], merged.mean[stays], radius[stays])
        if self.secure_sums:
            stays |= ~known  # the sum may lack the agents that could evaluate the cell: keep it
        return self._deeper(replace(state, shared=state.shared.joined(kept)), state.active[stays])

    def _deeper(self, state: PNEState, survivors: IntArray) -> PNEState:
        """Continue with the children of the survivors of a depth [Alg. 1, line 14], or with stage 2."""
        arity = self.branching(state.dim)
        if state.depth >= min(self.transition(), partition.max_depth(state.dim, arity)):
            return replace(state, stage_two=self.transition() != elimination.NEVER)
        children = partition.children(survivors, arity)
        return self._open_depth(replace(state, depth=state.depth + 1, active=children))

    # -- the server: sums of which it sees only the total --------------------------------------

    def _can_complete_depth(self, state: PNEState, present: Sequence[str]) -> bool:
        """Return whether all agents present can finish this depth in one task, so that it can be summed.

        False without secure sums.
        """
        if not self.secure_sums or state.stage_two or state.merged is not None:
            return False
        return all(
            min(self._missing_pulls(state, a), self.budget - state.progress.of(a))
            <= self.max_evaluations_per_round
            for a in state.attendance.responsive(present)
            if not self._is_stuck(state, a)
        )

    # -- the server: a study that continues an earlier one's stage 1 ---------------------------

    def export_messages(self, state: PNEState) -> dict[str, AnyArray]:
        if not len(state.shared.cell):
            return {}
        return {**state.shared.arrays("shared_"), "arity": np.array([self.branching(state.dim)])}

    def warm_start(self, state: PNEState, messages: Mapping[str, AnyArray]) -> PNEState:
        """Return a state with the survivors of an earlier study's stage 1; it continues below them."""
        found = {name: np.asarray(messages.get(name, np.empty(0))) for name in state.shared.arrays("shared_")}
        shared, arity = Survivors.read(found, "shared_"), self.branching(state.dim)
        got, last = messages.get("arity", np.zeros(1)).tolist(), partition.max_depth(state.dim, arity)
        if got != [arity]:
            raise ConfigError(
                f"arity: expected survivors of cells with {arity} children, got {got}; set arity as in the "
                "earlier study"
            )
        shapes = {array.shape for array in found.values()}
        if len(shapes) != 1 or not shared.cell.size or not shared.are_sound(arity, last):
            raise ConfigError(
                f"warm_start: expected survivors of stage 1 with finite means, down to depth {last}; got "
                f"others, in arrays of shapes {sorted(shapes)}"
            )
        if self.transition() < 0:
            raise ConfigError(
                f"warm_start: expected an algorithm with a first stage, got {self.name} without one"
            )
        depth, index = partition.place(shared.cell, arity)
        return self._deeper(replace(state, shared=shared, depth=int(depth[-1])), index[depth == depth[-1]])

    # -- an agent ------------------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Store the survivors in the task; pull cells of one depth after another until its trials end."""
        content, space, trial = CellTask.of(task), agent_state.space, agent_state.next_trial
        search, arity = CellSearch.read(agent_state), self.branching(space.dimension)
        shared = search.shared.updated(Survivors.read(task.arrays, "shared_"))
        search = replace(search, num_agents=content.agents, shared=shared)
        while (left := task.end - trial) > 0:
            if content.cells is not None:  # stage 1 [Li2024, Alg. 2, lines 5-7]
                depth, index = content.depth, np.asarray(content.cells, dtype=np.int64)
                own = search.pulls.of(partition.number(depth, index, arity))
                missing = np.maximum(0, np.asarray(content.pulls) - own.count)
            else:
                search, index, missing = self.alone(search, space.dimension)
                depth = search.depth
            taken = first_that_fit(missing, left)
            index, taken = index[taken > 0], taken[taken > 0]
            if len(index) == 0:
                break
            centres = partition.centre(depth, index, space.dimension, arity)
            outcome = evaluate(Trials(space.snap(centres), pulls=taken))
            own = search.pulls.of(partition.number(depth, index, arity))
            own = with_outcome(own, np.arange(len(index)), outcome)
            search = replace(search, pulls=search.pulls.updated(own))
            trial = outcome.next_trial
        return search.write(agent_state).passed_to(trial)

    def alone(self, search: CellSearch, dim: int) -> tuple[CellSearch, IntArray, IntArray]:
        """Return the search at its next depth with missing pulls, these cells, and the pulls [Alg. 3].

        A cell whose pulls fail too often keeps the successes that it has; without any it is dropped.
        """
        constants, arity = self.constants(search.num_agents), self.branching(dim)
        depth, active = search.depth, search.active
        while True:
            survivors, cells = search.shared.at(depth, arity), partition.number(depth, active, arity)
            protected = np.isin(cells, survivors.cell)
            own = search.pulls.of(cells[~protected])  # of K_m^h \ K^h
            pulls = constants.pulls(depth)
            missing = np.maximum(0, pulls - own.count)  # line 4: T_m,h,i < tau_h
            missing[own.failed >= max(PATIENCE * pulls, LEAST_FAILURES)] = 0
            if np.any(missing) or depth >= partition.max_depth(dim, arity):
                return replace(search, depth=depth, active=active), active[~protected], missing
            mean, radius = np.empty(len(active)), np.empty(len(active))
            fails = own.count == 0
            mean[~protected] = own.means(-np.inf)  # line 7
            radius[~protected] = np.where(fails, 0.0, constants.radius(own.count))
            place = np.searchsorted(survivors.cell, cells[protected])  # Alg. 2, line 11
            mean[protected], radius[protected] = survivors.mean[place], survivors.radius[place]
            out = elimination.eliminated(mean, radius, constants.variation(depth), protected)  # lines 8-9
            active, depth = partition.children(active[~out], arity), depth + 1  # lines 10-11

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        content, made = CellTask.of(task), self.evaluations(agent_state)
        if content.cells is None or (self.secure_sums and not content.sum):
            return Means(evaluations=made)
        arity = self.branching(agent_state.space.dimension)
        cells = partition.number(content.depth, content.cells, arity)
        pulls = CellPulls.read(agent_state.arrays, "cells.").of(cells)
        counts = pulls.count.astype(np.float64)
        found = Means(evaluations=made, means=pulls.means(), counts=counts)  # Alg. 2, lines 8-9
        if self.secure_sums:
            present = (counts > 0).astype(np.float64)
            found = replace(found, present=present, inverse=present / np.maximum(counts, 1))
        return found

    @once_per_state
    def best_pulled(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return centre `(D,)` and mean of the cell with the best lower bound; None before a success.

        For cells that survived stage 1 the server's statistics are used.
        """
        search = CellSearch.read(agent_state)
        pulls = search.pulls.rows(search.pulls.count > 0)
        if len(pulls.count) == 0:
            return None
        mean, radius = pulls.means(), self.constants(search.num_agents).radius(pulls.count)
        rows = np.isin(pulls.cell, search.shared.cell)
        survivors = search.shared.of(pulls.cell[rows])
        mean[rows], radius[rows] = survivors.mean, survivors.radius
        best, dim = elimination.recommend(mean, radius), agent_state.space.dimension
        arity = self.branching(dim)
        (depth,), index = partition.place(pulls.cell[[best]], arity)
        centre: Array = partition.centre(int(depth), index, dim, arity)[0]
        return centre, float(mean[best])


@dataclass(frozen=True, kw_only=True)
class PFPNE(PhasedPNE):
    """Personalised federated X-armed bandit; `PhasedPNE` describes the other options.

    Parameters
    ----------
    gap : `Delta`, largest expected difference at the optima between the mean of all objectives and an agent's
        own objective
    h0 : transition depth, the last one of stage 1: "literal": the deepest `h` with `nu rho^h >= Delta`;
        "ceil": the first `h` with `nu rho^h <= Delta`
    variant : "literal": the paper's algorithm; "racing": ours, which chooses cells by upper confidence bound
        and needs no constants (`RacingPNE`); "gp": ours for budgets up to some hundreds, a Gaussian process
        whose mean function the agents learn together, without cells (`GPPNE`)
    """

    name: ClassVar[str] = "pf-pne"

    gap: float = bounded(0.01, 0)
    h0: str = choice("literal", ("literal", "ceil"))
    variant: str = choice("literal", ("literal", "racing", "gp"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant != "literal":
            raise ConfigError(
                f"variant: expected 'literal' for the class PFPNE, got {self.variant!r}; use RacingPNE or "
                "GPPNE, or make_algorithm('pf-pne', {'variant': 'racing'})"
            )

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Algorithm[Any]:
        """Build the variant that the options name."""
        variants = [kind for kind in (RacingPNE, GPPNE) if options.get("variant") == kind.variant]
        make = variants[0].from_options if variants else super().from_options
        made: Algorithm[Any] = make(options)
        return made

    def transition(self) -> int:
        return elimination.transition_depth(self.nu, self.rho, self.gap, self.h0)


@dataclass(frozen=True, kw_only=True)
class FedPNE(PhasedPNE):
    """Phased elimination of the mean objective: stage 1 of `PFPNE` at every depth."""

    name: ClassVar[str] = "fed-pne"

    def transition(self) -> int:
        return elimination.NEVER


@dataclass(frozen=True, kw_only=True)
class LocalPNE(PhasedPNE):
    """Phased elimination by every agent alone: stage 2 of `PFPNE` without stage 1, no communication."""

    name: ClassVar[str] = "local-pne"

    def transition(self) -> int:
        return -1
