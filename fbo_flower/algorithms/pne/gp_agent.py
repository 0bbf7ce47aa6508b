"""The Gaussian-process variant of PF-PNE on the agent: its observations, what it reports, and its search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from fbo_flower.algorithms.bandits.base import Evaluations
from fbo_flower.algorithms.messages import Content, real, whole
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, IntArray, Outcome, Query, Task, floats
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.errors import WireError
from fbo_flower.numerics.aggregation import shared_mean
from fbo_flower.numerics.aggregation.shared_mean import (
    LENGTHSCALES,
    NOISES,
    RESIDUALS,
    Belief,
    Evidence,
    Model,
)
from fbo_flower.numerics.bandits import gp_search
from fbo_flower.numerics.bandits.racing_search import joint_deviations
from fbo_flower.space.space import SearchSpace

MAX_AGENTS = 10**5  # in a task
MAX_SEED = 2**53  # the largest integer that every JSON reader represents exactly
SHARING = sum(residual < 1.0 for residual in RESIDUALS)  # residuals with which agents share something

_PLACES = max(len(LENGTHSCALES), len(NOISES), len(RESIDUALS)) - 1


def _weights(algorithm: object, space: SearchSpace) -> int:
    """Return the number of weights of the shared function."""
    return shared_mean.num_inducing(space.dimension)


def _triangle(algorithm: object, space: SearchSpace) -> int:
    """Return the number of entries in the upper triangle of a precision."""
    size = _weights(algorithm, space)
    return size * (size + 1) // 2


@dataclass(frozen=True, kw_only=True)
class Setting(Content):
    """A task: a place in the common design; then scale, setting, and the sum of what the others sent."""

    exchange: int = 0
    agents: int = 0
    place: int = -1
    design_seed: int = -1
    scale: Annotated[Array | None, real(2)] = None
    setting: Annotated[IntArray | None, whole(2, high=_PLACES)] = None
    chosen: Annotated[IntArray | None, whole(3, high=_PLACES)] = None
    others_precision: Annotated[Array | None, real(_triangle)] = None
    others_response: Annotated[Array | None, real(_weights)] = None


@dataclass(frozen=True, kw_only=True)
class Told(Evaluations):
    """A report: moments; with a scale also likelihoods; with a setting also evidence."""

    exchange: int = 0
    moments: Annotated[Array | None, real(3)] = None
    likelihoods: Annotated[Array | None, real(len(LENGTHSCALES) * len(NOISES))] = None
    precision: Annotated[Array | None, real(SHARING, _triangle)] = None
    response: Annotated[Array | None, real(SHARING, _weights)] = None
    misfit: Annotated[Array | None, real(len(RESIDUALS))] = None


@dataclass(frozen=True)
class Scale:
    """The unit of the objective that the agents agreed on: the model is of `(y - mean) / stddev`."""

    mean: float
    stddev: float

    @staticmethod
    def read(arrays: Mapping[str, AnyArray]) -> Scale | None:
        """Return the scale in a task or an agent's state; None before there is one."""
        return Scale(*floats(arrays["scale"]).tolist()) if "scale" in arrays else None


@dataclass(frozen=True)
class Observations:
    """The points that the agent evaluated.

    Parameters
    ----------
    points : `(n, D)`
    count, total, within : `(n,)`: pulls with a value, their sum, and the squared deviations from their mean
    failed : `(n,)`, failed pulls; at a point without a success they count as the agent's worst mean
    """

    points: Array
    count: IntArray
    total: Array
    within: Array
    failed: IntArray

    @staticmethod
    def read(agent_state: AgentState) -> Observations:
        """Return the observations in the agent's state."""
        arrays, dim = agent_state.arrays, agent_state.space.dimension
        points = floats(arrays.get("seen.points", np.empty((0, dim))))
        count, failed = (
            np.asarray(arrays.get(f"seen.{n}", np.empty(0)), dtype=np.int64) for n in ("count", "failed")
        )
        total, within = (floats(arrays.get(f"seen.{n}", np.empty(0))) for n in ("total", "within"))
        return Observations(points, count, total, within, failed)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the arrays under their names in an agent's state."""
        return {f"seen.{name}": getattr(self, name) for name in self.__dataclass_fields__}

    def add(self, outcome: Outcome) -> Observations:
        """Return the observations with an outcome added, whose rows may repeat points."""
        assert outcome.counts is not None and outcome.deviations is not None  # noqa: PT018  # repeats were asked
        seen = self
        for row, point in enumerate(outcome.points):
            seen = seen._add(point, outcome, row)
        return seen

    def _add(self, point: Array, outcome: Outcome, row: int) -> Observations:
        assert outcome.counts is not None and outcome.deviations is not None  # noqa: PT018
        n, seen = int(outcome.counts[row]), self
        place = np.flatnonzero((self.points == point).all(axis=1))
        if len(place) == 0:
            none = np.zeros(1, dtype=np.int64)
            seen = Observations(
                np.concatenate([self.points, point[np.newaxis]]),
                np.concatenate([self.count, none]),
                np.append(self.total, 0.0),
                np.append(self.within, 0.0),
                np.concatenate([self.failed, none]),
            )
        k = int(place[0]) if len(place) else len(self.points)
        count, total, within, failed = (
            getattr(seen, name).copy() for name in ("count", "total", "within", "failed")
        )
        failed[k] += int(outcome.pulls[row]) - n
        if n:
            with np.errstate(over="ignore", invalid="ignore"):  # huge values
                value = float(outcome.values[row]) * n
                before = count[k], total[k], within[k]
                within[k] = joint_deviations(before, (n, value, float(outcome.deviations[row])))
                total[k] += value
            count[k] += n
        return replace(seen, count=count, total=total, within=within, failed=failed)

    def means(self) -> Array:
        """Return the mean at every point; NaN where there is no success."""
        return np.asarray(
            np.where(self.count > 0, self.total / np.maximum(1, self.count), np.nan), dtype=np.float64
        )

    def moments(self) -> Array:
        """Return number, mean and standard deviation of all values, `(3,)`."""
        if not self.count.any():
            return np.zeros(3)
        count, means = self.count[self.count > 0], self.means()[self.count > 0]
        mean = float(means @ count / count.sum())
        unit = float(np.abs(means - mean).max()) or 1.0  # squares of huge values would overflow
        variance = (self.within.sum() / unit / unit + count @ ((means - mean) / unit) ** 2) / count.sum()
        return np.array([count.sum(), mean, unit * math.sqrt(variance)])

    def modelled(self, scale: Scale) -> tuple[Array, Array, Array]:
        """Return points, standardised means and counts, failures included; nothing before a success."""
        means = self.means()
        if not self.count.any():
            return self.points[:0], np.empty(0), np.empty(0)
        values = (np.where(np.isnan(means), np.nanmin(means), means) - scale.mean) / scale.stddev
        return self.points, values, np.where(self.count > 0, self.count, self.failed).astype(np.float64)


def model(setting: AnyArray, dim: int, residual: float) -> Model:
    """Return the model of a setting: places in `LENGTHSCALES` and in `NOISES`."""
    scale, noise = np.asarray(setting, dtype=np.int64).tolist()[:2]
    return Model(dim, LENGTHSCALES[scale] * math.sqrt(dim), NOISES[noise], residual)


def report(agent_state: AgentState, task: Task) -> Told:
    """Return what the agent sends of its observations."""
    seen, scale, dim = Observations.read(agent_state), Scale.read(task.arrays), agent_state.space.dimension
    told = Told(exchange=Setting.of(task).exchange)
    if scale is None:
        return replace(told, moments=seen.moments())
    x, y, counts = seen.modelled(scale)
    within = float(seen.within.sum()) / scale.stddev / scale.stddev
    likelihoods = shared_mean.log_likelihoods(dim, x, y, counts, within).reshape(-1)
    if "setting" not in task.arrays:
        return replace(told, likelihoods=likelihoods)
    found = [shared_mean.evidence(model(task.arrays["setting"], dim, d), x, y, counts) for d in RESIDUALS]
    upper = np.triu_indices(shared_mean.num_inducing(dim))
    return replace(
        told,
        likelihoods=likelihoods,
        precision=np.array([e.precision[upper] for e in found[:SHARING]]),
        response=np.array([e.response for e in found[:SHARING]]),
        misfit=np.array([e.misfit for e in found]),
    )


def unpacked(precision: AnyArray, response: AnyArray) -> Evidence:
    """Return evidence about the shared function from the upper triangle of its precision."""
    size = len(response)
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = precision
    return Evidence(matrix + np.triu(matrix, 1).T, floats(response), 0.0)


def session(task: Task, agent_state: AgentState, draws: Draws) -> Session:
    """Evaluate the first points, or one point after another that have the largest upper bound."""
    seen, dim = Observations.read(agent_state), agent_state.space.dimension
    if "others_response" in task.arrays:
        kept = {n: task.arrays[n] for n in ("scale", "chosen", "others_precision", "others_response")}
        agent_state = agent_state.write(**kept)
    while (left := task.end - agent_state.next_trial) > 0:
        trial = agent_state.next_trial
        if "others_response" in task.arrays:
            believed = belief(agent_state, seen)
            assert believed is not None
            points = gp_search.choose(believed, draws("choose", trial))[np.newaxis]
        else:
            content = Setting.of(task)
            seed, place, agents = content.design_seed, content.place, content.agents
            if seed < 0 or not 0 <= place < agents <= MAX_AGENTS:
                raise WireError(
                    f"place: expected a seed and a place below agents <= {MAX_AGENTS}, got {seed}, {place}, "
                    f"{agents}"
                )
            points = gp_search.design(dim, agents, place, trial, left, seed)
        outcome = yield Query(agent_state.space.snap(points), np.ones(len(points), dtype=np.int64))
        seen = seen.add(outcome)
        agent_state = agent_state.passed_to(outcome.end)
    return agent_state.write(**seen.arrays())


def belief(agent_state: AgentState, seen: Observations) -> Belief | None:
    """Return the agent's posterior of its function; None before the first exchange."""
    arrays, scale = agent_state.arrays, Scale.read(agent_state.arrays)
    if scale is None or "chosen" not in arrays:
        return None
    residual = RESIDUALS[int(np.asarray(arrays["chosen"])[2])]
    others = unpacked(arrays["others_precision"], arrays["others_response"])
    dim = agent_state.space.dimension
    return shared_mean.belief(model(arrays["chosen"], dim, residual), *seen.modelled(scale), others)


def best_point(agent_state: AgentState) -> tuple[Array, float] | None:
    """Return the point with the largest posterior mean, and the mean value there; None without a success."""
    seen = Observations.read(agent_state)
    succeeded = np.flatnonzero(seen.count > 0)
    if len(succeeded) == 0:
        return None
    means, believed = seen.means()[succeeded], belief(agent_state, seen)
    expected = means if believed is None else believed.predict(seen.points[succeeded])[0]
    best = int(np.argmax(expected))
    return seen.points[succeeded[best]], float(means[best])
