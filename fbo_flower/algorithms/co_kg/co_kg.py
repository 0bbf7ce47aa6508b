"""Co-KG: agents share posteriors of one black box, the server chooses the next points jointly [Zhan2025].

Round 1 is the warm-up: every agent evaluates some points of its own, and reports the moments of its values
and its hyperparameters. The server averages them and picks pivots, the points at which agents report their
posteriors; every later task carries this shared prior. In round 2 the server has no posteriors yet, so every
agent chooses its point by its own knowledge gradient. From then on the server builds a central model from the
reported posteriors and chooses one point per agent (Alg. 1). An agent whose posterior the server does not
have, for instance one that joined late, chooses its own point. `docs/papers/co_kg.md` maps equations to
functions.

[Zhan2025] Zhan, Zhang, Righter, Zheng, Anderson: Collaborative Bayesian optimization via Wasserstein
barycenters, 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.capabilities import ServerResults, Summand, observations_name
from fbo_flower.algorithms.co_kg import agent as agent_half
from fbo_flower.algorithms.co_kg import central as centre
from fbo_flower.algorithms.co_kg import prior
from fbo_flower.algorithms.co_kg import results as server_results
from fbo_flower.algorithms.co_kg.acquisition import joint_design
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.prior import LARGEST
from fbo_flower.algorithms.co_kg.state import (
    CoKGState,
    Recommendation,
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
    natural_key,
)
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.session import Stepwise
from fbo_flower.errors import WireError
from fbo_flower.numerics.optim.point_sets import largest_size
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True, kw_only=True)
class CoKG(Stepwise, CoKGOptions[CoKGState]):
    """Collaborative knowledge gradient on a Wasserstein barycenter; `CoKGOptions` describes the options."""

    name: ClassVar[str] = "co-kg"

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
        state, design = self._design(state, server_round, present, rng)  # Alg. 1, lines 4-6
        state = self._settle(state, server_round)  # line 2: after the warm-up
        tasks = {}
        for agent in present:
            trial = state.progress.of(agent)
            num_trials = self.num_initial if trial == 0 else 1
            arrays: dict[str, AnyArray] = {}
            if state.setting is not None:
                arrays.update(state.setting.to_arrays())
            if trial > 0 and agent in design:
                arrays["point"] = design[agent]  # line 7
            values: dict[str, Scalar] = {"fit": True} if state.fitting or state.setting is None else {}
            tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        return replace(state, round=server_round), tasks

    def tell(self, state: CoKGState, phase: Phase, reports: Mapping[str, Report]) -> CoKGState:
        if phase is Phase.FINISH:
            return self._tell_recommendations(state, reports)
        warm_ups, posteriors, histories = dict(state.warm_ups), dict(state.posteriors), dict(state.histories)
        finished = dict(state.finished)
        for agent, report in reports.items():
            if "moments" in report.arrays:
                theta = floats(report.arrays.get("theta", np.empty(0)))
                warm_ups[agent] = WarmUp(floats(report.arrays["moments"]), theta)
            if "points" in report.arrays:
                histories[agent] = _extended(histories.get(agent), report)
            if "best" in report.arrays and state.setting is not None:
                finished[agent] = self._recommended(state, report)
            posterior = self._read_posterior(state, report)
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
        return self._recommend(self._compare(state)) if reports else state

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        return observations_name(task, agent_state)

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
            setting = prior.settle(self, state.space, state.warm_ups, state.setting)
            state = replace(state, setting=setting, fitting=False, start=None)
        return replace(state, fitting=self.fits_again(server_round - state.settled))

    def _read_posterior(self, state: CoKGState, report: Report) -> WhitenedPosterior | None:
        """Return the posterior in a report [Zhan2025, Alg. 1, lines 4 and 8]; None if it has none."""
        if state.setting is None:
            return None
        return prior.read_posterior(report, state.setting, state.space, state.round)

    # -- central model and design --------------------------------------------------------------

    def _design(
        self, state: CoKGState, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> tuple[CoKGState, dict[str, Array]]:
        """Choose a point for every agent whose posterior is known [Zhan2025, Alg. 1, lines 4-6]."""
        setting = state.setting
        if setting is None or self.framework == "no-collaboration":
            return state, {}
        known = state.known(self.stale)
        agents = [a for a in present if a in known]
        if self.framework == "data-communication":
            agents = [a for a in present if state.progress.of(a) > 0] if state.histories else []
        if not agents:
            return state, {}
        state = self._refine(state, server_round)
        frame = centre.frame(self, state.space, setting, state.refined)
        central = self._central(state, frame)  # Alg. 1, line 5
        noise = setting.hyperparameters.noise_variance
        beta = self.weight(server_round - state.settled + 1)  # beta_t of Eq. 6
        if beta > 0.0:
            own = centre.own_gains(self, frame, [known[a] for a in agents], noise, rng)
        else:
            own = np.zeros((len(agents), len(frame.points)))
        # Alg. 1, line 6: argmax of Eq. 6
        index = joint_design(self, central.mean, central.factor, own, beta, noise, rng)
        design = {agent: frame.points[i] for agent, i in zip(agents, index, strict=True)}
        return replace(state, start=central.inner), design

    def _central(self, state: CoKGState, frame: centre.Frame) -> centre.Central:
        """Return the central model: barycenter [Zhan2025, Eqs. 5 and 8], product, or one of all trials."""
        assert state.setting is not None
        if self.framework == "data-communication":
            agents = sorted(state.histories, key=natural_key)
            total = centre.increment_of(
                self, state.space, state.setting, [state.histories[a] for a in agents]
            )
            return centre.central_product(frame, [total])
        known = state.known(self.stale)
        posteriors = [known[agent] for agent in sorted(known, key=natural_key)]
        weights = centre.agent_weights(self, frame, posteriors)
        if self.central == "product":
            increments = [posterior.increment for posterior in posteriors if posterior.increment is not None]
            return centre.central_product(frame, centre.weighted(increments, weights))
        return centre.central_barycenter(self, frame, posteriors, weights, state.start)

    def _refine(self, state: CoKGState, server_round: int) -> CoKGState:
        """Renew the points around the best one so far, every `refine_every` rounds."""
        due = (server_round - state.settled) // self.refine_every
        if self.num_refined == 0 or due <= state.renewals or not state.recommended:
            return state
        added = self.around(state.space, state.recommended[-1].point, due - 1)
        return replace(state, refined=added, renewals=due)

    def _compare(self, state: CoKGState) -> CoKGState:
        """Test whether agents share one objective, each time the number of rounds has doubled."""
        if self.central != "product" or state.round & (state.round - 1):
            return state
        p_values = centre.agreement_of(state.known(self.stale))
        if not p_values:
            return state
        return replace(state, agreement=(*state.agreement, (state.round, p_values)))

    # -- recommendations -----------------------------------------------------------------------

    def _recommend(self, state: CoKGState) -> CoKGState:
        """Append the point that the server would return after this round [Zhan2025, Alg. 1, line 11]."""
        best: Recommendation | None = None
        known = state.known(self.stale)
        if state.setting is None:
            return state
        if self.framework == "no-collaboration":
            if state.finished:
                agent = max(sorted(state.finished, key=natural_key), key=lambda a: state.finished[a][1])
                best = Recommendation(state.round, agent, *state.finished[agent])
        elif known or state.histories:
            frame = centre.frame(self, state.space, state.setting, state.refined)
            if self.central == "product" or self.framework == "data-communication":
                best = centre.best_of_central(frame, self._central(state, frame).mean, state.round)
            else:
                posteriors = [known[agent] for agent in sorted(known, key=natural_key)]
                weights = centre.agent_weights(self, frame, posteriors)
                best = centre.best_of_agents(frame, known, state.round, weights)
        return state if best is None else replace(state, recommended=(*state.recommended, best))

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
        return replace(state, asked_to_recommend=tuple(tasks), finished={}), tasks

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

    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        return agent_half.propose(self, task, agent_state, rng)

    def learn(
        self, task: Task, agent_state: AgentState, outcome: Outcome, rng: np.random.Generator
    ) -> AgentState:
        setting = SharedPrior.read(task.arrays, self.kernel)
        agent_state = agent_state.learn(outcome)
        return agent_state if setting is None else agent_state.write(**setting.to_arrays())

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Payload:
        setting = SharedPrior.read(task.arrays, self.kernel)
        sent: dict[str, AnyArray] = {}
        if task.values.get("fit"):
            own = agent_half.warm_up(self, agent_state, rng)
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
            sent |= agent_half.posterior(self, agent_state, setting, rng)
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
        d, most = space.dimension, largest_size(self.memory_limit)
        return Schema(
            arrays={
                "hyperparameters": ArraySpec((space.num_features + 2,), low=-1e3, high=1e3),
                "units": ArraySpec((2,), low=-LARGEST, high=LARGEST),
                "pivots": ArraySpec((None, d), low=0.0, high=1.0, max_length=most),
                "point": ArraySpec((d,), low=0.0, high=1.0),
                "added": ArraySpec((None, d), low=0.0, high=1.0, max_length=max(self.num_refined, 1)),
            },
            values={"fit": bool},
        )

    def report_schema(self, space: SearchSpace) -> Schema:
        most = largest_size(self.memory_limit)
        arrays = {
            "moments": ArraySpec((3,), low=-LARGEST, high=LARGEST),
            "theta": ArraySpec((space.num_features + 2,), low=-2e3, high=2e3),
            "best": ArraySpec((1,), "int64", 0, most),
            "best_mean": ArraySpec((1,)),
        }
        if self.secure_sums:
            del arrays["moments"], arrays["theta"]
        vector = ArraySpec((None,), max_length=most)
        triangle = ArraySpec((None,), max_length=most * (most + 1) // 2)
        if self.framework == "data-communication":
            arrays["points"] = ArraySpec((None, space.dimension), low=0.0, high=1.0, max_length=2**16)
            arrays["values"] = ArraySpec((None,), low=-np.inf, high=np.inf, max_length=2**16)
        elif self.central == "product":
            arrays |= {"precision": triangle, "shift": vector}
        else:
            arrays |= {"mean": vector, "covariance": triangle}
        return Schema(arrays)

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if moments, trials or a posterior in a report are not possible values."""
        prior.check_warm_up(report)
        if "points" in report.arrays or "values" in report.arrays:
            points, values = (report.arrays.get(name, np.empty(0)) for name in ("points", "values"))
            if len(points) != len(values) or np.isinf(floats(values)).any():
                raise WireError(f"points: expected one per value, got {len(points)} and {len(values)}")
        setting = SharedPrior.read(task.arrays, self.kernel)
        if setting is not None:
            prior.check_posterior(report, setting)

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
