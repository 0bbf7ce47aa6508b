"""`ei`: expected improvement by every agent alone, the strongest local baseline; no communication.

An agent's step: model its own values, maximise `log EI`, evaluate.

The model is a Matern-5/2 process with a lengthscale per feature, at the mode of its hyperparameters'
posterior; the prior of the lengthscales grows with the square root of the number of features [Hvarfner2024].
All values are transformed and standardised first, so steps do not depend on the objective's scale or offset.
The value to improve on is the largest posterior mean at the agent's points, which noise does not exaggerate.

Values are taken as exact (`PRIORS`) unless noise explains them clearly better (`NOISY_PRIORS`), see
`fitting.fit`. If noise is evident, the point to use is the evaluated one with the best
posterior mean, not the one with the largest value.

`fed-ei` replaces `model` by one that knows the others' rows.

[Hvarfner2024] Hvarfner, Hellsten, Nardi: Vanilla Bayesian optimization performs great in high dimensions,
ICML 2024.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from fbo_flower.algorithms.independent import Independent, uniform_point
from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, Array, Query, Task, floats
from fbo_flower.algorithms.requests import Condition, Draws, Fit, Session, Steps
from fbo_flower.algorithms.search import searching
from fbo_flower.algorithms.several_at_once import believed
from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS, transform

KERNEL = "matern52"
PRIORS = fitting.Priors(lengthscale_stddev=0.85, noise_centre=1e-4)  # measured, docs/papers/fed_ei.md
# 1.5e-3 to .6 of the values' variance within two s.d.; the centre is between the .018 of BoTorch, which has
# LogNormal(-4, 1), and the mean .037 of Optuna's Gamma(1.1, 30). Both use one prior for all objectives.
NOISY_PRIORS = fitting.Priors(lengthscale_stddev=0.85, noise_centre=3e-2, noise_stddev=1.5)
EVIDENT_NOISE = 1e-2  # noise variance from which on the largest value is not taken for the best
_KEPT: dict[int, tuple[weakref.ref[Array], dict[Hashable, Any]]] = {}
State = TypeVar("State")


def kept_with(anchor: Array) -> dict[Hashable, Any]:
    """Return the results that are kept as long as this array object exists.

    A session and `summarise` are separate functions of the task and the agent's state. What both compute from
    the same arrays is kept with an array of the task. A result is found again only for the same array and an
    equal key, so keeping it changes no result.
    """
    name = id(anchor)
    found = _KEPT.get(name)
    if found is None or found[0]() is not anchor:
        kept = _KEPT  # the module's names are gone when the interpreter ends
        found = weakref.ref(anchor, lambda _: kept.pop(name, None)), {}
        _KEPT[name] = found
    return found[1]


@dataclass(frozen=True, kw_only=True)
class EIOptions(Algorithm[State]):
    """The options of an agent that maximises expected improvement.

    Parameters
    ----------
    num_initial : random trials of an agent's first round, evaluated as one batch
    y_transform : how values are transformed before modelling: "winsorise" (standardised, diverged low values
        raised first), "standardise", "rank" or "clip"
    min_distance : smallest distance to an earlier point, in the unit cube of features; 0 allows repeats
    num_candidates : points spread over the search space from which the maximisation starts; points around the
        incumbent are added
    """

    num_initial: int = 3
    y_transform: str = "winsorise"
    min_distance: float = 1e-3
    num_candidates: int = 256

    def __post_init__(self) -> None:
        check_number("num_initial", self.num_initial, 1, 10_000, integer=True)
        check_choice("y_transform", self.y_transform, Y_TRANSFORMS)
        check_number("min_distance", self.min_distance, 0, 1)
        check_number("num_candidates", self.num_candidates, 2, 2**16, integer=True)


@dataclass(frozen=True)
class Model:
    """An agent's model of its values.

    Parameters
    ----------
    improvement : what its next point maximises
    values : `(n,)`, its values in the model's units
    means : `(n,)`, posterior means at its points
    fitted : hyperparameters `theta (F + 2,)`
    centres : `(k, D)`, points of others that are worth a look
    """

    improvement: GuidedImprovement
    values: Array
    means: Array
    fitted: Array
    centres: Array


@dataclass(frozen=True, kw_only=True)
class LocalEI(EIOptions[State]):
    """The agent's half of `ei`; `EIOptions` describes the options."""

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

    def model(self, task: Task, agent_state: AgentState) -> Steps[Model]:
        """Return the agent's model, fitted to its observations."""
        x, y = self.observations(agent_state)
        hyperparameters = yield fit_of(agent_state, x, y)
        process = yield Condition(x, y, hyperparameters)
        improvement = GuidedImprovement(process, float(process.means.max()) if len(y) else 0.0)
        none = np.empty((0, agent_state.space.dimension))
        return Model(improvement, y, process.means, hyperparameters.to_array(), none)

    def step(
        self, task: Task, agent_state: AgentState, rng: np.random.Generator
    ) -> Steps[tuple[Query, Array | None]]:
        """Return the next point and the fitted hyperparameters `theta`, None if there is nothing to fit."""
        model = yield from self.model(task, agent_state)
        return (yield from self.climb(model, agent_state, rng)), model.fitted

    def climb(self, model: Model, agent_state: AgentState, rng: np.random.Generator) -> Steps[Query]:
        """Return the point of the largest improvement that is found."""
        best = int(np.argmax(model.means)) if len(model.means) else 0
        own = agent_state.history.observed()[0][best : best + 1]
        point = yield from searching(
            model.improvement,
            agent_state.space,
            agent_state.history.points,
            np.concatenate([own, model.centres]),
            self.num_candidates,
            self.min_distance,
            rng,
        )
        return Query(point)

    def believing(self, task: Task, agent_state: AgentState, points: Array) -> Steps[Array]:
        """Return the posterior mean of the agent's model at points, see `several_at_once`."""
        if not agent_state.history.num_succeeded:
            return np.full(len(points), np.nan)
        model = yield from self.model(task, agent_state)
        means = model.improvement.mean(agent_state.space.features(points))
        return believed(means, model.values, agent_state.history.observed()[1])

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


def fit_of(agent_state: AgentState, x: Array, y: Array, known: fitting.Known | None = None) -> Fit:
    """Return the fit of the agent's model, which starts from the last one."""
    stored = agent_state.arrays.get("hyperparameters")
    start = None if stored is None else gp.Hyperparameters.from_array(KERNEL, floats(stored))
    return Fit(x, y, KERNEL, start, PRIORS, NOISY_PRIORS, known)


@dataclass(frozen=True, kw_only=True)
class ExpectedImprovement(LocalEI[Progress], Independent):
    """Expected improvement by every agent alone; `EIOptions` describes the options."""

    name: ClassVar[str] = "ei"

    def __post_init__(self) -> None:
        super().__post_init__()
        Independent.__post_init__(self)
