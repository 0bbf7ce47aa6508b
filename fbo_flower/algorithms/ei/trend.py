"""The agent's half of `fed-ei`: what it makes of the others' sums and points, and what it adds to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fbo_flower.algorithms.ei import noisy_sums
from fbo_flower.algorithms.ei.climb import searching
from fbo_flower.algorithms.ei.fed_options import FedEIOptions, FedEIState
from fbo_flower.algorithms.ei.local import Guidance, LocalEI, at_own
from fbo_flower.algorithms.ei.memo import features_of, kept_with
from fbo_flower.algorithms.ei.solve_trend import SolveTrend
from fbo_flower.algorithms.ei.task_check import check_task
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Payload, Query, Task, floats
from fbo_flower.algorithms.requests import Rng, Steps
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.errors import NumericalError, WireError
from fbo_flower.numerics.acquisition.tilt import Tilt
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates.innovations import foresight
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.numerics.surrogates.trend import (
    agreement,
    alignment,
    beyond_chance,
    deviations,
    federation_weight,
    filtered_weights,
    first_weight,
    own_weight,
    statistics,
)
from fbo_flower.space.parameters import Categorical
from fbo_flower.space.space import SearchSpace

TILT_WIDTH = 0.1  # h / sqrt(D)
NUM_NEIGHBOURS = 2
PROBED, PROBE_DISTANCE = 3, 0.02  # most features of a space that is probed; least distance / sqrt(features)
IN_DOUBT = 0.25  # largest first a_0 that calls for a probe
NUM_UNIFORM = 256  # points that stand for the uniform distribution over the search space


@dataclass(frozen=True, kw_only=True)
class FederatedAgent(LocalEI[FedEIState], FedEIOptions):
    """The agent's half of `fed-ei`."""

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        check_task(task, self.noise_multiplier > 0)
        return (yield from super().session(task, agent_state, draws))

    def is_random(self, task: Task, agent_state: AgentState) -> bool:
        """Return whether the next point is a random one: never for an agent that can use others' sums."""
        if "moment" in task.arrays:
            return len(agent_state.history) > 0 and not agent_state.history.num_succeeded
        return super().is_random(task, agent_state)

    def step(
        self, task: Task, agent_state: AgentState, rng: np.random.Generator
    ) -> Steps[tuple[Query, Array | None]]:
        """Return the next point; a probe of the trend, if nothing is known about it yet."""
        if not self.is_probe(task, agent_state):
            return (yield from super().step(task, agent_state, rng))
        space = agent_state.space
        trend = yield from self.others_trend(task, agent_state)
        centres, distance = others_centres(task, space), PROBE_DISTANCE * math.sqrt(space.num_features)
        seen = agent_state.history.points
        point = yield from searching(trend, space, seen, centres, self.num_candidates, distance, rng)
        return Query(point), None

    def is_probe(self, task: Task, agent_state: AgentState) -> bool:
        """Return whether the next point is the maximum of the others' trend, whatever the agent's own values.

        That is so once, in small spaces, after the random points, if no agent has tested a trend yet and the
        sums do not show that agents are related.
        """
        space = agent_state.space
        if "moment" not in task.arrays or self.noise_multiplier or space.num_features > PROBED:
            return False
        is_first = agent_state.next_trial == task.trial == self.num_initial
        if not is_first or floats(task.arrays["agreement"])[1] > 0.0:
            return False
        return federation_weight_of(task, space) <= IN_DOUBT

    def guidance(self, task: Task, agent_state: AgentState, x: Array, y: Array) -> Steps[Guidance]:
        """Return the others' trend and a tilt toward their best points, with the weights they have earned.

        Without any, the agent's step is the one of `ei`, to the last bit.
        """
        space = agent_state.space
        centres = others_centres(task, space)
        if "moment" not in task.arrays:
            return Guidance(centres)
        trend = yield from self.others_trend(task, agent_state)
        if self.noise_multiplier:
            federation = noisy_sums.federation_weight_of(task, self.noise_multiplier, self.secure_sums)
        else:
            federation = federation_weight_of(task, space)
        weight = own_weight(agreement(at_own(trend, x), y), federation)
        weighted = replace(trend, weights=weight * trend.weights) if weight > 0.0 else None
        shown = 0.0
        if self.tilt and len(centres):
            shown = max(tilt_weight_of(task, federation), min(weight, 1.0))
        if not shown:
            return Guidance(centres if weight > 0.0 else centres[:0], weighted)
        tilt = replace(tilt_to(centres, space), weight=self.tilt * shown / max(len(y) - 2, 1))
        return Guidance(centres, weighted, tilt)

    def others_trend(self, task: Task, agent_state: AgentState) -> Steps[LinearFunction]:
        """Return the trend of the other agents: the sums without this agent's own part."""
        features, moment = _features(task), floats(task.arrays["moment"])
        then = before(agent_state, int(task.values["counted"]))
        points, values = then.history.observed()
        kept = kept_with(floats(task.arrays["moment" if self.noise_multiplier else "gram"]))
        own = moment.tobytes(), features.frequencies.tobytes(), points.tobytes(), values.tobytes()
        key = self, agent_state.space.digest, own
        if key not in kept:
            x, y = self.observations(then)
            kept[key] = (
                self._noisy_weights(task, agent_state.space, features, x, y)
                if self.noise_multiplier
                else (yield from self._weights(task, features, x, y))
            )
        return LinearFunction(features, kept[key])

    def _weights(self, task: Task, features: RandomFeatures, x: Array, y: Array) -> Steps[Array]:
        """Return the weights of the trend from sums of `statistics`, without the part of `x` and `y`."""
        gram, moment = floats(task.arrays["gram"]), floats(task.arrays["moment"])
        try:
            phi = features_of(features, x)
            weights: Array = yield SolveTrend(gram, moment, phi, y, self.ridge)
        except NumericalError as error:
            raise WireError(
                "gram: expected a sum of products of features that holds this agent's part, got a matrix "
                f"with a negative eigenvalue ({error})",
                "content",
            ) from error
        return weights

    def _noisy_weights(
        self, task: Task, space: SearchSpace, features: RandomFeatures, x: Array, y: Array
    ) -> Array:
        """Return the weights of the trend from noisy sums, see `noisy_sums`."""
        num_agents, num_observations = noisy_sums.sizes(task)
        stddev = noisy_sums.own_stddev(self.noise_multiplier, self.secure_sums)
        mean = floats(task.arrays["moment"]) - features(x).T @ y / max(len(y), 1)
        phi = features(space.features(uniform_points(space)))
        variance = stddev**2 * num_agents
        return filtered_weights(mean, phi, num_agents, num_observations, variance, self.ridge)

    def noisy_part(self, task: Task, agent_state: AgentState) -> Steps[Payload]:
        """Return what the agent adds to noisy sums, before `protect` adds the noise."""
        x, y = self.observations(agent_state)  # none: zeros are sent, so that the report does not tell
        moment = features_of(_features(task), x).T @ y
        held = np.zeros(len(y))
        if "moment" in task.arrays:
            held = at_own((yield from self.others_trend(task, agent_state)), x)
        part = noisy_sums.contribution(moment, agreement(held, y), len(y))
        return Payload({"moment": part[:-2], "agreement": part[-2:]})

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Steps[Payload]:
        if task.values.get("share") and self.noise_multiplier:
            return (yield from self.noisy_part(task, agent_state))
        if not task.values.get("share") or not agent_state.history.num_succeeded:
            return Payload()
        x, y = self.observations(agent_state)
        arrays: dict[str, AnyArray] = {}
        arrays["gram"], arrays["moment"] = statistics(features_of(_features(task), x), y)
        arrays["energy"] = np.zeros(1)
        arrays["agreement"] = arrays["closeness"] = np.zeros(2)
        if "moment" in task.arrays:
            trend = yield from self.others_trend(task, agent_state)
            arrays["agreement"] = agreement(at_own(trend, x), y)
        else:
            arrays["energy"] = np.array([float((arrays["moment"] ** 2).sum())])
        centres = others_centres(task, agent_state.space)
        if self.tilt and len(centres):
            first = 0 if no_tilt_tested(task) else int((agent_state.history.trials < task.trial).sum())
            arrays["closeness"] = foresight(x, y, tilt_to(centres, agent_state.space)(x), first)
        if self.tilt:
            best = self.recommend(agent_state)
            assert best is not None
            arrays["point"] = best
        return Payload(arrays)


def federation_weight_of(task: Task, space: SearchSpace) -> float:
    """Return the weight `a_0` that the trend has earned in the whole federation."""
    sums = floats(task.arrays["agreement"])
    if sums[1] > 0.0:
        return federation_weight(sums)
    moment, features = floats(task.arrays["moment"]), _features(task)
    kept = kept_with(moment)  # agents in one process may share the arrays of their tasks
    key = "first", space.digest, features.frequencies.tobytes(), float(task.arrays["energy"][0])
    if key not in kept:
        phi = features(space.features(uniform_points(space)))
        kept[key] = first_weight(alignment(moment, float(task.arrays["energy"][0]), phi))
    weight: float = kept[key]
    return weight


def uniform_points(space: SearchSpace) -> Array:
    """Return points `(S, D)` spread uniformly over the search space, always the same."""
    space = space.whole  # what the federation has in common does not depend on an agent's fixed parameters
    return space.snap(sobol(NUM_UNIFORM, space.dimension, np.random.default_rng(0)))


def no_tilt_tested(task: Task) -> bool:
    """Return whether no agent has tested the tilt, so that all observations are evidence about it."""
    return "closeness" not in task.arrays or floats(task.arrays["closeness"])[1] <= 0.0


def before(agent_state: AgentState, trial: int) -> AgentState:
    """Return the agent's state with the observations before a trial only; -1: with none."""
    history = agent_state.history
    earlier = history.trials < trial if trial >= 0 else np.zeros(len(history.trials), dtype=np.bool_)
    if earlier.all():
        return agent_state
    then = replace(
        history,
        points=history.points[earlier],
        values=history.values[earlier],
        trials=history.trials[earlier],
    )
    return replace(agent_state, history=then)


def tilt_weight_of(task: Task, federation: float) -> float:
    """Return the weight of the tilt: are values better than predicted close to others' best points?

    Parameters
    ----------
    federation : `a_0`, which counts until agents have tested the tilt
    """
    sums = floats(task.arrays["closeness"])
    return beyond_chance(deviations(sums)) if sums[1] > 0.0 else min(federation, 1.0)


def tilt_to(centres: Array, space: SearchSpace) -> Tilt:
    """Return the tilt of weight 1 toward centres `(k, D)`; its values are the closeness to others' points."""
    kept = kept_with(centres)
    key = "tilt", space.digest
    if key not in kept:
        kept[key] = Tilt(space.features(centres), TILT_WIDTH * math.sqrt(space.dimension), 1.0)
    tilt: Tilt = kept[key]
    return tilt


def others_centres(task: Task, space: SearchSpace) -> Array:
    """Return others' best points and means of them, `(k, D)`; `k` may be 0."""
    if "points" not in task.arrays:
        return np.empty((0, space.dimension))
    incumbents = floats(task.arrays["points"])
    kept = kept_with(incumbents)
    if space.digest not in kept:
        kept[space.digest] = with_means(space, space.snap(incumbents))
    centres: Array = kept[space.digest]
    return centres


def with_means(space: SearchSpace, points: Array) -> Array:
    """Return points `(k, D)`, the mean of each with its nearest others, and the mean of all.

    In a mean, a category is that of the point itself; in the mean of all, the commonest.
    """
    if len(points) < 2:
        return points
    features = space.features(points)
    distances = ((features[:, None, :] - features[None, :, :]) ** 2).sum(axis=2)
    nearest = np.empty((len(points), min(NUM_NEIGHBOURS + 1, len(points))), dtype=np.int64)
    rows = np.arange(len(points))
    for place in range(nearest.shape[1]):
        nearest[:, place] = distances.argmin(axis=1)
        distances[rows, nearest[:, place]] = np.inf
    local, overall = points[nearest].mean(axis=1), points.mean(axis=0)
    for axis, parameter in enumerate(space.parameters.values()):
        if isinstance(parameter, Categorical):
            local[:, axis] = points[:, axis]
            found, counts = np.unique(points[:, axis], return_counts=True)
            overall[axis] = found[int(np.argmax(counts))]
    return space.snap(np.concatenate([points, local, overall[None, :]]))


def _features(task: Task) -> RandomFeatures:
    return RandomFeatures(floats(task.arrays["frequencies"]), floats(task.arrays["phases"]))
