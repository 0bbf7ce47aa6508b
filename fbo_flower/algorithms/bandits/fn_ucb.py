"""FN-UCB: neural features and networks over random arms, averaged between agents [Dai2023].

An agent makes one pull per round and checks whether its matrix has grown enough. If the matrix of one agent
has, all agents send their sums (an exchange), and the merged sums come with the next task. With
`threshold = 0`, the published setting, there is an exchange in every round, which suits only small budgets.
The mathematics is in `numerics.bandits.ucb`, the agent's part in `fn_agent.py`.

Matrices are sent as triangles; the server computes the inverses. The last entry of `sum r g` is the sum of an
agent's rewards, so after one pull it is the value itself.

An agent that drops out stays in the sums with its last report. An exchange does not wait for agents that left
their last task unanswered. A failed pull uses up a trial; for an arm without a success it counts as 0, or as
the agent's worst mean if that is lower.

[Dai2023] Dai, Shu, Verma, Fan, Low, Jaillet. Federated neural bandits. ICLR 2023.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.bandits import arms
from fbo_flower.algorithms.bandits.base import Bandit, in_order
from fbo_flower.algorithms.bandits.fn_agent import (
    Others,
    Sums,
    best_arm,
    num_weights,
    session,
    sums_to_send,
    symmetric,
    triangle,
)
from fbo_flower.algorithms.messages import Content
from fbo_flower.algorithms.once import once_per_state
from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.progress import Attendance, Progress
from fbo_flower.algorithms.records import (
    AgentState,
    Array,
    Federation,
    Payload,
    Phase,
    Report,
    Task,
    natural_key,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.numerics.bandits import ucb


@dataclass(frozen=True)
class FNState:
    """The server's state.

    Parameters
    ----------
    agents : agents of the registration
    arms_seed, dim : seed and dimension of the arms
    progress : every agent's next trial
    grams, responses, weights : agent -> its last `sum g g^T` (a triangle), `sum r g` and network weights
    fresh : agents that sent sums since the last exchange
    asked : whether the other agents were asked for their sums
    exchanges : number of exchanges so far
    merged : mean inverse (a triangle) and mean weights of the last exchange that had them
    synced : agent -> number of the last exchange whose sums it received
    attendance : which agents answer their tasks
    """

    agents: tuple[str, ...]
    arms_seed: int
    dim: int
    progress: Progress = field(default_factory=Progress)
    grams: Mapping[str, Array] = field(default_factory=dict)
    responses: Mapping[str, Array] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)
    fresh: tuple[str, ...] = ()
    asked: bool = False
    exchanges: int = 0
    merged: Mapping[str, Array] = field(default_factory=dict)
    synced: Mapping[str, int] = field(default_factory=dict)
    attendance: Attendance = field(default_factory=Attendance)


@dataclass(frozen=True, kw_only=True)
class FNUCB(Bandit[FNState]):
    """Federated neural bandit over random arms, slow, for small budgets; `Bandit` describes other options.

    Parameters
    ----------
    width : hidden units of the network, which has one hidden layer
    regulariser : `lam`, multiple of the identity that is added to every `sum g g^T`
    nu_a, nu_b : factors of the exploration term in the linear bound, and in the network's bound
    mix_from, mix_until : numbers of pulls between which the network's bound gradually replaces the linear one
    train_steps, learning_rate : number and size of the gradient steps at an exchange
    train_until : number of pulls after which networks are no longer trained
    threshold : growth of an agent's matrix that triggers an exchange; 0: an exchange in every round
    arms_seed : seed of arms and initial weights; None: the server draws one
    """

    name: ClassVar[str] = "fn-ucb"
    task_content: ClassVar[type[Content]] = Others
    report_content: ClassVar[type[Content]] = Sums

    budget: int = 1_000
    width: int = ucb.NeuralOptions.width
    regulariser: float = ucb.NeuralOptions.regulariser
    nu_a: float = ucb.NeuralOptions.nu_a
    nu_b: float = ucb.NeuralOptions.nu_b
    mix_from: int = ucb.NeuralOptions.mix_from
    mix_until: int = ucb.NeuralOptions.mix_until
    train_steps: int = ucb.NeuralOptions.train_steps
    learning_rate: float = ucb.NeuralOptions.learning_rate
    train_until: int = ucb.NeuralOptions.train_until
    threshold: float = ucb.NeuralOptions.threshold
    arms_seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("width", self.width, 1, 200, integer=True)
        check_number("regulariser", self.regulariser, 1e-9)
        for name in ("nu_a", "nu_b", "learning_rate", "threshold"):
            check_number(name, getattr(self, name), 0)
        for name in ("mix_from", "train_steps", "train_until"):
            check_number(name, getattr(self, name), 0, 10**9, integer=True)
        check_number("mix_until", self.mix_until, self.mix_from + 1, 10**9, integer=True)
        arms.check_seed(self.arms_seed)

    def neural_options(self) -> ucb.NeuralOptions:
        """Return the constants of the bandit."""
        return ucb.NeuralOptions(
            self.width, self.regulariser, self.nu_a, self.nu_b, self.mix_from, self.mix_until,
            self.train_steps, self.learning_rate, self.train_until, self.threshold,
        )  # fmt: skip

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> FNState:
        return FNState(federation.agents, arms.drawn_seed(self.arms_seed, rng), federation.space.dimension)

    def ask(
        self,
        state: FNState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[FNState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        waiting = [agent for agent in present if state.progress.of(agent) < self.budget]
        late = [
            agent
            for agent in state.attendance.responsive(waiting)
            if agent not in state.fresh and state.progress.of(agent) > 0
        ]
        if state.fresh and late and not state.asked:
            last = max(state.progress.next_trial.values())
            tasks = {}
            for agent in late:  # an agent that was absent also has a pull to report
                task = self._task(state, agent, server_round)
                pulls = min(1, last - task.trial)
                tasks[agent] = replace(task, num_trials=pulls, values={**task.values, "send": True})
            return replace(state, asked=True, attendance=state.attendance.ask(tasks)), tasks
        if state.fresh:
            state = self._exchange(state)
        tasks = {agent: self._task(state, agent, server_round) for agent in waiting}
        return replace(state, attendance=state.attendance.ask(tasks)), tasks

    def tell(self, state: FNState, phase: Phase, reports: Mapping[str, Report]) -> FNState:
        known = {"gram": dict(state.grams), "response": dict(state.responses), "weights": dict(state.weights)}
        fresh, synced = set(state.fresh), dict(state.synced)
        for agent, report in reports.items():
            for name, array in Sums.of(report).arrays.items():
                known[name][agent] = np.asarray(array, dtype=np.float64)
            if "gram" in report.arrays and "response" in report.arrays:
                fresh.add(agent)
            # a silent agent may have answered an earlier task, without the sums of the last exchange
            if report.num_trials and not state.attendance.is_silent(agent):
                synced[agent] = state.exchanges
        parts = [in_order(known[name]) for name in ("gram", "response", "weights")]
        progress = state.progress.advance(reports)
        order = tuple(sorted(fresh, key=natural_key))
        return replace(
            state, progress=progress, grams=parts[0], responses=parts[1], weights=parts[2], fresh=order,
            synced=in_order(synced), attendance=state.attendance.tell(reports),
        )  # fmt: skip

    def finished(self, state: FNState) -> bool:
        return state.attendance.is_over(state.agents, state.progress, self.budget)

    def _task(self, state: FNState, agent: str, server_round: int) -> Task:
        """Return an agent's task of one pull, with the sums of the last exchange if it lacks them."""
        content = Others(arms_seed=state.arms_seed, exchange=state.exchanges)
        if state.synced.get(agent, 0) < state.exchanges:
            others = [other for other in state.grams if other != agent]
            size = num_weights(self.neural_options(), state.dim)
            zero_gram, zero = np.zeros(size * (size + 1) // 2), np.zeros(size)
            with np.errstate(over="ignore", invalid="ignore"):  # huge values
                gram = sum((state.grams[other] for other in others), zero_gram)
                response = sum((state.responses[other] for other in others), zero)
            inverse, weights = state.merged.get("inverse"), state.merged.get("weights")
            content = replace(content, others_gram=gram, others_response=response)
            content = replace(content, others_inverse=inverse, others_weights=weights)
        return content.task(Phase.TRAIN, server_round, state.progress.of(agent), 1)

    def _exchange(self, state: FNState) -> FNState:
        """Average the agents' inverses `V_m^-1` and network weights [Dai2023, Alg. 2]."""
        options, merged = self.neural_options(), dict(state.merged)
        size = num_weights(options, state.dim)
        if options.alpha(max(state.progress.next_trial.values())) > 0:
            own = np.array([symmetric(gram, size) for gram in state.grams.values()])
            inverse = np.linalg.inv(own + options.regulariser * np.eye(size)).mean(axis=0)
            merged["inverse"] = triangle(inverse)
            if state.weights:
                merged["weights"] = np.mean(list(state.weights.values()), axis=0)
        return replace(state, merged=merged, fresh=(), asked=False, exchanges=state.exchanges + 1)

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        return session(task, agent_state, self.neural_options())

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        sent = sums_to_send(agent_state, self.neural_options())
        return replace(sent, evaluations=self.evaluations(agent_state)).payload

    @once_per_state
    def best(self, agent_state: AgentState) -> tuple[Array, float] | None:
        return best_arm(agent_state)
