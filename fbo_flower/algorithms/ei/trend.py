"""The agent's half of `fed-ei`: what it makes of the others' sums and points, and what it adds to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fbo_flower.algorithms.ei.fed_options import FedEIOptions, FedEIState
from fbo_flower.algorithms.ei.local import Guidance, LocalEI
from fbo_flower.algorithms.ei.task_check import check_task
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Payload, Task, floats
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.errors import NumericalError, WireError
from fbo_flower.numerics.acquisition.tilt import Tilt
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.numerics.surrogates.trend import agreement, ridge_weights, statistics, trend_weight
from fbo_flower.space.parameters import Categorical
from fbo_flower.space.space import SearchSpace

PRIOR_WEIGHT = 0.5  # a_0 before anything is known
PRIOR_STRENGTH = 1.5  # of an agent's own weight: as much as one or two observations
FEDERATION_STRENGTH = 3.0  # of the federation's weight
TILT_WIDTH = 0.1  # h / sqrt(D)
NUM_NEIGHBOURS = 2


@dataclass(frozen=True, kw_only=True)
class FederatedAgent(LocalEI[FedEIState], FedEIOptions):
    """The agent's half of `fed-ei`."""

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        check_task(task)
        return (yield from super().session(task, agent_state, draws))

    def is_random(self, task: Task, agent_state: AgentState) -> bool:
        """Return whether the next point is a random one: never for an agent that can use others' sums."""
        if "gram" in task.arrays:
            return len(agent_state.history) > 0 and not agent_state.history.num_succeeded
        return super().is_random(task, agent_state)

    def guidance(self, task: Task, agent_state: AgentState) -> Guidance:
        """Return the others' trend with the weight it has earned, and the tilt toward their best points."""
        space = agent_state.space
        incumbents = floats(task.arrays.get("points", np.empty((0, space.dimension))))
        centres = with_means(space, space.snap(incumbents))
        if "gram" not in task.arrays:
            return Guidance(centres)
        trend = self.others_trend(task, agent_state)
        x, y = self.observations(agent_state)
        federation = trend_weight(floats(task.arrays["agreement"]), PRIOR_WEIGHT, FEDERATION_STRENGTH)
        weight = trend_weight(agreement(trend(x), y), federation, PRIOR_STRENGTH)
        tilt = None
        if len(centres) and self.tilt:
            strength = self.tilt * min(weight, 1.0) / max(len(y) - 2, 1)
            tilt = Tilt(space.features(centres), TILT_WIDTH * math.sqrt(space.dimension), strength)
        return Guidance(centres, replace(trend, weights=weight * trend.weights), tilt)

    def others_trend(self, task: Task, agent_state: AgentState) -> LinearFunction:
        """Return the trend of the other agents: the sums without this agent's own part."""
        features = _features(task)
        gram, moment = floats(task.arrays["gram"]), floats(task.arrays["moment"])
        counted = int(task.values["counted"])
        if counted >= 0:
            history = agent_state.history
            earlier = history.trials < counted
            then = replace(
                history,
                points=history.points[earlier],
                values=history.values[earlier],
                trials=history.trials[earlier],
            )
            x, y = self.observations(replace(agent_state, history=then))
            own_gram, own_moment = statistics(features(x), y)
            gram, moment = gram - own_gram, moment - own_moment
        try:
            return LinearFunction(features, ridge_weights(gram, moment, self.ridge))
        except NumericalError as error:
            raise WireError(
                "gram: expected a sum of products of features that holds this agent's part, got a matrix "
                f"with a negative eigenvalue ({error})",
                "content",
            ) from error

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Payload:
        if not task.values.get("share") or not agent_state.history.num_succeeded:
            return Payload()
        x, y = self.observations(agent_state)
        arrays: dict[str, AnyArray] = {}
        arrays["gram"], arrays["moment"] = statistics(_features(task)(x), y)
        held = self.others_trend(task, agent_state)(x) if "gram" in task.arrays else np.zeros(len(y))
        arrays["agreement"] = agreement(held, y)
        if self.tilt:
            best = self.recommend(agent_state)
            assert best is not None
            arrays["point"] = best
        return Payload(arrays)


def with_means(space: SearchSpace, points: Array) -> Array:
    """Return points `(k, D)`, the mean of each with its nearest others, and the mean of all.

    In a mean, a category is that of the point itself; in the mean of all, the commonest.
    """
    if len(points) < 2:
        return points
    features = space.features(points)
    distances = ((features[:, None, :] - features[None, :, :]) ** 2).sum(axis=2)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : NUM_NEIGHBOURS + 1]
    local, overall = points[nearest].mean(axis=1), points.mean(axis=0)
    for axis, parameter in enumerate(space.parameters.values()):
        if isinstance(parameter, Categorical):
            local[:, axis] = points[:, axis]
            found, counts = np.unique(points[:, axis], return_counts=True)
            overall[axis] = found[int(np.argmax(counts))]
    return space.snap(np.concatenate([points, local, overall[None, :]]))


def _features(task: Task) -> RandomFeatures:
    return RandomFeatures(floats(task.arrays["frequencies"]), floats(task.arrays["phases"]))
