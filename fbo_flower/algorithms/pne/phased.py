"""Phased elimination, the algorithm of the PF-PNE paper, and each of its two stages alone [Li2024].

Stage 1 is run by the server: all agents pull the active cells of one depth, the server averages their means
and eliminates the cells that cannot hold the optimum of the mean objective, depth by depth down to the
transition depth `H0`. Stage 2 is run by each agent alone, from the root again: the survivors of stage 1 are
protected and keep the server's statistics; the agent pulls all other cells and eliminates them by its own
statistics. A cell is dropped only when both stages have eliminated it. (To pull a cell is to evaluate the
objective at its centre.)

The mathematics is in `numerics.bandits.elimination`, the agent's part in `phased_agent.py`. `docs/errata.md`
lists the paper's misprints that the code corrects.

Messages. To agents: the cells of a depth and the pulls wanted; once for each earlier depth, its survivors
with the server's means and radii, from which agents compute their recommendation. To the server: in stage 1 a
mean and a count per cell, in stage 2 only counts of trials.

A depth of stage 1 does not wait for agents that left their last task unanswered: the others make the missing
pulls. A silent agent is asked again in every round and takes part in the depth that is open when it answers.

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024 (arXiv 2310.16323).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.bandits.base import Bandit, branching, in_order
from fbo_flower.algorithms.once import once_per_state
from fbo_flower.algorithms.pne import phased_agent
from fbo_flower.algorithms.progress import Attendance, Progress
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
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
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.algorithms.summand import Summand
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination, partition
from fbo_flower.space.space import SearchSpace

MAX_CELLS = 2**20  # active cells of one depth
MAX_INDEX = 2.0**62
PATIENCE = 2  # an agent is not waited for after this many times the pulls of a depth
# arrays of a secure sum, one entry per cell, with their bounds: see `elimination.merge_sums`
SUMS = {"present": 1.0, "means": 1e12, "inverse": 1.0, "counts": 1e9}


@dataclass(frozen=True)
class PNEState:
    """The server's state.

    Parameters
    ----------
    dim : `D`
    agents : the `M` agents of the registration
    progress : every agent's next trial
    depth, active : `h` of stage 1, and `K^h`, ascending
    wanted : pulls of each active cell that every agent has to make at this depth
    means, counts : agent -> its statistics of the active cells, over all its pulls at this depth
    shared : survivors of stage 1 with their statistics, depth after depth
    stage_two : whether stage 1 is over
    synced : agent -> how many rows of `shared` it has received
    spent : agent -> trials that it made at this depth, failed ones included
    failed : agent -> how many of these failed; only with secure sums
    merged : the secure sum of this depth, turned into statistics over all agents; None: there is none yet
    skipped : whether the secure sum of this depth failed, so that none of its cells is eliminated
    attendance : which agents answer their tasks
    """

    dim: int
    agents: tuple[str, ...]
    progress: Progress = field(default_factory=Progress)
    depth: int = 0
    active: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    wanted: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    means: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, IntArray] = field(default_factory=dict)
    shared: phased_agent.Survivors = field(default_factory=phased_agent.Survivors.nothing)
    stage_two: bool = False
    synced: Mapping[str, int] = field(default_factory=dict)
    spent: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    merged: elimination.Merged | None = None
    skipped: bool = False
    attendance: Attendance = field(default_factory=Attendance)


class PhasedPNE(Bandit[PNEState]):
    """Both stages of phased elimination; the options are in `PhasedOptions` and `PNEOptions`."""

    repeats_observations: ClassVar[bool] = False  # a depth is summed once, from the pulls made for it

    gap: float
    c: float
    c1: float
    delta: float | None
    h0: str
    aggregate: str
    trim: float
    secure_sums: int
    arity: str
    max_evaluations_per_round: int

    @property
    @abstractmethod
    def smoothness(self) -> tuple[float, float]:
        """`nu` and `rho`."""

    def transition(self) -> int:
        """Return `H0`, the last depth of stage 1; -1 if there is no stage 1."""
        return elimination.transition_depth(*self.smoothness, self.gap, self.h0)

    def constants(self, num_agents: int) -> elimination.Constants:
        """Return the constants of `tau_h` (pulls) and `b` (confidence radius)."""
        delta = 1.0 / num_agents if self.delta is None else self.delta  # 1 / M
        return elimination.Constants(self.budget, delta, *self.smoothness, self.c, self.c1)

    def check(self, space: SearchSpace) -> None:
        partition.max_depth(space.dimension, branching(self.arity, space.dimension))

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> PNEState:
        state = PNEState(federation.space.dimension, federation.agents, stage_two=self.transition() < 0)
        return self._open_depth(state)

    def ask(
        self,
        state: PNEState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[PNEState, dict[str, Task]]:
        if phase is Phase.EVALUATE:
            return state, {}
        state = self._close_depth(state, present)
        synced = {state.synced.get(agent, 0) for agent in present}
        # Alg. 1, line 13: survivors with their statistics; agents that have the same rows share the arrays
        unsent = {rows: state.shared.after(rows) for rows in synced}
        arrays = {rows: n.to_arrays() if len(n.index) else {} for rows, n in unsent.items()}
        sums_now = phase is Phase.TRAIN and self._can_complete_depth(state, present)
        tasks = {agent: self._task(state, agent, phase, server_round, arrays, sums_now) for agent in present}
        sent = {agent: task for agent, task in tasks.items() if task is not None}
        return replace(state, attendance=state.attendance.ask(sent)), sent

    def tell(self, state: PNEState, phase: Phase, reports: Mapping[str, Report]) -> PNEState:
        means, counts = dict(state.means), dict(state.counts)
        for agent, report in reports.items():
            # Alg. 1, line 6; a report on another number of cells belongs to another depth
            if "counts" in report.arrays and report.arrays["counts"].shape == state.active.shape:
                means[agent] = np.asarray(report.arrays["means"], dtype=np.float64)
                counts[agent] = np.asarray(report.arrays["counts"], dtype=np.int64)
        # a silent agent may have answered an earlier task, about another depth and without the last survivors
        punctual = state.attendance.responsive(reports)
        synced = {**state.synced, **{agent: len(state.shared.index) for agent in punctual}}
        progress, spent, failed = state.progress.advance(reports), dict(state.spent), dict(state.failed)
        for agent in punctual if not state.stage_two else ():
            spent[agent] = spent.get(agent, 0) + progress.of(agent) - state.progress.of(agent)
            if self.secure_sums:
                failed[agent] = failed.get(agent, 0) + reports[agent].num_failed
        state = replace(state, progress=progress, means=means, counts=counts, synced=in_order(synced))
        attendance = state.attendance.tell(reports)
        return replace(state, spent=in_order(spent), failed=in_order(failed), attendance=attendance)

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        return f"depth {int(task.values['depth'])}"

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        depth = np.array([task.values["depth"]], dtype=np.int64)
        return {"cells": task.arrays["cells"], "pulls": task.arrays["pulls"], "depth": depth}

    def skip_sum(self, state: PNEState) -> PNEState:
        """Divide all cells of this depth, unless nobody had evaluations left for it."""
        any_pulls = any(spent > state.failed.get(agent, 0) for agent, spent in state.spent.items())
        return replace(state, skipped=any_pulls)

    def aggregate_sum(self, state: PNEState, agents: Sequence[str], sums: Mapping[str, Array]) -> PNEState:
        found = elimination.merge_sums(*(sums[name] for name in SUMS))
        fits = found.mean.shape == state.active.shape and bool(np.any(found.count))  # some agent has pulls
        return replace(state, merged=found if fits else None)

    def finished(self, state: PNEState) -> bool:
        return state.attendance.is_over(state.agents, state.progress, self.budget)

    def _task(
        self,
        state: PNEState,
        agent: str,
        phase: Phase,
        server_round: int,
        unsent: Mapping[int, Mapping[str, AnyArray]],
        sums_now: bool,
    ) -> Task | None:
        """Return an agent's task; None if it has to wait for the others or has spent its budget.

        Parameters
        ----------
        unsent : rows of `shared` that an agent has -> the arrays of the other rows
        sums_now : whether the reports of this half-round complete the depth's secure sum
        """
        trial = state.progress.of(agent)
        left = self.budget - trial if phase is Phase.TRAIN else 0
        most = min(left, self.max_evaluations_per_round)
        arrays = dict(unsent[state.synced.get(agent, 0)])
        values = {"agents": len(state.agents), "depth": -1}
        if sums_now:  # agents without missing pulls report their statistics, too
            trials = 0 if self._is_stuck(state, agent) else min(self._missing_pulls(state, agent), most)
            arrays |= {"cells": state.active, "pulls": state.wanted}
            return Task(
                phase, server_round, trial, trials, arrays, values | {"depth": state.depth, "sum": True}
            )
        if left == 0:  # a recommendation also depends on the last survivors
            return Task(phase, server_round, trial, 0, arrays, values) if arrays else None
        if state.stage_two:
            return Task(phase, server_round, trial, most, arrays, values)
        missing = self._missing_pulls(state, agent)
        if missing == 0 or self._is_stuck(state, agent):
            return None  # waits for the others
        arrays |= {"cells": state.active, "pulls": state.wanted}
        values["depth"] = state.depth
        return Task(phase, server_round, trial, min(missing, most), arrays, values)

    def _trim(self) -> float:
        return {"mean": 0.0, "median": 0.5, "trimmed": self.trim}[self.aggregate]

    def _missing_pulls(self, state: PNEState, agent: str) -> int:
        """Return how many pulls an agent has still to make at this depth.

        With secure sums the server knows only how many trials the agent made and how many failed.
        """
        if self.secure_sums:
            done = state.spent.get(agent, 0) - state.failed.get(agent, 0)
            return max(0, int(np.sum(state.wanted)) - done)
        counts = state.counts.get(agent, np.zeros(len(state.active), dtype=np.int64))
        return int(np.sum(np.maximum(0, state.wanted - counts)))

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

    def _open_depth(self, state: PNEState) -> PNEState:
        """Ask for `ceil(tau_h / M)` pulls of each active cell [Li2024, Alg. 2, line 6]."""
        pulls = self.constants(len(state.agents)).pulls_per_client(state.depth, len(state.agents))
        wanted = np.full(len(state.active), min(pulls, self.budget), dtype=np.int64)
        state = replace(state, means={}, counts={}, spent={}, failed={}, merged=None, skipped=False)
        return replace(state, wanted=wanted)

    def _is_stuck(self, state: PNEState, agent: str) -> bool:
        """Return whether an agent made twice the trials of this depth and still has pulls to make.

        Then its objective fails in some cell, or it lies. The server does not wait for it.
        """
        spent = state.spent.get(agent, 0)
        return spent >= PATIENCE * int(np.sum(state.wanted)) and self._missing_pulls(state, agent) > 0

    def _close_depth(self, state: PNEState, present: Sequence[str]) -> PNEState:
        """Eliminate cells, once all agents that answer have made their pulls [Li2024, Alg. 1, lines 6-14]."""
        answering = state.attendance.responsive(present)
        waiting = [a for a in answering if state.progress.of(a) < self.budget]
        constants = self.constants(len(state.agents))
        if self.secure_sums:  # one sum per depth: the difference of two would be a late agent's report
            if state.skipped and not state.stage_two:
                return self._deeper(state, state.active)  # nothing is known: all cells survive
            return state if state.stage_two or state.merged is None else self._eliminate(state, state.merged)
        if state.stage_two or not state.counts:
            return state
        responsive = [a for a in waiting if not self._is_stuck(state, a)]
        if any(self._missing_pulls(state, a) for a in (responsive if waiting else state.counts)):
            return state  # if no agent is waiting, the budget ended within this depth
        agents = sorted(state.counts, key=natural_key)
        means, counts = [state.means[a] for a in agents], [state.counts[a] for a in agents]
        merged = elimination.merge(means, counts, self._trim())  # Alg. 1, lines 7-9
        missing = elimination.missing_pulls(merged.count, constants.pulls(state.depth), len(responsive))
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
        stays[known] = ~elimination.eliminated(
            merged.mean[known], radius[known], constants.variation(state.depth)
        )
        shared = state.shared.add(state.depth, state.active[stays], merged.mean[stays], radius[stays])
        if self.secure_sums:
            stays |= ~known  # the sum may lack the agents that could evaluate the cell: keep it
        return self._deeper(replace(state, shared=shared), state.active[stays])

    def _deeper(self, state: PNEState, survivors: IntArray) -> PNEState:
        """Continue with the children of the survivors of a depth [Alg. 1, line 14], or with stage 2."""
        arity = branching(self.arity, state.dim)
        if state.depth >= min(self.transition(), partition.max_depth(state.dim, arity)):
            return replace(state, stage_two=self.transition() != elimination.NEVER)
        children = partition.children(survivors, arity)
        return self._open_depth(replace(state, depth=state.depth + 1, active=children))

    def export_messages(self, state: PNEState) -> dict[str, AnyArray]:
        if not len(state.shared.index):
            return {}
        arity = np.array([branching(self.arity, state.dim)])
        return {**state.shared.to_arrays(), "arity": arity}

    def warm_start(self, state: PNEState, messages: Mapping[str, AnyArray]) -> PNEState:
        """Return a state with the survivors of an earlier study's stage 1; it continues below them."""
        found = {name: np.asarray(messages.get(name, np.empty(0))) for name in state.shared.to_arrays()}
        shapes = {array.shape for array in found.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1 or not all(len(a) for a in found.values()):
            raise ConfigError(
                f"warm_start: expected survivors of stage 1, got arrays of shapes {sorted(shapes)}"
            )
        shared = phased_agent.Survivors.from_arrays(found)
        arity = branching(self.arity, state.dim)
        last = partition.max_depth(state.dim, arity)
        if messages.get("arity", np.zeros(1)).tolist() != [arity]:
            got = messages.get("arity", np.zeros(1)).tolist()
            raise ConfigError(
                f"arity: expected survivors of cells with {arity} children, got {got}; set arity as in the "
                "earlier study"
            )
        sound = np.isfinite(shared.mean).all() and (shared.radius >= 0).all()
        if not sound or not ((shared.depth >= 0) & (shared.depth <= last)).all():
            raise ConfigError(f"warm_start: expected finite means of cells down to depth {last}")
        depth = int(shared.depth.max())
        survivors = shared.at(depth)[0]
        if (survivors < 0).any() or (survivors >= arity**depth).any():
            raise ConfigError(
                f"warm_start: expected cells of depth {depth} with indices below {arity**depth}, got others"
            )
        if self.transition() < 0:
            raise ConfigError(
                f"warm_start: expected an algorithm with a first stage, got {self.name} without one"
            )
        return self._deeper(replace(state, shared=shared, depth=depth), np.sort(survivors))

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        constants = self.constants(int(task.values["agents"]))
        arity = branching(self.arity, agent_state.space.dimension)
        return phased_agent.session(task, agent_state, constants, arity)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        values = self.metrics(agent_state)
        if "cells" not in task.arrays or (self.secure_sums and not task.values.get("sum")):
            return Payload(values=values)
        cells = np.asarray(task.arrays["cells"], dtype=np.int64)
        count, total = phased_agent.CellStatistics.read(agent_state).of(int(task.values["depth"]), cells)
        means = total / np.maximum(count, 1)  # Alg. 2, lines 8-9
        if not self.secure_sums:
            return Payload({"means": means, "counts": count}, values)
        pulled = count > 0
        inverse = np.where(pulled, 1.0 / np.maximum(count, 1), 0.0)
        parts = pulled.astype(np.float64), means, inverse, count.astype(np.float64)
        return Payload(dict(zip(SUMS, parts, strict=True)), values)

    def report_kind(self, task: Task) -> str | None:
        return f"depth {task.values['depth']!s}" if "cells" in task.arrays else None

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        if not self.secure_sums or not task.values.get("sum") or "cells" not in task.arrays:
            return {}
        shape = (len(task.arrays["cells"]),)
        return {name: Summand(shape, bound) for name, bound in SUMS.items()}

    def recommend(self, agent_state: AgentState) -> Array | None:
        best = self._best(agent_state)
        if best is None:
            return None
        dim = agent_state.space.dimension
        point: Array = partition.centre(best[0], np.array([best[1]]), dim, branching(self.arity, dim))[0]
        return point

    def incumbent(self, agent_state: AgentState) -> float:
        best = self._best(agent_state)
        return float("nan") if best is None else best[2]

    @once_per_state
    def _best(self, agent_state: AgentState) -> tuple[int, int, float] | None:
        num_agents = agent_state.arrays.get("agents")
        if num_agents is None:
            return None
        return phased_agent.recommend(agent_state, self.constants(int(np.asarray(num_agents)[0])))

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        index = ArraySpec((None,), "int64", 0, MAX_INDEX, 2 * MAX_CELLS)  # cells of all depths together
        real = ArraySpec((None,), max_length=2 * MAX_CELLS)
        pulls = ArraySpec((None,), "int64", 0, 1e9, MAX_CELLS)
        shared = {"shared.depth": index, "shared.index": index, "shared.mean": real, "shared.radius": real}
        values = {"depth": int, "agents": int, "sum": bool}
        return Schema({"cells": index, "pulls": pulls, **shared}, values)

    def report_schema(self, space: SearchSpace) -> Schema:
        if self.secure_sums:
            return Schema(values=self.metric_types())
        counts = ArraySpec((None,), "int64", 0, 1e9, MAX_CELLS)
        means = ArraySpec((None,), max_length=MAX_CELLS)
        return Schema({"means": means, "counts": counts}, self.metric_types())
