"""An agent's step of expected improvement: model its own values, maximise `log EI`, evaluate.

The model is a Matern-5/2 process with a lengthscale per feature, at the mode of its hyperparameters'
posterior; the prior of the lengthscales grows with the square root of the number of features [Hvarfner2024].
All values are transformed and standardised first, so steps do not depend on the objective's scale or offset.
The value to improve on is the largest posterior mean at the agent's points, which noise does not exaggerate.

Values are taken as exact (`PRIORS`) unless noise explains them clearly better (`NOISY_PRIORS`), see
`gp_many.fit_with_or_without_noise`. If noise is evident, the point to use is the evaluated one with the best
posterior mean, not the one with the largest value.

`guidance` is empty here. In `fed-ei` it adds what is known from the other agents: a prior mean, and a
preference for the regions of their incumbents.

[Hvarfner2024] Hvarfner, Hellsten, Nardi: Vanilla Bayesian optimization performs great in high dimensions,
ICML 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fbo_flower.algorithms.ei.climb import searching
from fbo_flower.algorithms.ei.memo import features_of, kept_with
from fbo_flower.algorithms.ei.options import EIOptions, State
from fbo_flower.algorithms.independent import uniform_point
from fbo_flower.algorithms.records import AgentState, Array, Query, Task, floats
from fbo_flower.algorithms.requests import Condition, Fit, Steps
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.algorithms.several_at_once import believed
from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.acquisition.tilt import Tilt
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.transforms import transform

KERNEL = "matern52"
PRIORS = gp.Priors(lengthscale_stddev=0.85, noise_centre=1e-4)  # measured, docs/papers/fed_ei.md
# 1.5e-3 to .6 of the values' variance within two s.d.; the centre is between the .018 of BoTorch, which has
# LogNormal(-4, 1), and the mean .037 of Optuna's Gamma(1.1, 30). Both use one prior for all objectives.
NOISY_PRIORS = gp.Priors(lengthscale_stddev=0.85, noise_centre=3e-2, noise_stddev=1.5)
EVIDENT_NOISE = 1e-2  # noise variance from which on the largest value is not taken for the best


@dataclass(frozen=True)
class Guidance:
    """What an agent knows beside its own observations.

    Parameters
    ----------
    trend : prior mean of its transformed values, a function of features; None: 0
    tilt : added to `log EI`; None: nothing
    centres : `(k, D)`, points worth a look
    """

    centres: Array
    trend: LinearFunction | None = None
    tilt: Tilt | None = None


@dataclass(frozen=True, kw_only=True)
class LocalEI(EIOptions[State]):
    """The agent's half of `ei` and `fed-ei`; `EIOptions` describes the options."""

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        """Evaluate one point after the other; store each fit, from which the next one starts."""
        while agent_state.next_trial < task.end:
            rng = draws("propose", agent_state.next_trial)
            fitted: Array | None = None
            if self.is_random(task, agent_state):
                query = uniform_point(agent_state, rng)
            else:
                query, fitted = yield from self.step(task, agent_state, rng)
            outcome = yield query
            agent_state = agent_state.learn(outcome)
            if fitted is not None:
                agent_state = agent_state.write(hyperparameters=fitted)
        return agent_state

    def is_random(self, task: Task, agent_state: AgentState) -> bool:
        """Return whether the next point is a random one: in the initial design, and before a success."""
        return agent_state.next_trial < self.num_initial or not agent_state.history.num_succeeded

    def guidance(self, task: Task, agent_state: AgentState, x: Array, y: Array) -> Steps[Guidance]:
        """Return what the agent with these `observations` knows from others; here nothing."""
        return Guidance(np.empty((0, agent_state.space.dimension)))
        yield  # never reached: it makes this function a generator

    def observations(self, agent_state: AgentState) -> tuple[Array, Array]:
        """Return features `(n, F)` and transformed values `(n,)` of the agent's history."""
        history = agent_state.history
        kept = kept_with(history.values)
        expected = tuple(history.predicted.items())
        key = "observations", agent_state.space.digest, self.y_transform, history.points.tobytes(), expected
        if key not in kept:
            points, values = history.observed()
            x, y = agent_state.space.features(points), transform(values, self.y_transform)
            x.setflags(write=False)
            y.setflags(write=False)
            kept[key] = x, y
        found: tuple[Array, Array] = kept[key]
        return found

    def step(
        self, task: Task, agent_state: AgentState, rng: np.random.Generator
    ) -> Steps[tuple[Query, Array | None]]:
        """Return the next point and the fitted hyperparameters `theta`, None if there is nothing to fit."""
        x, y = self.observations(agent_state)
        guidance = yield from self.guidance(task, agent_state, x, y)
        if not len(y) and guidance.trend is not None and len(guidance.centres):
            # a late joiner's first point: far from all observations the trend only extrapolates
            values = guidance.trend(agent_state.space.features(guidance.centres))
            return Query(guidance.centres[int(np.argmax(values))][None, :]), None
        trend, residuals = over_trend(guidance.trend, x, y)
        hyperparameters = yield fit_of(agent_state, x, residuals)
        process = yield Condition(x, residuals, hyperparameters)
        means = process.means + (y - residuals)
        incumbent = int(np.argmax(means)) if len(x) else 0
        best = float(means[incumbent]) if len(x) else 0.0
        function = GuidedImprovement(process, best, trend, guidance.tilt)
        own = agent_state.history.observed()[0][incumbent : incumbent + 1]
        point = yield from searching(
            function,
            agent_state.space,
            agent_state.history.points,
            np.concatenate([own, guidance.centres]),
            self.num_candidates,
            self.min_distance,
            rng,
        )
        return Query(point), hyperparameters.to_array()

    def believing(self, task: Task, agent_state: AgentState, points: Array) -> Steps[Array]:
        """Return the posterior mean of the agent's model at points, see `several_at_once`."""
        if not agent_state.history.num_succeeded:
            return np.full(len(points), np.nan)
        x, y = self.observations(agent_state)
        guidance = yield from self.guidance(task, agent_state, x, y)
        trend, residuals = over_trend(guidance.trend, x, y)
        posterior = gp.posterior(x, residuals, (yield fit_of(agent_state, x, residuals)))
        z = agent_state.space.features(points)
        means = posterior.predict(z)[0] + (0.0 if trend is None else trend(z))
        return believed(means, y, agent_state.history.observed()[1])

    def best_mean(self, agent_state: AgentState, *, own: bool = True) -> tuple[Array, float] | None:
        """Return the evaluated point with the best posterior mean of the agent's own model.

        Noise must be evident in the last step's fit, and in one of all values, without the others' trend.
        """
        history, stored = agent_state.history, agent_state.arrays.get("hyperparameters")
        usable = np.isfinite(history.final_values(own=own))
        if stored is None or math.exp(floats(stored)[-1]) < EVIDENT_NOISE or not usable.any():
            return None
        x, y = self.observations(agent_state)
        request = fit_of(agent_state, x, y)
        fitted = request.compute([request])[0]
        if fitted.noise_variance < EVIDENT_NOISE:
            return None
        means = gp.posterior(x, y, fitted).mean(x)
        row = int(np.argmax(np.where(usable, means, -np.inf)))
        value = believed(means[row : row + 1], y, history.observed()[1])
        return history.points[row], float(value[0])

    def recommend(self, agent_state: AgentState) -> Array | None:
        found = self.best_mean(agent_state, own=False)
        return super().recommend(agent_state) if found is None else found[0]


def over_trend(trend: LinearFunction | None, x: Array, y: Array) -> tuple[LinearFunction | None, Array]:
    """Return a trend at the level of an agent's values, and what it leaves of them, `(n,)`.

    Values are standardised by each agent for itself, so a trend of others has another level.
    """
    if trend is None:
        return None, y
    residuals = y - at_own(trend, x)
    level = float(residuals.mean()) if len(y) else 0.0
    return replace(trend, offset=trend.offset + level), residuals - level


def at_own(trend: LinearFunction, x: Array) -> Array:
    """Return the trend at an agent's own points, whose `observations` are kept with their features."""
    return np.asarray(features_of(trend.features, x) @ trend.weights + trend.offset, dtype=np.float64)


def fit_of(agent_state: AgentState, x: Array, residuals: Array) -> Fit:
    """Return the fit of the agent's model, which starts from the last one."""
    stored = agent_state.arrays.get("hyperparameters")
    start = None if stored is None else gp.Hyperparameters.from_array(KERNEL, floats(stored))
    return Fit(x, residuals, KERNEL, start, PRIORS, NOISY_PRIORS)
