"""`flora`: every agent tunes alone, then one exchange gives one configuration for all [Zhou2021].

An agent spends its local budget with the steps of `ei`. Then it sends a regression of its values, as two sums
over its observations in random features that all agents share. The server combines the regressions to one
surface (`combined`) and sends its maximiser to all agents, which evaluate it as their last trial. A late
agent that finds the configuration decided evaluates it first, and nothing else.

One agent's sums determine its points and values, so they leave it only if its operator discloses its trials.
For `combine = "single"` and "uncertainty" the server needs only their totals, which secure sums give it
without that consent.

With features `phi (M,)` of norm 1, agent `k` with `n_k` observations sends `G_k = Phi_k^T Phi_k` and
`b_k = Phi_k^T y_k`, which suffice for ridge regressions. After [Zhou2021]:

    single        nu = (sum G_k + r I)^-1 sum b_k,    m(x) = phi(x)^T nu
    uncertainty   m(x) - a s(x),    s^2(x) = r phi(x)^T (sum G_k + r I)^-1 phi(x)
    max-min       min_k phi(x)^T nu_k,    nu_k = (G_k + r I)^-1 b_k
    average       sum_k n_k phi(x)^T nu_k / sum_k n_k

As `phi` has norm 1, `n_k` is the trace of `G_k`. The paper minimises losses; here values are maximised, so
its largest loss over the agents is the smallest value.

[Zhou2021] Zhou, Ram, Salonidis, Baracaldo, Samulowitz, Ludwig: FLoRA: single-shot hyper-parameter
optimization for federated learning, 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from fbo_flower.algorithms import check_integer, check_number
from fbo_flower.algorithms.ei.local import LocalEI
from fbo_flower.algorithms.messages import Content, Replies, real, summable
from fbo_flower.algorithms.options import check_choice, check_secure_sums
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Phase,
    ServerResults,
    Task,
    Trials,
    floats,
)
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.algorithms.search import search
from fbo_flower.algorithms.senders import drawn_features
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric, unpack_symmetric
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.optim.functions import Differentiable, LinearFunction
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space import SearchSpace
from studies.peers.exchanging import Gathered

COMBINATIONS = ("single", "uncertainty", "max-min", "average")
Sums = tuple[Array, ...]  # `G_k`, packed as `(M (M + 1) / 2,)`, and `b_k (M,)`


@dataclass(frozen=True)
class Surface:
    """A function of the features, a `Differentiable`; `at(phi)` returns its value and slope at features."""

    features: RandomFeatures
    at: Callable[[Array], tuple[float, Array]]

    def __call__(self, z: Array, /) -> Array:
        return np.array([self.at(phi)[0] for phi in self.features(z)], dtype=np.float64)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        slopes = [self.at(phi)[1] for phi in self.features(z)]
        parts = [self.features.value_and_gradient(x[None], w) for x, w in zip(z, slopes, strict=True)]
        return self(z), np.concatenate([gradient for _, gradient in parts])


def combined(
    combine: str, features: RandomFeatures, sums: Sequence[Sums], ridge: float, caution: float
) -> Differentiable:
    """Return the combined surface.

    Parameters
    ----------
    combine : one of `COMBINATIONS`
    sums : of every agent; "single" and "uncertainty" need only their total
    ridge, caution : `r`, positive; `a`
    """
    if combine in ("single", "uncertainty"):
        gram, moment = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
        weights = ridge_weights(gram, moment, ridge)
        if combine == "single":
            return LinearFunction(features, weights)
        matrix = unpack_symmetric(gram, len(moment)) + ridge * np.eye(len(moment))
        covariance = ridge * cholesky(matrix).inverse()

        def bound(phi: Array) -> tuple[float, Array]:
            towards = covariance @ phi  # d(phi^T S phi) = 2 (S phi)^T dphi
            stddev = float(np.sqrt(phi @ towards))
            return float(phi @ weights) - caution * stddev, weights - (caution / stddev) * towards

        return Surface(features, bound)
    each = np.array([ridge_weights(gram, moment, ridge) for gram, moment in sums])
    if combine == "average":
        counts = np.array([float(np.trace(unpack_symmetric(gram, len(moment)))) for gram, moment in sums])
        return LinearFunction(features, np.asarray(counts @ each / counts.sum(), dtype=np.float64))

    def lowest(phi: Array) -> tuple[float, Array]:
        values = each @ phi
        return float(values.min()), each[values.argmin()]

    return Surface(features, lowest)


def statistics(phi: Array, y: Array) -> Sums:
    """Return the sums of features `phi (n, M)` and values `y (n,)`; `n` may be 0."""
    return pack_symmetric(phi.T @ phi), phi.T @ y


def ridge_weights(gram: Array, moment: Array, ridge: float) -> Array:
    """Return `w (M,)` from sums of `statistics`; NumericalError if they are not what agents sent."""
    matrix = unpack_symmetric(gram, len(moment))
    matrix.flat[:: len(moment) + 1] += ridge
    return cholesky(matrix).solve(moment)


@dataclass(frozen=True)
class FloraState(Gathered):
    """The server's state.

    Parameters
    ----------
    features : the shared random features
    shared : the configuration for all agents `(D,)`; None: not decided yet
    judged : agents that have evaluated it
    sent : agent -> trial, number of trials and content of its last task: a lost one is sent again unchanged
    """

    features: RandomFeatures = field(kw_only=True)
    shared: Array | None = None
    judged: frozenset[str] = frozenset()
    sent: Mapping[str, tuple[int, tuple[int, Work]]] = field(default_factory=dict)


NUM_CANDIDATES = 2048  # of the server's maximisation
LARGEST = 1e9


def _packed(algorithm: Any, space: SearchSpace) -> int:
    size: int = algorithm.num_features
    return size * (size + 1) // 2


@dataclass(frozen=True, kw_only=True)
class Work(Content):
    """A task: share a surface in these features, or evaluate the configuration for all agents."""

    share: bool = False
    frequencies: Annotated[Array | None, real("num_features", "D")] = None
    phases: Annotated[Array | None, real("num_features", low=0.0, high=2 * np.pi)] = None
    design: Annotated[Array | None, real("D", low=0.0, high=1.0)] = None


_ONCE = {"repeats": False, "disclose": ("trials",)}  # an agent sends one surface in a study


@dataclass(frozen=True, kw_only=True)
class Shared(Content):
    """A report: `Phi^T Phi`, packed, and `Phi^T y`."""

    gram: Annotated[Array | None, summable(_packed, bound=LARGEST, **_ONCE)] = None
    moment: Annotated[Array | None, summable("num_features", bound=LARGEST, **_ONCE)] = None

    @classmethod
    def asks_for_sum(cls, task: Task) -> bool:
        return Work.of(task).share

    @classmethod
    def sum_name(cls, task: Task, agent_state: AgentState) -> str:
        return "surface"  # an agent sends one in a study

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        features = _features(task)
        return {"frequencies": features.frequencies, "phases": features.phases}


@dataclass(frozen=True, kw_only=True)
class FLoRA(LocalEI[FloraState]):
    """One exchange of loss surfaces; `LocalEI` describes the options of the local steps.

    Parameters
    ----------
    budget : trials of every agent; the last one is the shared configuration, the others are local
    combine : the surface that the server maximises. "single": one regression of all observations;
        "uncertainty": the same minus `caution` standard deviations; "max-min": the smallest of the agents'
        predictions; "average": their mean, weighted by the numbers of observations
    caution : standard deviations that "uncertainty" subtracts
    num_features : `M`, the number of shared random features
    lengthscale : lengthscale of these features, divided by the square root of the number of features of the
        search space
    ridge : of the regressions, for standardised values
    secure_sums : smallest number of agents in a sum; for "single" and "uncertainty". 0: the server sees each
        agent's surface, from which it can compute points and values; only agents with `disclose = "trials"`
        send theirs
    """

    name: ClassVar[str] = "flora"
    task_content: ClassVar[type[Content]] = Work
    report_content: ClassVar[type[Content]] = Shared
    budget_option: ClassVar[str] = "budget"

    budget: int = 25
    combine: str = "single"
    caution: float = 1.0
    num_features: int = 100
    lengthscale: float = 0.35
    ridge: float = 0.1
    secure_sums: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("budget", self.budget, 2, 100_000)
        check_choice("combine", self.combine, COMBINATIONS)
        check_number("caution", self.caution, 0, 1e3)
        check_integer("num_features", self.num_features, 1, 512)
        check_number("lengthscale", self.lengthscale, 1e-3, 1e3)
        check_number("ridge", self.ridge, 1e-6, 1e6)
        check_secure_sums(self.secure_sums)
        if self.secure_sums and self.combine not in ("single", "uncertainty"):
            raise ConfigError(
                f"combine: expected 'single' or 'uncertainty' with secure_sums={self.secure_sums}, got "
                f"{self.combine!r}, which needs every agent's surface; set secure_sums=0"
            )

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> FloraState:
        space = federation.space
        features = drawn_features(self.num_features, self.lengthscale * space.breadth**0.5, space, rng)
        return FloraState(space, federation.agents, features=features)

    def ask(
        self,
        state: FloraState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[FloraState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        state = self._decide(state, rng)
        local = self.budget - 1
        trials = {agent: state.progress.of(agent) for agent in present if agent not in state.judged}
        waiting = [agent for agent, trial in trials.items() if trial < local]
        asks = state.shared is None and not state.closed and not state.attendance.responsive(waiting)
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        for agent, trial in trials.items():
            if state.shared is not None or trial < local:
                if sent.get(agent, (-1,))[0] != trial:
                    many = state.shared is None and trial == 0
                    alone = min(self.num_initial, local) if many else 1
                    sent[agent] = trial, (alone, Work(design=state.shared))
                count, work = sent[agent][1]
            elif asks:
                features = state.features
                count, work = 0, Work(share=True, frequencies=features.frequencies, phases=features.phases)
            else:
                continue
            tasks[agent] = work.task(phase, server_round, trial, count)
        return replace(state, sent=sent, attendance=state.attendance.ask(tasks)), tasks

    def tell(self, state: FloraState, phase: Phase, replies: Replies) -> FloraState:
        judged = set(state.judged)
        for agent, report in replies.items():
            trial, (_, work) = state.sent.get(agent, (-1, (0, Work())))
            if report.num_trials and trial == report.trial and work.design is not None:
                judged.add(agent)
        answered = any(report.num_trials == 0 for report in replies.values())
        state = state.hear(replies, ("gram", "moment"), answered)
        return replace(state, judged=frozenset(judged))

    def _decide(self, state: FloraState, rng: np.random.Generator) -> FloraState:
        """Return the state with the shared configuration, once surfaces or their total have come."""
        if state.shared is not None or state.closed:
            return state
        sums = state.parts
        if not sums:
            # nobody consented: without secure sums the exchange has taken place and brought nothing
            return replace(state, closed=state.answered and not self.secure_sums)
        surface = combined(self.combine, state.features, sums, self.ridge, self.caution)
        nothing = np.empty((0, state.space.dimension))
        point = search(surface, state.space, nothing, nothing, NUM_CANDIDATES, 0.0, rng)
        return replace(state, shared=point[0])

    def finished(self, state: FloraState) -> bool:
        return state.closed or (bool(state.judged) and not state.waits_for(state.judged))

    def results(self, state: FloraState) -> ServerResults | None:
        """Return the shared configuration; None before it is decided."""
        if state.shared is None:
            return None
        return ServerResults(found={"shared": state.space.decode(state.shared)})

    def progress_lines(self, state: FloraState, before: FloraState) -> list[str]:
        """Return a log line when the shared configuration is decided."""
        if state.shared is None or before.shared is not None:
            return []
        return [f"one configuration for all agents: {state.space.decode(state.shared)}"]

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Evaluate the shared configuration, or step as `ei` does."""
        if Work.of(task).share:
            _features(task)  # refuse a task that cannot be answered before anything is evaluated
        if "design" in task.arrays and agent_state.next_trial == task.trial < task.end:
            outcome = evaluate(Trials(floats(task.arrays["design"])[None, :]))
            agent_state = agent_state.learn(outcome)
        return super().session(task, agent_state, draws, evaluate)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        if not Work.of(task).share or not agent_state.history.num_succeeded:
            return Shared()
        x, y = self.observations(agent_state)
        gram, moment = statistics(_features(task)(x), y)
        return Shared(gram=gram, moment=moment)


def _features(task: Task) -> RandomFeatures:
    missing = [name for name in ("frequencies", "phases") if name not in task.arrays]
    if missing:
        raise WireError(f"arrays: expected {', '.join(missing)} in a task that asks for a surface, got none")
    return RandomFeatures(floats(task.arrays["frequencies"]), floats(task.arrays["phases"]))
