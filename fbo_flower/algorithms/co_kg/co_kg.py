"""Co-KG: agents share posteriors of one black box, the server chooses the next points jointly [Zhan2025].

Round 1 is the warm-up: every agent evaluates some points of its own, and reports the moments of its values
and how likely they are under a grid of hyperparameters. The server adds these log likelihoods, estimates a
prior, and picks pivots, the points at which agents report their posteriors; every later task carries this
shared prior. In round 2 the server has no posteriors yet, so every agent chooses its point by its own
knowledge gradient. From then on the server builds a central model from the reported posteriors and chooses
one point per agent (Alg. 1). An agent whose posterior the server does not have, for instance one that joined
late, chooses its own point. `docs/papers/co_kg.md` maps equations to functions.

[Zhan2025] Zhan, Zhang, Righter, Zheng, Anderson: Collaborative Bayesian optimization via Wasserstein
barycenters, 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.co_kg import agent as agent_half
from fbo_flower.algorithms.co_kg import design, messages, prior
from fbo_flower.algorithms.co_kg import results as server_results
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.state import (
    CoKGState,
    SharedPrior,
    WarmUp,
    WhitenedPosterior,
)
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    History,
    Outcome,
    Payload,
    Phase,
    Query,
    Report,
    Scalar,
    Task,
    floats,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.algorithms.schema import Schema
from fbo_flower.algorithms.server_results import ServerResults
from fbo_flower.algorithms.summand import Summand
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True, kw_only=True)
class CoKG(CoKGOptions[CoKGState]):
    """Collaborative knowledge gradient on a Wasserstein barycenter; `CoKGOptions` describes the options."""

    name: ClassVar[str] = "co-kg"
    repeats_observations: ClassVar[bool] = True
    barrier: ClassVar[str] = ""
    sees_tasks_under_way: ClassVar[bool] = True

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> CoKGState:
        return CoKGState(federation.space)

    def ask(
        self,
        state: CoKGState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[CoKGState, dict[str, Task]]:
        if phase is Phase.FINISH:
            return self._ask_for_recommendations(state, server_round, present)
        if phase is not Phase.TRAIN:
            return state, {}
        before = state.renewals
        state, points = design.next_points(self, state, server_round, present, rng)  # Alg. 1, lines 4-6
        if server_round != state.round:  # once per round: without a barrier a round has many calls
            state = self._settle(state, server_round)  # line 2: after the warm-up
        if state.setting is not None and state.renewals > before and self.central != "barycenter":
            setting = prior.with_pivots(self, state.space, state.setting, state.refined)
            state = replace(state, setting=setting, start=None)
        tasks = {}
        for agent in present:
            trial = state.progress.of(agent)
            num_trials = self.num_initial if trial == 0 else 1
            arrays: dict[str, AnyArray] = {}
            if state.setting is not None:
                arrays.update(state.setting.to_arrays())
            if trial > 0 and agent in points:
                arrays["point"] = points[agent]  # line 7
            values: dict[str, Scalar] = {"fit": True} if state.fitting or state.setting is None else {}
            tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        version = 0 if state.setting is None else state.setting.version
        versions = {**state.versions, **dict.fromkeys(tasks, version)}
        return replace(state, round=server_round, versions=versions), tasks

    def with_under_way(self, state: CoKGState, tasks: Mapping[str, Task]) -> CoKGState:
        points = tuple(floats(t.arrays["point"]) for _, t in sorted(tasks.items()) if "point" in t.arrays)
        return replace(state, under_way=points)

    def tell(self, state: CoKGState, phase: Phase, reports: Mapping[str, Report]) -> CoKGState:
        if phase is Phase.FINISH:
            return self._tell_recommendations(state, reports)
        warm_ups, posteriors, histories = dict(state.warm_ups), dict(state.posteriors), dict(state.histories)
        finished = dict(state.finished)
        for agent, report in reports.items():
            if "moments" in report.arrays:
                told = (report.arrays.get(name, np.empty(0)) for name in ("theta", "log_likelihoods"))
                warm_ups[agent] = WarmUp(floats(report.arrays["moments"]), *(floats(a) for a in told))
            if "points" in report.arrays:
                histories[agent] = _extended(histories.get(agent), report)
            if "best" in report.arrays and state.setting is not None:
                finished[agent] = self._recommended(state, report)
            posterior = self._read_posterior(state, agent, report)
            if posterior is not None:
                posteriors[agent] = posterior
        state = replace(
            state,
            progress=state.progress.advance(reports),
            last_answered=state.round if reports else state.last_answered,
            warm_ups=warm_ups,
            posteriors=posteriors,
            histories=histories,
            finished=finished,
        )
        return design.recommend(self, design.compare(self, state)) if reports else state

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        return super().sum_name(task, agent_state)

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        return {name: task.arrays[name] for name in ("units",) if name in task.arrays}

    def skip_sum(self, state: CoKGState) -> CoKGState:
        return state  # the next round asks again, after one more trial of every agent

    def aggregate_sum(self, state: CoKGState, agents: Sequence[str], sums: Mapping[str, Array]) -> CoKGState:
        pooled = prior.from_sums(sums)
        return state if pooled is None else replace(state, warm_ups={"": pooled})

    # -- warm-up and setting -------------------------------------------------------------------

    def _settle(self, state: CoKGState, server_round: int) -> CoKGState:
        """Set the shared prior after the warm-up, and renew it after agents have estimated it again."""
        if state.setting is None:
            if not state.warm_ups:
                return state
            setting = prior.settle(self, state.space, state.warm_ups, None)
            return replace(state, setting=setting, settled=server_round)
        if state.fitting:
            setting = prior.settle(
                self, state.space, state.warm_ups, state.setting, self._among_pivots(state)
            )
            state = replace(state, setting=setting, fitting=False, start=None)
        return replace(state, fitting=self.fits_again(server_round - state.settled))

    def _among_pivots(self, state: CoKGState) -> Array | None:
        """Return the added points if they may be pivots: where the best one is, pooling needs them."""
        return None if self.central == "barycenter" else state.refined

    def _read_posterior(self, state: CoKGState, agent: str, report: Report) -> WhitenedPosterior | None:
        """Return the posterior in a report [Zhan2025, Alg. 1, lines 4 and 8]; None if it has none.

        Without a barrier it may be under an earlier shared prior, and is not used then.
        """
        if state.setting is None or state.versions.get(agent) != state.setting.version:
            return None
        return prior.read_posterior(report, state.setting, state.space, state.round)

    # -- recommendations -----------------------------------------------------------------------

    def _ask_for_recommendations(
        self, state: CoKGState, server_round: int, present: Sequence[str]
    ) -> tuple[CoKGState, dict[str, Task]]:
        """Ask every agent once for the maximiser of its posterior mean [Zhan2025, Alg. 1, line 10]."""
        if state.setting is None or state.asked_to_recommend:
            return state, {}
        arrays = state.setting.to_arrays()
        if state.refined is not None:
            arrays["added"] = state.refined
        tasks = {
            agent: Task(Phase.FINISH, server_round, state.progress.of(agent), 0, arrays)
            for agent in present
            if state.progress.of(agent) > 0
        }
        finished: dict[str, tuple[Array, float]] = {}
        if state.under_way is not None:
            finished = design.recommend_without_asking(self, state, tasks)
        return replace(state, asked_to_recommend=tuple(tasks), finished=finished), tasks

    def _tell_recommendations(self, state: CoKGState, reports: Mapping[str, Report]) -> CoKGState:
        maximisers = {a: self._recommended(state, r) for a, r in reports.items() if "best" in r.arrays}
        return replace(state, finished={**state.finished, **maximisers})

    def _recommended(self, state: CoKGState, report: Report) -> tuple[Array, float]:
        """Return the maximiser `(D,)` of an agent's posterior mean, and the mean there, from its report."""
        points = self.points(state.space)
        if state.refined is not None:
            points = np.concatenate([points, state.refined])
        index = min(int(np.asarray(report.arrays["best"])[0]), len(points) - 1)
        return points[index], float(np.asarray(report.arrays["best_mean"])[0])

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Query | None:
        return agent_half.propose(self, task, agent_state, rng())

    def learn(self, task: Task, agent_state: AgentState, outcome: Outcome, rng: Rng) -> AgentState:
        setting = SharedPrior.read(task.arrays, self.kernel)
        agent_state = agent_state.learn(outcome)
        return agent_state if setting is None else agent_state.write(**setting.to_arrays())

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        setting = SharedPrior.read(task.arrays, self.kernel)
        sent: dict[str, AnyArray] = {}
        draws = rng()
        if task.values.get("fit"):
            own = agent_half.warm_up(self, agent_state, setting, draws)
            sent |= prior.to_sums(own) if self.secure_sums else own
        if self.framework == "data-communication" and task.phase is Phase.TRAIN:
            sent |= agent_half.disclosed_trials(task, agent_state)
        if setting is None:
            return Payload(sent)
        if task.phase is Phase.FINISH or self.framework == "no-collaboration":
            added = floats(task.arrays["added"]) if "added" in task.arrays else None
            index, _, mean = agent_half.best_of_set(self, agent_state, setting, added)
            sent |= {"best": np.array([index], dtype=np.int64), "best_mean": np.array([mean])}
        elif self.framework != "data-communication":
            sent |= agent_half.posterior(self, agent_state, setting, draws)
        return Payload(sent)

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        if not self.secure_sums or not task.values.get("fit"):
            return {}
        return prior.summands(space)

    def reports_trials(self) -> bool:
        return self.framework == "data-communication"

    def recommend(self, agent_state: AgentState) -> Array | None:
        """Return the maximiser of the posterior mean on the point set; before the warm-up the best trial."""
        setting = SharedPrior.read(agent_state.arrays, self.kernel)
        if setting is None or agent_state.history.num_succeeded == 0:
            return super().recommend(agent_state)
        return agent_half.best_of_set(self, agent_state, setting)[1]

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        return messages.task_schema(self, space)

    def report_schema(self, space: SearchSpace) -> Schema:
        return messages.report_schema(self, space)

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if moments, trials or a posterior in a report are not possible values."""
        messages.check_report(self, task, report)

    # -- what the server knows at the end --------------------------------------------------------

    def results(self, state: CoKGState) -> ServerResults | None:
        return server_results.results(self, state)

    def progress_lines(self, state: CoKGState, before: CoKGState) -> list[str]:
        """Return log lines on new tests of whether agents share one objective."""
        return server_results.progress_lines(state, before)

    def description(self, state: CoKGState) -> dict[str, object]:
        """Return the shared hyperparameters and what the server would recommend after every round."""
        return server_results.description(self, state)


def _extended(history: History | None, report: Report) -> History:
    """Return an agent's disclosed trials with those of a report appended."""
    points, values = floats(report.arrays["points"]), floats(report.arrays["values"])
    trials = np.arange(len(values), dtype=np.int64)
    if history is None:
        return History(points, values, trials)
    return history.extend(Outcome(points, values, trials + len(history)))
