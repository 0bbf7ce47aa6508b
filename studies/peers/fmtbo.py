"""`fmtbo`, federated many-task Bayesian optimisation: hyperparameters shared by rank agreement [Zhu2024].

An agent sends the hyperparameters of its Gaussian process, and how its model ranks public points. The server
averages the hyperparameters for each agent over those that rank alike. The agent's acquisition mixes two
models of its own observations, one with these global hyperparameters and one with its local ones. No
observation of another agent enters a model. Before others have sent anything, and with one agent, this is
`ei`.

Each of `N` agents ranks the same `P` points by its model's predictions. The dissimilarity of two rankings is

    d = (1 - rho) / 2   in [0, 1],      rho = 1 - 6 sum_p (r_p - s_p)^2 / (P^3 - P)

with Spearman's rank correlation `rho`; an agent weights another one by `max(0, 1 - 2 d) = max(0, rho)`, and
itself by 1. So rankings that agree no better than chance have no weight. Hyperparameters are averaged as
logarithms.

A mixture's prediction is replaced by the normal distribution with its mean and variance,

    m = sum_i w_i m_i,      v = sum_i w_i (v_i + (m_i - m)^2),

so that the variance also grows where the processes disagree.

[Zhu2024] Zhu, Wang, Jin: Federated many-task Bayesian optimization, IEEE Transactions on Evolutionary
Computation 28 (2024) 980-993.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fbo_flower.algorithms import check_integer, check_number
from fbo_flower.algorithms.ei.local import KERNEL, PRIORS
from fbo_flower.algorithms.messages import Content, real, whole
from fbo_flower.algorithms.records import AgentState, Array, IntArray, Task, Trials, floats, natural_key
from fbo_flower.algorithms.requests import Condition, Draws, Evaluation, Fit, Rng, compute
from fbo_flower.algorithms.search import search
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition.expected_improvement import (
    LEAST_STDDEV,
    log_improvement,
    log_improvement_and_gradient,
    moments,
)
from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.gp import Posterior
from fbo_flower.space import SearchSpace
from studies.peers.exchanging import Exchanging, Told, Write


def dissimilarities(ranks: IntArray, own: IntArray) -> Array:
    """Return the dissimilarity `(N,)` of rankings `(N, P)` to one ranking `(P,)`.

    Rows that are no permutation, as a faulty agent may send, have some number as a result.
    """
    count = len(own)
    squares = ((ranks - own[None, :]).astype(np.float64) ** 2).sum(axis=1)
    return np.asarray(3.0 * squares / (count**3 - count), dtype=np.float64)


def shared_hyperparameters(theta: Array, dissimilarity: Array) -> Array:
    """Return the weighted mean `(H,)` of logarithms of hyperparameters `(N, H)` for one of the agents.

    `dissimilarity` `(N,)` is to that agent; its own is 0.
    """
    weights = np.maximum(0.0, 1.0 - 2.0 * dissimilarity)
    return np.asarray((weights / weights.sum()) @ theta, dtype=np.float64)


class LogMixtureImprovement:
    """`log EI` of a mixture of posteriors of a function, with weights of the sum 1, a `Differentiable`."""

    def __init__(self, posteriors: Sequence[Posterior], weights: Sequence[float], best: float) -> None:
        self._posteriors, self._weights, self._best = posteriors, weights, best

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Return mean and variance `(m,)` of the mixture at `z (m, F)`."""
        parts = [posterior.predict(z) for posterior in self._posteriors]
        mean = sum((w * m for w, (m, _) in zip(self._weights, parts, strict=True)), np.zeros(len(z)))
        variance = np.zeros(len(z))
        for w, (m, v) in zip(self._weights, parts, strict=True):
            variance += w * (v + (m - mean) ** 2)
        return mean, variance

    def __call__(self, z: Array, /) -> Array:
        """Return `log EI` `(m,)` at `z (m, F)`."""
        mean, variance = self.predict(z)
        return log_improvement(mean, np.sqrt(np.maximum(variance, LEAST_STDDEV**2)), self._best)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)` at `z (m, F)`."""
        parts = [moments(posterior, z) for posterior in self._posteriors]
        mean, variance = np.zeros(len(z)), np.zeros(len(z))
        mean_slope, variance_slope = np.zeros_like(z), np.zeros_like(z)
        for w, (m, _, dm, _) in zip(self._weights, parts, strict=True):
            mean += w * m
            mean_slope += w * dm
        for w, (m, s, dm, ds) in zip(self._weights, parts, strict=True):
            variance += w * (s * s + (m - mean) ** 2)
            variance_slope += 2 * w * (s[:, None] * ds + (m - mean)[:, None] * (dm - mean_slope))
        stddev = np.sqrt(np.maximum(variance, LEAST_STDDEV**2))
        stddev_slope = variance_slope / (2 * stddev)[:, None]
        return log_improvement_and_gradient(mean, stddev, mean_slope, stddev_slope, self._best)


MOST_POINTS = 4096
BOUND = 20.0  # of the logarithm of a hyperparameter in a message


def _theta(algorithm: object, space: SearchSpace) -> int:
    return space.dimension + 2


@dataclass(frozen=True, kw_only=True)
class Shared(Content):
    """A task: the seed of the public points, and hyperparameters averaged for the agent."""

    seed: int = -1
    theta: Annotated[Array | None, real(_theta, low=-BOUND, high=BOUND)] = None


@dataclass(frozen=True, kw_only=True)
class Own(Content):
    """A report: the agent's hyperparameters, and how its model ranks the public points."""

    theta: Annotated[Array | None, real(_theta, low=-BOUND, high=BOUND)] = None
    ranks: Annotated[IntArray | None, whole("num_points", high=MOST_POINTS - 1)] = None


@dataclass(frozen=True, kw_only=True)
class FMTBO(Exchanging):
    """Expected improvement with shared hyperparameters; `LocalEI` describes the other options.

    Parameters
    ----------
    num_points : `P`, public points that agents rank
    global_weight : weight of the model with global hyperparameters in the acquisition
    """

    name: ClassVar[str] = "fmtbo"
    task_content: ClassVar[type[Content]] = Shared
    report_content: ClassVar[type[Content]] = Own

    num_points: int = 100
    global_weight: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("num_points", self.num_points, 2, MOST_POINTS)
        check_number("global_weight", self.global_weight, 0, 1)

    def writer(self, state: Told, trials: Mapping[str, int], rng: np.random.Generator) -> Write:
        """Return what averages hyperparameters; a task holds none if the agent or all others sent none."""
        known = sorted(state.messages, key=natural_key)  # sums of floats depend on the order
        theta = np.array([state.messages[agent][1].theta for agent in known])
        ranks = np.array([state.messages[agent][1].ranks for agent in known])

        def write(agent: str, trial: int) -> Shared:
            if agent not in state.messages or len(theta) < 2:
                return Shared(seed=state.seed)
            unlike = dissimilarities(ranks, np.asarray(state.messages[agent][1].ranks))
            return Shared(seed=state.seed, theta=shared_hyperparameters(theta, unlike))

        return write

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Evaluate as `ei` does, then fit the local hyperparameters, for the report and the next step."""
        if int(task.values.get("seed", 0)) < 0:
            raise WireError(f"seed: expected a number from 0, got {task.values['seed']!r}")
        begun = agent_state.next_trial
        agent_state = super().session(task, agent_state, draws, evaluate)
        if agent_state.next_trial == begun or not agent_state.history.num_succeeded:
            return agent_state
        return agent_state.write(hyperparameters=self._fit(agent_state).to_array())

    def step(
        self, task: Task, agent_state: AgentState, rng: np.random.Generator
    ) -> tuple[Trials, Array | None]:
        """Return the maximiser of the mixture's expected improvement; `session` keeps the fit."""
        space = agent_state.space
        x, y = self.observations(agent_state)
        stored = agent_state.arrays.get("hyperparameters")
        known = None if stored is None else gp.Hyperparameters.from_array(KERNEL, floats(stored))
        local = known or self._fit(agent_state)
        if "theta" in task.arrays and self.global_weight:
            low, high = fitting.bounds(space.dimension).T
            theta = np.clip(floats(task.arrays["theta"]), low, high)
            shared = gp.Hyperparameters.from_array(KERNEL, theta)
            posteriors = [gp.posterior(x, y, local), gp.posterior(x, y, shared)]
            weights = [1.0 - self.global_weight, self.global_weight]
            means = LogMixtureImprovement(posteriors, weights, 0.0).predict(x)[0]
            incumbent = int(np.argmax(means))
            function: Differentiable = LogMixtureImprovement(posteriors, weights, float(means[incumbent]))
        else:
            process = compute(Condition(x, y, local))
            incumbent = int(np.argmax(process.means))
            function = GuidedImprovement(process, float(process.means[incumbent]))
        centre = agent_state.history.observed()[0][incumbent : incumbent + 1]
        seen = agent_state.history.points
        point = search(function, space, seen, centre, self.num_candidates, self.min_distance, rng)
        return Trials(point), None

    def _fit(self, agent_state: AgentState) -> gp.Hyperparameters:
        x, y = self.observations(agent_state)
        stored = agent_state.arrays.get("hyperparameters")
        start = None if stored is None else gp.Hyperparameters.from_array(KERNEL, floats(stored))
        return compute(Fit(x, y, KERNEL, start, PRIORS))

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        if "hyperparameters" not in agent_state.arrays or "seed" not in task.values or not task.num_trials:
            return Own()
        space, theta = agent_state.space, floats(agent_state.arrays["hyperparameters"])
        x, y = self.observations(agent_state)
        posterior = gp.posterior(x, y, gp.Hyperparameters.from_array(KERNEL, theta))
        points = public_points(space, self.num_points, int(task.values["seed"]))
        predicted = posterior.predict(space.features(points))[0]
        return Own(theta=theta, ranks=np.argsort(np.argsort(predicted, kind="stable")))


def public_points(space: SearchSpace, num_points: int, seed: int) -> Array:
    """Return the points `(P, D)` that all agents rank."""
    return space.snap(sobol(num_points, space.dimension, generator(seed, "public points")))
