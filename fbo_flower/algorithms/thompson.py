"""Thompson sampling on the agent's own Gaussian process: the strong local baseline, no communication.

In each iteration the agent draws `f_t ~ GP(mu, beta^2 sigma^2)` [Dai2020, Alg. 1, line 4] by pathwise
conditioning. It evaluates the maximiser of `f_t` among points that are at least `min_distance` away from all
earlier ones, because evaluating a noise-free objective twice at one point gives no information.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from fbo_flower.algorithms.options import bounded, choice, flag, integer
from fbo_flower.algorithms.protocol import Algorithm, Independent, Progress, TrialsPerRound, uniform_point
from fbo_flower.algorithms.records import AgentState, Array, Task, Trials, floats
from fbo_flower.algorithms.requests import DrawPath, Fit, Rng, compute
from fbo_flower.algorithms.run_task import as_measured
from fbo_flower.algorithms.search import maximise
from fbo_flower.numerics.optim.functions import Differentiable, SamplePath
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS, transform

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class LocalSurrogate(TrialsPerRound, Algorithm[State]):
    """An agent that models its own observations with a Gaussian process and draws functions from it.

    Parameters
    ----------
    kernel : "rbf" or "matern52"
    min_distance : smallest distance to an earlier point, in the unit cube of features; 0 allows repeats.
        None: 0.025, or 0.001 with a single parameter, where points 0.025 apart would soon fill the interval
    y_transform : how values are transformed before modelling: "standardise"; "winsorise": the same with low
        outliers raised, for objectives that can diverge; "rank"; "clip"
    integer_moves : whether a maximisation also moves Int and Ordinal parameters from its best candidate;
        otherwise they keep the candidate's values
    deviation_scale : `beta_t`, factor of the posterior's standard deviation in Thompson sampling; constant,
        the paper uses 1
    num_path_features : random features that approximate the prior in a posterior draw
    num_candidates : Sobol points from which the maximisation of a draw starts
    """

    kernel: str = choice("rbf", gp.KERNELS)
    min_distance: float | None = bounded(None, 0, 1)
    y_transform: str = choice("standardise", Y_TRANSFORMS)
    deviation_scale: float = bounded(1.0, 0, 100)
    num_path_features: int = integer(256, 1, 2**14)
    num_candidates: int = integer(512, 2, 2**16)
    integer_moves: bool = flag(False)

    def learn(self, task: Task, agent_state: AgentState, outcome: Trials, rng: Rng) -> AgentState:
        """Append the outcome to the history; after the initial design refit the hyperparameters if due."""
        agent_state = agent_state.learn(outcome)
        count = agent_state.history.num_succeeded
        in_design = agent_state.next_trial < min(task.end, self.num_initial)
        if in_design or count < 2:
            return agent_state
        fitted = int(agent_state.arrays["fitted_at"][0]) if "fitted_at" in agent_state.arrays else 0
        # refit after every observation up to 10, then after every fifth more
        if fitted and count < fitted + max(1, fitted // 5):
            return agent_state
        hyperparameters = self._fit(agent_state)
        return agent_state.write(
            hyperparameters=hyperparameters.to_array(), fitted_at=np.array([count], dtype=np.int64)
        )

    def observations(self, agent_state: AgentState) -> tuple[Array, Array]:
        """Return features `(n, F)` and transformed values `(n,)` of the agent's history."""
        points, values = agent_state.history.observed()
        return agent_state.space.features(points), transform(values, self.y_transform)

    def _last_fit(self, agent_state: AgentState) -> gp.Hyperparameters | None:
        stored = agent_state.arrays.get("hyperparameters")
        return None if stored is None else gp.Hyperparameters.from_array(self.kernel, floats(stored))

    def _fitted(self, agent_state: AgentState) -> gp.Hyperparameters:
        """Return the hyperparameters of the last fit; fit now if there was none (a history from before)."""
        return self._last_fit(agent_state) or self._fit(agent_state)

    def _fit(self, agent_state: AgentState) -> gp.Hyperparameters:
        return compute(Fit(*self.observations(agent_state), self.kernel, self._last_fit(agent_state)))

    def expected_values(self, task: Task, agent_state: AgentState, points: Array) -> Array:
        """Return the posterior mean of the agent's own model at points, see `run_task`."""
        if not agent_state.history.num_succeeded:
            return np.full(len(points), np.nan)
        x, y = self.observations(agent_state)
        posterior = gp.posterior(x, y, self._fitted(agent_state))
        means, _ = posterior.predict(agent_state.space.features(points))
        return as_measured(means, y, agent_state.history.observed()[1])

    def thompson_point(self, agent_state: AgentState, rng: np.random.Generator) -> Trials:
        """Return the maximiser of one posterior draw [Dai2020, Alg. 1, line 4].

        Before the first success return a uniform point.
        """
        x, y = self.observations(agent_state)
        if len(y) == 0:
            return uniform_point(agent_state, rng)
        path = self.draw_path(x, y, self._fitted(agent_state), rng)  # f_t
        return self.maximise(path, agent_state, rng)  # x_t = argmax f_t

    def draw_path(
        self, x: Array, y: Array, hyperparameters: gp.Hyperparameters, rng: np.random.Generator
    ) -> SamplePath:
        """Return a draw of `f_t ~ GP(mu, beta_t^2 sigma^2)` [Dai2020, Alg. 1, line 4]."""
        features, scale = self.num_path_features, self.deviation_scale
        return compute(DrawPath(x, y, hyperparameters, features, scale, rng))

    def distance(self, agent_state: AgentState) -> float:
        """Return the smallest distance between two evaluated points."""
        if self.min_distance is not None:
            return self.min_distance
        return 0.001 if agent_state.space.dimension == 1 else 0.025

    def maximise(self, function: Differentiable, agent_state: AgentState, rng: np.random.Generator) -> Trials:
        """Return the point that maximises a function of the features, away from all earlier points."""
        space, seen, distance = agent_state.space, agent_state.history.points, self.distance(agent_state)
        count, moves = self.num_candidates, self.integer_moves
        return Trials(maximise(function, space, seen, count, distance, rng, integer_moves=moves))


@dataclass(frozen=True, kw_only=True)
class ThompsonSampling(LocalSurrogate[Progress], Independent):
    """Thompson sampling by every agent alone; `LocalSurrogate` describes the options."""

    name: ClassVar[str] = "ts"

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials:
        if agent_state.next_trial < self.num_initial:
            return uniform_point(agent_state, rng())
        return self.thompson_point(agent_state, rng())
