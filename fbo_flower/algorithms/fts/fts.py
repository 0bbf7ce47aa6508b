"""FTS, federated Thompson sampling with random Fourier features [Dai2020].

The server draws random features once and shares them. Every agent sends one message: a draw `omega` of the
weights of its surrogate in these features (Eqs. 2-3), `M` numbers. Points and values stay on the agent. In
iteration `t` a target (an agent that tunes) maximises its own surrogate with probability `p_t`, and another
agent's message with probability `1 - p_t` (Alg. 1). The server tosses the coin and draws the other agent
(`advice.py`), so a task carries at most one message. `docs/papers/fts.md` maps equations to functions and
lists what we added to the paper.

[Dai2020] Dai, Low, Jaillet: Federated Bayesian Optimization via Thompson Sampling, NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.fts import mixture
from fbo_flower.algorithms.fts.advice import AdviceSelector
from fbo_flower.algorithms.fts.messages import check_targets, is_due, is_target, shared_lengthscales
from fbo_flower.algorithms.fts.options import FEDERATED, FTSOptions, FTSState
from fbo_flower.algorithms.fts.steps import advice_of, pack, step_specs
from fbo_flower.algorithms.independent import uniform_point
from fbo_flower.algorithms.progress import once_per_trial
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
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
from fbo_flower.algorithms.requests import DrawWeights, Rng, Steps
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.summand import Summand
from fbo_flower.numerics.optim.functions import Differentiable, LinearFunction
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp, rff
from fbo_flower.space.space import SearchSpace

ADVICE = frozenset({"weights", "point", "messages"})  # arrays of a task; an agent may store messages
LENGTHSCALE_GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, kw_only=True)
class FTS(FTSOptions):
    """Federated Thompson sampling; `FTSOptions` describes the options."""

    name: ClassVar[str] = "fts"
    repeats_observations: ClassVar[bool] = True  # a sum that failed is asked for again
    barrier: ClassVar[str] = ""
    needs_all_parameters: ClassVar[str] = ""

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> FTSState:
        check_targets(self, federation)
        state = FTSState(federation.space)
        if self.lengthscale == FEDERATED:
            return state
        return replace(state, features=self._draw_features(federation.space, self.lengthscale, rng))

    def ask(
        self,
        state: FTSState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[FTSState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        state = self._choose_lengthscale(state, rng)
        state = replace(state, attendance=state.attendance.enter(present, server_round))
        seed = int(rng.integers(2**63))
        selector = AdviceSelector.open(self, state, rng)
        messages_used = self.advice != "random" and self.schedule != 1.0
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        for agent in present:
            trial = state.progress.of(agent)
            tunes = is_target(self, agent)
            designs = trial < self.num_initial and self.initial_design == "advised"
            advised = tunes and (trial > 0 if not designs else selector.is_ready(agent))
            num_trials = self.trials_from(trial, advised) if tunes else 0
            arrays: dict[str, AnyArray] = {}
            values: dict[str, Scalar] = {}
            if advised:
                # a generator per agent, so that one agent's draws do not depend on the others
                own = generator(seed, "advice", agent)
                # Alg. 1, lines 2-3 and 6
                content = once_per_trial(
                    sent, agent, trial, partial(self._advise, selector, agent, trial, own)
                )
                arrays.update(content)
            # a surrogate of fewer values is little but its prior: the message would mislead the others
            begins = advised and trial + num_trials < self.num_initial
            if messages_used and not begins and is_due(self, agent, state.answered, server_round):
                values["message"] = True
                if state.features is None:
                    arrays["lengthscales"] = np.array(LENGTHSCALE_GRID)
            if state.features is not None and (
                "message" in values or {"weights", "messages"} & arrays.keys()
            ):
                arrays["frequencies"] = state.features.frequencies
                arrays["phases"] = state.features.phases
            if num_trials or values:
                tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        has_messages = frozenset(selector.has_messages)
        return replace(
            state, used=selector.used, advised=selector.advised, has_messages=has_messages, sent=sent
        ), tasks

    def _advise(
        self, selector: AdviceSelector, agent: str, trial: int, rng: np.random.Generator
    ) -> dict[str, AnyArray]:
        """Return the arrays for the steps of a task: a coin and a draw for each, or messages for all."""
        iteration = trial - self.num_initial + 1  # t of Alg. 1
        number = 1 if self.advice == "mixture" else self.trials_per_round
        advice = [selector.advise(agent, iteration + step, rng) for step in range(number)]
        return pack(advice) if number > 1 else advice[0]

    def tell(self, state: FTSState, phase: Phase, reports: Mapping[str, Report]) -> FTSState:
        messages, likelihoods = dict(state.messages), dict(state.log_likelihoods)
        for agent, report in reports.items():
            if "weights" in report.arrays:
                messages[agent] = np.asarray(report.arrays["weights"], dtype=np.float64)
            if "log_likelihoods" in report.arrays:
                likelihoods[agent] = np.asarray(report.arrays["log_likelihoods"], dtype=np.float64)
        # an agent without observations that was asked only for a message is not asked again
        had_features = state.features is not None
        answered = [
            a for a, r in reports.items() if "weights" in r.arrays or (had_features and r.num_trials == 0)
        ]
        return replace(
            state,
            progress=state.progress.advance(reports),
            messages=messages,
            log_likelihoods=likelihoods,
            answered=state.answered.union(answered),
        )

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        return super().sum_name(task, agent_state)

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        return {"lengthscales": task.arrays["lengthscales"]}

    def skip_sum(self, state: FTSState) -> FTSState:
        """Ask again after more trials; if some agents make none, take the middle of the grid instead."""
        if self.targets == "all":
            return state
        middle = np.arange(len(LENGTHSCALE_GRID)) == len(LENGTHSCALE_GRID) // 2
        return replace(state, log_likelihoods={"": middle.astype(np.float64)})

    def aggregate_sum(self, state: FTSState, agents: Sequence[str], sums: Mapping[str, Array]) -> FTSState:
        return replace(state, log_likelihoods={"": sums["log_likelihoods"]})

    def export_messages(self, state: FTSState) -> dict[str, AnyArray]:
        if state.features is None or not state.messages:
            return {}
        agents = sorted(state.messages, key=natural_key)
        return {
            "frequencies": state.features.frequencies,
            "phases": state.features.phases,
            "weights": np.array([state.messages[agent] for agent in agents]),
        }

    def warm_start(self, state: FTSState, messages: Mapping[str, AnyArray]) -> FTSState:
        """Return a state with an earlier study's features, and its agents as absent senders of messages."""
        features, weights = rff.kept_features(messages, self.num_features, state.space.num_features)
        earlier = {f"earlier.{i}": row for i, row in enumerate(weights)}
        return replace(state, features=features, messages=earlier)

    def _draw_features(
        self, space: SearchSpace, lengthscale: float | str | tuple[float, ...], rng: np.random.Generator
    ) -> rff.RandomFeatures:
        lengthscales = shared_lengthscales(lengthscale, space)
        return rff.draw_features(self.num_features, lengthscales, space.num_features, rng)

    def _choose_lengthscale(self, state: FTSState, rng: np.random.Generator) -> FTSState:
        """Draw the features as soon as agents have reported log likelihoods of the lengthscale grid.

        The lengthscale with the largest sum over agents is chosen.
        """
        if state.features is not None or not state.log_likelihoods:
            return state
        total = np.sum(
            [state.log_likelihoods[a] for a in sorted(state.log_likelihoods, key=natural_key)], axis=0
        )
        best = LENGTHSCALE_GRID[int(np.argmax(total))]
        return replace(state, features=self._draw_features(state.space, best, rng))

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Steps[Query]:
        trial, draws = agent_state.next_trial, rng()
        advice = advice_of(task, trial, self.trials_per_round)
        if trial < self.num_initial and not ADVICE & {*advice, *agent_state.arrays}:
            return uniform_point(agent_state, draws)
        if "weights" in advice:  # Alg. 1, line 6: x_t = argmax phi(x)^T omega_n
            message = LinearFunction(_features(task), floats(advice["weights"]))
            return (yield from self.maximising(message, agent_state, draws))
        if "point" in advice:
            advised = self._advised_point(floats(advice["point"]), agent_state)
            return advised if advised is not None else (yield from self.thompson_steps(agent_state, draws))
        if self.advice == "mixture":
            messages = mixture.received(task, agent_state)
            if messages is not None:
                own = self._mixture(messages, agent_state, draws)
                return (yield from self.maximising(own, agent_state, draws))
        return (yield from self.thompson_steps(agent_state, draws))  # Alg. 1, line 4: x_t = argmax f_t(x)

    def _mixture(
        self, messages: mixture.Messages, agent_state: AgentState, rng: np.random.Generator
    ) -> Differentiable:
        """Return a draw of the mixture; before the first success the mean of the messages."""
        if not agent_state.history.num_succeeded:
            cube = agent_state.space.features(sobol(256, agent_state.space.dimension, rng))
            return mixture.mean_message(messages, cube)
        x, y = self.observations(agent_state)
        own = self.hyperparameters(agent_state, rng)
        cube = agent_state.space.features(sobol(256, agent_state.space.dimension, rng))
        return mixture.draw(x, y, own, messages, cube, self.draw_path, rng)

    def _advised_point(self, point: Array, agent_state: AgentState) -> Query | None:
        """Return an advised point `(D,)`, None if it is closer than `min_distance` to an evaluated one."""
        point = agent_state.space.snap(point[None, :])
        seen = agent_state.space.features(agent_state.history.points)
        distance = np.linalg.norm(seen - agent_state.space.features(point), axis=1)
        return Query(point) if len(seen) == 0 or distance.min() >= self.distance(agent_state) else None

    def learn(self, task: Task, agent_state: AgentState, outcome: Outcome, rng: Rng) -> Steps[AgentState]:
        agent_state = yield from super().learn(task, agent_state, outcome, rng)  # Alg. 1, line 8
        if self.advice == "mixture" and "messages" in task.arrays:
            agent_state = agent_state.write(
                **{name: task.arrays[name] for name in ("frequencies", "phases", "messages")}
            )
        return agent_state

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Steps[Payload]:
        if not task.values.get("message") or not agent_state.history.num_succeeded:
            return Payload()
        x, y = self.observations(agent_state)
        if "lengthscales" in task.arrays:
            return Payload(
                {"log_likelihoods": self._log_likelihoods(x, y, floats(task.arrays["lengthscales"]))}
            )
        omega = yield DrawWeights(_features(task), x, y, self.message_noise_variance, rng())  # Eqs. 2-3
        return Payload({"weights": omega})

    def report_kind(self, task: Task) -> str | None:
        return "lengthscales" if "lengthscales" in task.arrays else "weights"

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        if not self.secure_sums or "lengthscales" not in task.arrays:
            return {}
        return {"log_likelihoods": Summand((len(LENGTHSCALE_GRID),), 1e12)}

    def _log_likelihoods(self, x: Array, y: Array, lengthscales: Array) -> Array:
        noise = self.message_noise_variance
        shapes = [np.full(x.shape[1], scale) for scale in lengthscales]
        hyperparameters = [gp.Hyperparameters("rbf", shape, 1.0, noise) for shape in shapes]
        return np.array([gp.log_marginal_likelihood(x, y, h)[0] for h in hyperparameters])

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        m, f, d = self.num_features, space.num_features, space.dimension
        return Schema(
            arrays={
                "frequencies": ArraySpec((m, f)),
                "phases": ArraySpec((m,), low=0.0, high=2 * np.pi),
                **step_specs(
                    {"weights": ArraySpec((m,)), "point": ArraySpec((d,), low=0.0, high=1.0)},
                    self.trials_per_round,
                ),
                "messages": ArraySpec((None, m), max_length=self.mixture_messages),
                "lengthscales": ArraySpec((len(LENGTHSCALE_GRID),), low=1e-6, high=1e6),
            },
            values={"message": bool},
        )

    def report_schema(self, space: SearchSpace) -> Schema:
        arrays = {"weights": ArraySpec((self.num_features,), low=-1e6, high=1e6)}
        if not self.secure_sums:
            arrays["log_likelihoods"] = ArraySpec((len(LENGTHSCALE_GRID),))
        return Schema(arrays)


_last_features: dict[str, rff.RandomFeatures] = {}  # of the task before, if nobody can change them


def _features(task: Task) -> rff.RandomFeatures:
    """Return the shared features in a task; tasks that are done together share the arrays."""
    frequencies, phases = task.arrays["frequencies"], task.arrays["phases"]
    last = _last_features.get("")
    if last is not None and last.frequencies is frequencies and last.phases is phases:
        return last
    features = rff.RandomFeatures(floats(frequencies), floats(phases))
    if not features.frequencies.flags.writeable and not features.phases.flags.writeable:
        _last_features[""] = features
    return features
