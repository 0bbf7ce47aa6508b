"""`ei`: expected improvement by every agent alone, the strongest local baseline; no communication.

An agent's step: model its own values, maximise `log EI`, evaluate.

The model is a Matern-5/2 process with a lengthscale per parameter, at the mode of its hyperparameters'
posterior; the prior of the lengthscales grows with the square root of their number [Hvarfner2024].
All values are transformed and standardised first, so steps do not depend on the objective's scale or offset.
The value to improve on is the largest posterior mean at the agent's points, which noise does not exaggerate.
While all values are equal, expected improvement would walk from corner to corner, where the deviation is
largest, so a step takes the `farthest` point.

Values are taken as exact (`PRIORS`) unless noise explains them clearly better (`NOISY_PRIORS`), see
`fitting.fit`. If noise is evident, the point to use is the evaluated one with the best
posterior mean, not the one with the largest value.

With limits, or several objectives, each output has a process of its own, and an agent maximises the
logarithm of the improvement times the probability that every limit holds, see `acquisition.feasible`. The
objectives then improve their hypervolume, see `acquisition.hypervolume`, also for the reference point.

`fed-ei` replaces `model` by one that knows the others' rows.

[Hvarfner2024] Hvarfner, Hellsten, Nardi: Vanilla Bayesian optimization performs great in high dimensions,
ICML 2024.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.options import bounded, choice, integer
from fbo_flower.algorithms.protocol import Algorithm, Independent, Progress, uniform_point
from fbo_flower.algorithms.records import ENDED, AgentState, Array, Best, Task, Trials, floats
from fbo_flower.algorithms.requests import Condition, Draws, Evaluation, Fit, compute
from fbo_flower.algorithms.run_task import as_measured
from fbo_flower.algorithms.search import farthest, search
from fbo_flower.numerics import finite
from fbo_flower.numerics.acquisition.feasible import (
    FeasibleImprovement,
    Goal,
    confidence,
    feasible,
    in_units,
    left_to_gain,
)
from fbo_flower.numerics.acquisition.guided import GuidedImprovement
from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS, all_equal, transform

KERNEL = "matern52"
PRIORS = fitting.Priors(lengthscale_stddev=0.85, noise_centre=1e-4)  # measured, docs/papers/fed_ei.md
# 1.5e-3 to .6 of the values' variance within two s.d.; the centre is between the .018 of BoTorch, which has
# LogNormal(-4, 1), and the mean .037 of Optuna's Gamma(1.1, 30). Both use one prior for all objectives.
NOISY_PRIORS = fitting.Priors(lengthscale_stddev=0.85, noise_centre=3e-2, noise_stddev=1.5)
EVIDENT_NOISE = 1e-2  # noise variance from which on the largest value is not taken for the best
NO_GAIN = "no gain"  # a value of `stop_when`
LEAST_TRIALS, NUM_SAMPLED = 10, 2048  # before a search may end; points at which the bound is computed
LEAST_NOISE = 0.01  # that counts for a search's end, in standard deviations of its values
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


@dataclass(frozen=True)
class Model:
    """An agent's model of its values.

    Parameters
    ----------
    improvement : what its next point maximises
    processes : one for each output; a plain value is the only output
    values : `(O, n)`, its outputs in the model's units
    means : `(n,)`, posterior means at its points; the largest is at the best of them
    fitted : hyperparameters `theta (F + 2,)`; with outputs `(O, F + 2)`
    centres : `(k, D)`, further points that are worth a look
    """

    improvement: GuidedImprovement | FeasibleImprovement
    processes: tuple[GuidedImprovement, ...]
    values: Array
    means: Array
    fitted: Array
    centres: Array

    @property
    def knows_others(self) -> bool:
        """Whether the rows of others say something about the agent's values."""
        return any(p.shared is not None and p.shared.share > 0.0 for p in self.processes)


def measured(history: Trials) -> tuple[Array, Array]:
    """Return points `(n, D)` and outputs `(n, O)` for surrogates; a plain value is the only output."""
    if history.outputs is not None:
        return history.observed_outputs()
    points, values = history.observed()
    return points, values[:, None]


@dataclass(frozen=True, kw_only=True)
class LocalEI(Algorithm[State]):
    """An agent that maximises expected improvement.

    Parameters
    ----------
    num_initial : random trials of an agent's first round, evaluated as one batch
    y_transform : how values are transformed before modelling: "winsorise" (standardised, diverged low values
        raised first), "standardise", "rank" or "clip"
    min_distance : smallest distance to an earlier point, in the unit cube of features; 0 allows repeats
    num_candidates : points spread over the search space from which the maximisation starts; points around the
        incumbent are added
    stop_when : "no gain": an agent ends its search after 10 trials or more, when what it can still gain is
        less than the noise of its model, or than a hundredth of the values' standard deviation, see
        `acquisition.feasible`. It does not with several objectives. "": all agents go on
    """

    num_initial: int = integer(3, 1, 10_000)
    y_transform: str = choice("winsorise", Y_TRANSFORMS)
    min_distance: float = bounded(1e-3, 0, 1)
    num_candidates: int = integer(256, 2, 2**16)
    stop_when: str = choice("", ("", NO_GAIN))

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Evaluate one point after the other; store each fit, from which the next one starts."""
        while agent_state.next_trial < task.end:
            rng = draws("propose", agent_state.next_trial)
            fitted: Array | None = None
            if self.is_random(task, agent_state):
                query = uniform_point(agent_state, rng)
            else:
                query, fitted = self.step(task, agent_state, rng)
            outcome = evaluate(query)
            agent_state = agent_state.learn(outcome)
            if fitted is not None:
                agent_state = agent_state.write(hyperparameters=fitted)
        if self.stop_when and agent_state.history.num_succeeded >= LEAST_TRIALS:
            rng = draws("stop", agent_state.next_trial)
            ends = self.has_no_gain(task, agent_state, rng)
            agent_state = agent_state.write(**{ENDED: np.array([ends])})
        return agent_state

    def has_no_gain(self, task: Task, agent_state: AgentState, rng: Generator) -> bool:
        """Return whether the bound on what is left to gain is below the noise."""
        space, history, objectives = agent_state.space, agent_state.history, agent_state.aims.objectives
        if len(objectives) > 1:
            return False
        model = self.model(task, agent_state)
        sampled = space.snap(sobol(NUM_SAMPLED, space.dimension, rng))
        z = space.features(np.concatenate([sampled, model.centres, history.points]))
        mean, stddev = model.improvement.moments(z)
        least = np.full(1, -np.inf)
        if isinstance(model.improvement, FeasibleImprovement):
            least = model.improvement.goal.least
        factor = confidence(len(history), space.dimension)
        gain = left_to_gain(mean, stddev, len(history), least, factor)
        noise_variance = np.exp(np.atleast_2d(model.fitted)[0, -1])
        return bool(gain < max(np.sqrt(noise_variance), LEAST_NOISE))

    def is_random(self, task: Task, agent_state: AgentState) -> bool:
        """Return whether the next point is a random one: in the initial design, and before a success."""
        return agent_state.next_trial < self.num_initial or not agent_state.history.num_succeeded

    def observations(self, agent_state: AgentState) -> tuple[Array, Array]:
        """Return features `(n, F)` and transformed values `(n,)` of the agent's history."""
        x, ys, _, _ = self.outputs(agent_state)
        return x, ys[0]

    def outputs(self, agent_state: AgentState) -> tuple[Array, Array, Array, Array]:
        """Return features `(n, F)`, and outputs in the models' units.

        Returns
        -------
        Features; outputs `(O, n)`; in the same units the limits `(O,)`, -inf where there is none; and the
        reference `(K,)`, NaN where there is none.
        """
        history, aims = agent_state.history, agent_state.aims
        kept, expected = kept_with(history.values), history.predicted
        seen = history.points.tobytes(), None if expected is None else expected.tobytes()
        key = agent_state.space.digest, self.y_transform, aims, history.outputs is None, *seen
        if key not in kept:
            points, outputs = measured(history)
            columns, bounds = [], [-math.inf] if history.outputs is None else aims.least.tolist()
            for values, bound in zip(outputs.T, bounds, strict=True):
                if math.isfinite(bound):
                    columns.append(in_units(values, bound))
                else:
                    columns.append((transform(values, self.y_transform), -math.inf))
            ys, least = zip(*columns, strict=True)
            pairs = zip(aims.start.tolist(), outputs.T, ys, strict=False)
            start = [_in_units_of(number, values, y) for number, values, y in pairs]
            kept[key] = agent_state.space.features(points), np.array(ys), np.array(least), np.array(start)
            for array in kept[key]:
                array.setflags(write=False)
        found: tuple[Array, Array, Array, Array] = kept[key]
        return found

    def model(self, task: Task, agent_state: AgentState) -> Model:
        """Return the agent's model, fitted to its observations."""
        history = agent_state.history
        x, ys, least, start = self.outputs_for(task, agent_state)
        found = [self.process(task, agent_state, output, x, y) for output, y in enumerate(ys)]
        processes, at_own, fits = zip(*found, strict=True)
        means, objectives = np.array(at_own), range(len(agent_state.aims.objectives))
        if history.outputs is None:
            value = replace(processes[0], best=float(means.max()) if means.size else 0.0)
            return Model(value, processes, ys, means[0], fits[0], history.points[:0])
        improvement = FeasibleImprovement(processes, Goal.of(means, objectives, least, start))
        holds = feasible(means, least)
        if holds.any():
            ranks = np.where(holds, means[0], -np.inf)
            front = np.flatnonzero(holds)[non_dominated(means[list(objectives)].T[holds])]
        else:  # the nearest to holding them
            ranks, front = -np.maximum(least[:, None] - means, 0.0).sum(axis=0), np.empty(0, dtype=np.int64)
        return Model(improvement, processes, ys, ranks, np.array(fits), history.points[front])

    def outputs_for(self, task: Task, agent_state: AgentState) -> tuple[Array, Array, Array, Array]:
        """Return `outputs` in the units of the model for a task."""
        return self.outputs(agent_state)

    def process(
        self, task: Task, agent_state: AgentState, output: int, x: Array, y: Array
    ) -> tuple[GuidedImprovement, Array, Array]:
        """Return the process of an output, its means `(n,)` at own points, and the fitted `theta`."""
        fitted = compute(fit_of(agent_state, x, y, output=output))
        process = compute(Condition(x, y, fitted))
        return GuidedImprovement(process, 0.0), process.means, fitted.to_array()

    def step(self, task: Task, agent_state: AgentState, rng: Generator) -> tuple[Trials, Array | None]:
        """Return the next point and the fitted hyperparameters `theta`, None if there is nothing to fit."""
        model = self.model(task, agent_state)
        return self.climb(model, agent_state, rng), model.fitted

    def climb(self, model: Model, agent_state: AgentState, rng: Generator) -> Trials:
        """Return the point of the largest improvement found, or `farthest` while all values are equal."""
        space, history = agent_state.space, agent_state.history
        if not model.knows_others and all_equal(measured(history)[1]):
            return Trials(farthest(space, history.points, rng))
        best = int(np.argmax(model.means)) if len(model.means) else 0
        own = history.observed()[0][best : best + 1]
        centres = np.concatenate([own, model.centres])
        point = search(
            model.improvement, space, history.points, centres, self.num_candidates, self.min_distance, rng
        )
        return Trials(point)

    def expected_values(self, task: Task, agent_state: AgentState, points: Array) -> Array:
        """Return the posterior mean of the agent's model at points, see `run_task`."""
        if not agent_state.history.num_succeeded:
            return super().expected_values(task, agent_state, points)
        model, features = self.model(task, agent_state), agent_state.space.features(points)
        outputs = zip(model.processes, model.values, measured(agent_state.history)[1].T, strict=True)
        expected = [as_measured(process.mean(features), y, values) for process, y, values in outputs]
        return expected[0] if agent_state.history.outputs is None else np.column_stack(expected)

    def best(self, agent_state: AgentState, *, own: bool = True) -> Best | None:
        """Return the evaluated point with the best posterior mean of the agent's model, if it finds noise.

        Noise must be evident in the last step's fit, and in one of all values, without the others' trend.
        With limits, the trial and the means of all its outputs must hold them.
        """
        found = super().best(agent_state, own=own)
        history, stored = agent_state.history, agent_state.arrays.get("hyperparameters")
        usable = np.isfinite(agent_state.usable_values(own=own))
        if stored is None or math.exp(floats(stored)[..., -1].max()) < EVIDENT_NOISE or not usable.any():
            return found
        x, ys, least, _ = self.outputs(agent_state)
        fits = [compute(fit_of(agent_state, x, y, output=output)) for output, y in enumerate(ys)]
        if max(f.noise_variance for f in fits) < EVIDENT_NOISE or len(agent_state.aims.objectives) > 1:
            return found
        means = np.array([gp.posterior(x, y, f).mean(x) for y, f in zip(ys, fits, strict=True)])
        holds = feasible(means, least) & usable
        if not holds.any():
            return found
        row = int(np.argmax(np.where(holds, means[0], -np.inf)))
        mean = as_measured(means[0, row : row + 1], ys[0], measured(history)[1][:, 0])
        return Best(history.points[row], float(history.values[row]), float(mean[0]))


def _in_units_of(number: float, values: Array, y: Array) -> float:
    """Return a number in the units of `y (n,)`, on the line through the largest and the median value.

    These are never raised to a fence, so for "winsorise" and "standardise" the line is exact. NaN if they are
    equal.
    """
    if not len(values) or math.isnan(number):
        return math.nan
    order = np.argsort(values, kind="stable")
    middle, top = order[len(order) // 2], order[-1]
    if values[top] == values[middle]:
        return math.nan
    (high, low), exponent = finite.scaled(values[[top, middle]])
    beyond = float(finite.difference(finite.unscaled(np.array(number), -exponent)[0], high))
    with np.errstate(over="ignore"):
        return float(finite.difference(y[top], -beyond * (y[top] - y[middle]) / (high - low)))


def fit_of(
    agent_state: AgentState, x: Array, y: Array, known: fitting.Known | None = None, output: int = 0
) -> Fit:
    """Return the fit of the agent's model of an output, which starts from the last one."""
    stored = agent_state.arrays.get("hyperparameters")
    start = None
    if stored is not None:
        start = gp.Hyperparameters.from_array(KERNEL, np.atleast_2d(floats(stored))[output])
    return Fit(x, y, KERNEL, start, PRIORS, NOISY_PRIORS, known, output)


@dataclass(frozen=True, kw_only=True)
class ExpectedImprovement(LocalEI[Progress], Independent):
    """Expected improvement by every agent alone; `LocalEI` describes the options."""

    name: ClassVar[str] = "ei"
    takes_outputs: ClassVar[bool] = True
