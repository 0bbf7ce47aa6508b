"""Fed1-UCB: elimination of random arms by their mean over the agents [Shi2021].

In a phase every agent pulls every active arm `ceil(10 log T)` times, in an order of its own. Then the server
drops the arms whose upper bound does not exceed the best lower bound. The last arm is pulled until the budget
is spent. The mathematics is in `numerics.bandits.ucb`, the agent's part in `fed1_agent.py`.

Messages. To agents: the seed of the arms, the active arms and the pulls wanted of each; at the end the arm
with the best merged mean. To the server: a mean and a count per active arm, and how many pulls are still to
be made.

The mean of an arm leaves out agents that did not pull it. A phase does not wait for agents that left their
last task unanswered. An agent that returns takes part in the current phase. A failed pull uses up a trial but
does not count as a pull of the arm.

[Shi2021] Shi, Shen. Federated multi-armed bandits. AAAI 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.bandits import arms
from fbo_flower.algorithms.bandits.base import Bandit, check_most, in_order
from fbo_flower.algorithms.bandits.fed1_agent import session
from fbo_flower.algorithms.options import check_number
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
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.numerics.bandits import elimination, ucb
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class Fed1State:
    """The server's state.

    Parameters
    ----------
    agents : agents of the registration
    arms_seed, num_arms : seed of the arms, and their number `K`
    active : arms that are not eliminated, ascending
    progress : every agent's next trial
    phase : number of the current phase, from 0
    means, counts : agent -> its statistics of all arms, `(K,)`
    owed : agent -> pulls that it has still to make in this phase
    attendance : which agents answer their tasks
    """

    agents: tuple[str, ...]
    arms_seed: int
    num_arms: int
    active: IntArray
    progress: Progress = field(default_factory=Progress)
    phase: int = 0
    means: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, IntArray] = field(default_factory=dict)
    owed: Mapping[str, int] = field(default_factory=dict)
    attendance: Attendance = field(default_factory=Attendance)


@dataclass(frozen=True, kw_only=True)
class Fed1UCB(Bandit[Fed1State]):
    """Elimination of random arms by their mean over the agents; `Bandit` describes the other options.

    Parameters
    ----------
    noise_stddev : `sigma` of the confidence radius `sqrt(4 sigma^2 log T / n)`
    arms_seed : seed of the arms; None: the server draws one
    max_evaluations_per_round : largest number of trials of one agent in a round
    """

    name: ClassVar[str] = "fed1-ucb"

    noise_stddev: float = 1.0
    arms_seed: int | None = None
    max_evaluations_per_round: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("noise_stddev", self.noise_stddev, 0)
        arms.check_seed(self.arms_seed)
        check_most(self.max_evaluations_per_round)

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> Fed1State:
        count = arms.num_arms(federation.space.dimension)
        seed = arms.drawn_seed(self.arms_seed, rng)
        return Fed1State(federation.agents, seed, count, np.arange(count, dtype=np.int64))

    def ask(
        self,
        state: Fed1State,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[Fed1State, dict[str, Task]]:
        if phase is Phase.FINISH:
            return state, self._announce_best_arm(state, server_round, present)
        if phase is not Phase.TRAIN:
            return state, {}
        waiting = [agent for agent in present if state.progress.of(agent) < self.budget]
        state = self._close_phase(state, waiting)
        pulls = ucb.phase_length(self.budget) if len(state.active) > 1 else self.budget
        values = {"arms.seed": state.arms_seed, "phase": state.phase, "pulls": pulls}
        tasks = {}
        for agent in waiting:
            trial = state.progress.of(agent)
            owed = state.owed.get(agent, pulls * len(state.active))
            most = min(owed, self.budget - trial, self.max_evaluations_per_round)
            if most > 0:  # otherwise the agent waits for the others
                tasks[agent] = Task(phase, server_round, trial, most, {"arms": state.active}, values)
        return replace(state, attendance=state.attendance.ask(tasks)), tasks

    def tell(self, state: Fed1State, phase: Phase, reports: Mapping[str, Report]) -> Fed1State:
        means, counts, owed = dict(state.means), dict(state.counts), dict(state.owed)
        for agent, report in reports.items():
            # a report on another number of arms belongs to another phase
            if "counts" in report.arrays and report.arrays["counts"].shape == state.active.shape:
                means[agent] = means.get(agent, np.zeros(state.num_arms)).copy()
                counts[agent] = counts.get(agent, np.zeros(state.num_arms, dtype=np.int64)).copy()
                means[agent][state.active] = report.arrays["means"]
                counts[agent][state.active] = report.arrays["counts"]
                owed[agent] = int(np.sum(report.arrays["owed"]))
        progress = state.progress.advance(reports)
        return replace(
            state, progress=progress, means=in_order(means), counts=in_order(counts), owed=in_order(owed),
            attendance=state.attendance.tell(reports),
        )  # fmt: skip

    def finished(self, state: Fed1State) -> bool:
        return state.attendance.is_over(state.agents, state.progress, self.budget)

    def _merged(self, state: Fed1State) -> elimination.Merged:
        """Return the statistics of the active arms over the agents that pulled them."""
        agents = list(state.counts)
        means = [state.means[agent][state.active] for agent in agents]
        return elimination.merge(means, [state.counts[agent][state.active] for agent in agents])

    def _close_phase(self, state: Fed1State, waiting: Sequence[str]) -> Fed1State:
        """Eliminate arms, once all waiting agents that answer have made their pulls [Shi2021, Alg. 1]."""
        waiting = state.attendance.responsive(waiting)
        if not state.owed or len(state.active) == 1 or any(state.owed.get(a, 1) > 0 for a in waiting):
            return state
        if not waiting:  # the budget ended within this phase, or nobody answers now
            return state
        merged = self._merged(state)
        known = merged.num_clients > 0
        active = state.active[known]
        radius = ucb.fed1_radius(merged.count[known], 1, self.budget, self.noise_stddev)
        if len(active):
            active = active[ucb.fed1_survivors(merged.mean[known], radius)]
        return replace(state, active=active if len(active) else state.active, phase=state.phase + 1, owed={})

    def _announce_best_arm(
        self, state: Fed1State, server_round: int, present: Sequence[str]
    ) -> dict[str, Task]:
        """Return tasks that tell all agents that took part which arm has the best merged mean."""
        if not state.counts:
            return {}
        merged = self._merged(state)
        if not merged.num_clients.any():
            return {}
        best = int(state.active[np.argmax(np.where(merged.num_clients > 0, merged.mean, -np.inf))])
        values = {"arms.seed": state.arms_seed, "best": best}
        members = [agent for agent in present if agent in state.counts]
        trials = {agent: state.progress.of(agent) for agent in members}
        return {a: Task(Phase.FINISH, server_round, t, 0, values=values) for a, t in trials.items()}

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        return session(task, agent_state, draws)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        values = self.metrics(agent_state)
        if "arms" not in task.arrays:
            return Payload(values=values)
        active, statistics = (
            np.asarray(task.arrays["arms"], dtype=np.int64),
            arms.ArmStatistics.read(agent_state),
        )
        done = np.asarray(agent_state.arrays["phase.done"], dtype=np.int64)[active]
        owed = np.maximum(0, int(task.values["pulls"]) - done).sum(keepdims=True)
        return Payload(
            {"means": statistics.means()[active], "counts": statistics.count[active], "owed": owed}, values
        )

    def recommend(self, agent_state: AgentState) -> Array | None:
        best = self._best(agent_state)
        if best is None:
            return None
        seed = int(np.asarray(agent_state.arrays["seed"])[0])
        point: Array = arms.points(seed, agent_state.space.dimension)[best]
        return point

    def incumbent(self, agent_state: AgentState) -> float:
        best = self._best(agent_state)
        return float("nan") if best is None else float(arms.ArmStatistics.read(agent_state).means()[best])

    def _best(self, agent_state: AgentState) -> int | None:
        """Return the arm that the server announced, if the agent pulled it; else its arm of best mean."""
        statistics = arms.ArmStatistics.read(agent_state)
        named = int(np.asarray(agent_state.arrays.get("best", np.array([-1])))[0])
        return named if named >= 0 and statistics.count[named] > 0 else statistics.best()

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        count = arms.num_arms(space.dimension)
        values = dict.fromkeys(("arms.seed", "phase", "pulls", "best"), int)
        return Schema({"arms": ArraySpec((None,), "int64", 0, count - 1, count)}, values)

    def report_schema(self, space: SearchSpace) -> Schema:
        count = arms.num_arms(space.dimension)
        counts, owed = ArraySpec((None,), "int64", 0, 1e9, count), ArraySpec((1,), "int64", 0, 1e15)
        means = ArraySpec((None,), max_length=count)
        return Schema({"means": means, "counts": counts, "owed": owed}, self.metric_types())
