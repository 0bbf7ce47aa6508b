"""The Gaussian-process variant of PF-PNE, for small budgets: a shared mean function and a residual per agent.

It has no cells. The model is `numerics.aggregation.shared_mean`, the choice of points
`numerics.bandits.gp_search`, the agent's part `gp_agent.py`. Agents evaluate a common Sobol design, then
agree on the unit of the objective, on a lengthscale and a noise level, and on how much their objectives
share. Then each makes pulls of its own until the next exchange, which comes after a quarter more pulls.

Messages. To the server: once number, mean and standard deviation of the agent's values; then at every
exchange log likelihoods on a grid, and sums over its observations that say what they tell about the shared
function. To agents: scale, setting, and the sum of what the *other* agents sent; so a lost report cannot
count twice.

An exchange does not wait for agents that left their last task unanswered. An agent that comes back gets the
sums of the others and takes part in the next exchange.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.bandits.base import Bandit, check_most
from fbo_flower.algorithms.messages import Content
from fbo_flower.algorithms.once import once_per_state
from fbo_flower.algorithms.options import check_choice
from fbo_flower.algorithms.pne.gp_agent import (
    MAX_SEED,
    SHARING,
    Setting,
    Told,
    best_point,
    model,
    report,
    session,
    unpacked,
)
from fbo_flower.algorithms.progress import Attendance, Progress
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Payload,
    Phase,
    Report,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.numerics.aggregation import shared_mean
from fbo_flower.numerics.aggregation.shared_mean import NOISES, RESIDUALS
from fbo_flower.numerics.bandits import gp_search


@dataclass(frozen=True)
class GPState:
    """The server's state.

    Parameters
    ----------
    dim, agents, design_seed : of the study
    target : pulls that every agent makes before the next exchange
    exchange : number of the exchange that is open
    reports : agent -> arrays of its report for the open exchange
    scale : mean and standard deviation of the design's values; None: not known yet
    setting : places of lengthscale and noise, for the evidence that agents send next
    chosen : places of lengthscale, noise and residual, to which `sent` belongs
    sent : agent -> its precisions and responses of the last exchange, for the chosen residual
    """

    dim: int
    agents: tuple[str, ...]
    design_seed: int
    target: int
    exchange: int = 0
    reports: Mapping[str, Mapping[str, AnyArray]] = field(default_factory=dict)
    scale: tuple[float, float] | None = None
    setting: tuple[int, int] | None = None
    chosen: tuple[int, int, int] | None = None
    sent: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    attendance: Attendance = field(default_factory=Attendance)


@dataclass(frozen=True, kw_only=True)
class GPPNE(Bandit[GPState]):
    """Gaussian-process variant of PF-PNE; `Bandit` describes the other options.

    Parameters
    ----------
    variant : "gp"
    max_evaluations_per_round : largest number of trials of one agent in a round
    """

    name: ClassVar[str] = "pf-pne"
    task_content: ClassVar[type[Content]] = Setting
    report_content: ClassVar[type[Content]] = Told

    variant: str = "gp"
    max_evaluations_per_round: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, ("gp",))
        check_most(self.max_evaluations_per_round)

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> GPState:
        dim = federation.space.dimension
        first = min(self.budget, gp_search.design_size(dim, len(federation.agents)))
        return GPState(dim, federation.agents, int(rng.integers(MAX_SEED)), first)

    def ask(
        self,
        state: GPState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[GPState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        waiting = [agent for agent in present if state.progress.of(agent) < self.budget]
        state = self._close_exchange(state, waiting)
        tasks = {agent: self._task(state, agent, server_round) for agent in waiting}
        sent = {agent: task for agent, task in tasks.items() if task is not None}
        return replace(state, attendance=state.attendance.ask(sent)), sent

    def tell(self, state: GPState, phase: Phase, reports: Mapping[str, Report]) -> GPState:
        received = dict(state.reports)
        for agent, answer in reports.items():
            if Told.of(answer).exchange == state.exchange and answer.arrays:
                received[agent] = dict(answer.arrays)
        received = {agent: received[agent] for agent in sorted(received, key=natural_key)}
        progress, attendance = state.progress.advance(reports), state.attendance.tell(reports)
        return replace(state, reports=received, progress=progress, attendance=attendance)

    def finished(self, state: GPState) -> bool:
        return state.attendance.is_over(state.agents, state.progress, self.budget)

    def _task(self, state: GPState, agent: str, server_round: int) -> Task | None:
        """Return an agent's task; None if it has to wait for the others."""
        trial = state.progress.of(agent)
        content = Setting(
            exchange=state.exchange,
            agents=len(state.agents),
            scale=None if state.scale is None else np.array(state.scale),
            setting=None if state.setting is None else np.array(state.setting, dtype=np.int64),
        )
        if state.chosen is not None:
            others = [state.sent[other] for other in state.sent if other != agent]
            size = shared_mean.num_inducing(state.dim)
            zeros = np.zeros(size * (size + 1) // 2), np.zeros(size)
            content = replace(
                content,
                chosen=np.array(state.chosen, dtype=np.int64),
                others_precision=sum((p for p, _ in others), zeros[0]),
                others_response=sum((r for _, r in others), zeros[1]),
            )
        elif agent in state.agents:
            content = replace(content, design_seed=state.design_seed, place=state.agents.index(agent))
        elif state.scale is None:
            return None  # an agent that joins later has no part in the design
        left = min(state.target, self.budget) - trial
        pulls = min(max(left, 0), self.max_evaluations_per_round)
        if state.chosen is None and content.place < 0:
            pulls = 0
        if pulls == 0 and agent in state.reports:
            return None
        return content.task(Phase.TRAIN, server_round, trial, pulls)

    def _close_exchange(self, state: GPState, waiting: Sequence[str]) -> GPState:
        """Merge the reports, once all waiting agents that answer have made their pulls and sent them."""
        responsive = [a for a in state.attendance.responsive(waiting) if a in state.agents or state.chosen]
        if not state.reports or not responsive:
            return state
        behind = any(state.progress.of(agent) < min(state.target, self.budget) for agent in responsive)
        if behind or any(agent not in state.reports for agent in responsive):
            return state
        reports = state.reports
        opened = replace(state, exchange=state.exchange + 1, reports={})
        if state.scale is None:
            return self._agree_on_scale(opened, reports)
        likelihoods = sum(floats(r["likelihoods"]) for r in reports.values())
        best = int(np.argmax(likelihoods))
        setting = best // len(NOISES), best % len(NOISES)
        full = {agent: r for agent, r in reports.items() if "misfit" in r}
        if state.setting is None or not full:
            return replace(opened, setting=setting)
        place = self._best_residual(state, full)
        size = shared_mean.num_inducing(state.dim)
        nothing = np.zeros(size * (size + 1) // 2), np.zeros(size)
        sent = {
            a: (floats(r["precision"])[place], floats(r["response"])[place]) if place < SHARING else nothing
            for a, r in full.items()
        }
        target = min(self.budget, gp_search.next_exchange(state.target))
        return replace(opened, setting=setting, chosen=(*state.setting, place), sent=sent, target=target)

    def _agree_on_scale(self, state: GPState, reports: Mapping[str, Mapping[str, AnyArray]]) -> GPState:
        """Set mean and standard deviation of all values; without any value, make the design longer."""
        moments = np.array([floats(arrays["moments"]) for arrays in reports.values()])
        n, means, stddevs = moments[moments[:, 0] > 0].T
        if len(n) == 0:
            return replace(state, target=min(self.budget, 2 * state.target))
        unit = max(float(np.ptp(means)), float(stddevs.max())) or 1.0  # squares of huge values would overflow
        mean = float(means[0] + unit * (n @ ((means - means[0]) / unit)) / n.sum())
        variance = float(n @ ((stddevs / unit) ** 2 + ((means - mean) / unit) ** 2) / n.sum())
        return replace(state, scale=(mean, unit * math.sqrt(variance) or 1.0))

    def _best_residual(self, state: GPState, reports: Mapping[str, Mapping[str, AnyArray]]) -> int:
        """Return the place of the residual variance with the largest likelihood of all data together."""
        assert state.setting is not None
        values = []
        for place, residual in enumerate(RESIDUALS):
            total = shared_mean.nothing(state.dim)
            for arrays in reports.values():
                found = shared_mean.nothing(state.dim)
                if place < SHARING:
                    found = unpacked(arrays["precision"][place], arrays["response"][place])
                total = total + replace(found, misfit=float(floats(arrays["misfit"])[place]))
            setting = np.array(state.setting, dtype=np.int64)
            values.append(shared_mean.log_likelihood(model(setting, state.dim, residual), total))
        return int(np.argmax(values))

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        return session(task, agent_state, draws)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        return replace(report(agent_state, task), evaluations=self.evaluations(agent_state)).payload

    def report_kind(self, task: Task) -> str | None:
        if "scale" not in task.arrays:
            return "moments"
        return "evidence" if "setting" in task.arrays else "likelihoods"

    @once_per_state
    def best(self, agent_state: AgentState) -> tuple[Array, float] | None:
        return best_point(agent_state)
