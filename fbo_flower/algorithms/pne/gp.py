"""The Gaussian-process variant of PF-PNE, for small budgets: a shared mean function and a residual per agent.

It has no cells. `numerics.aggregation.shared_mean` has the model and the choice of points. Agents evaluate a
common Sobol design, then agree on the unit of the objective, on a lengthscale and a noise level, and on how
much their objectives share. Then each makes pulls of its own until the next exchange, which comes after a
quarter more pulls.

Messages. To the server: once number, mean and standard deviation of the agent's values; then at every
exchange log likelihoods on a grid, and sums over its observations that say what they tell about the shared
function. To agents: scale, setting, and the sum of what the *other* agents sent; so a lost report cannot
count twice.

An exchange does not wait for agents that left their last task unanswered. An agent that comes back gets the
sums of the others and takes part in the next exchange.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.bandits.base import (
    MAX_SEED,
    BanditState,
    BatchedBandit,
    Evaluations,
    in_order,
    once_per_state,
    with_outcome,
)
from fbo_flower.algorithms.messages import Content, Replies, real, whole
from fbo_flower.algorithms.options import choice
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    IntArray,
    Phase,
    Task,
    Trials,
    floats,
)
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric, unpack_symmetric
from fbo_flower.numerics.aggregation import shared_mean
from fbo_flower.numerics.aggregation.shared_mean import (
    LENGTHSCALES,
    NOISES,
    RESIDUALS,
    Belief,
    Evidence,
    SharedMeanModel,
)
from fbo_flower.numerics.bandits.pulls import Pulls
from fbo_flower.space.space import SearchSpace

MAX_AGENTS = 10**5  # in a task
SHARING = sum(residual < 1.0 for residual in RESIDUALS)  # residuals with which agents share something

_PLACES = max(len(LENGTHSCALES), len(NOISES), len(RESIDUALS)) - 1


def _weights(algorithm: object, space: SearchSpace) -> int:
    """Return the number of weights of the shared function."""
    return shared_mean.num_inducing(space.dimension)


def _triangle(algorithm: object, space: SearchSpace) -> int:
    """Return the number of entries in a packed precision."""
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

    @classmethod
    def report_kind(cls, task: Task) -> str | None:
        if "scale" not in task.arrays:
            return "moments"
        return "evidence" if "setting" in task.arrays else "likelihoods"


@dataclass(frozen=True, kw_only=True)
class Evidences(Evaluations):
    """A report: moments; with a scale also likelihoods; with a setting also evidence."""

    exchange: int = 0
    moments: Annotated[Array | None, real(3)] = None
    likelihoods: Annotated[Array | None, real(len(LENGTHSCALES) * len(NOISES))] = None
    precision: Annotated[Array | None, real(SHARING, _triangle)] = None
    response: Annotated[Array | None, real(SHARING, _weights)] = None
    misfit: Annotated[Array | None, real(len(RESIDUALS))] = None


def read_scale(arrays: Mapping[str, AnyArray]) -> Array | None:
    """Return mean and deviation of values in a task or an agent's state, `(2,)`; None before they are known.

    The model is of `(y - mean) / stddev`.
    """
    return floats(arrays["scale"]) if "scale" in arrays else None


@dataclass(frozen=True)
class Observations:
    """The points `(n, D)` that the agent evaluated, and its pulls of each.

    At a point without a success, failed pulls count as the agent's worst mean.
    """

    points: Array
    pulls: Pulls

    @staticmethod
    def read(agent_state: AgentState) -> Observations:
        """Return the observations in the agent's state."""
        none = np.empty((0, agent_state.space.dimension))
        points = floats(agent_state.arrays.get("seen.points", none))
        return Observations(points, Pulls.read(agent_state.arrays, "seen."))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the arrays under their names in an agent's state."""
        return {"seen.points": self.points, **self.pulls.arrays("seen.")}

    def add(self, outcome: Trials) -> Observations:
        """Return the observations with an outcome added, whose rows may repeat points."""
        points, rows = self.points, []
        for point in outcome.points:
            place = np.flatnonzero((points == point).all(axis=1))
            points = points if len(place) else np.concatenate([points, point[np.newaxis]])
            rows.append(int(place[0]) if len(place) else len(points) - 1)
        pulls = self.pulls.joined(Pulls.read({}, "", len(points) - len(self.points)))
        for k, row in enumerate(rows):
            pulls = with_outcome(pulls, [row], outcome.rows(slice(k, k + 1)))
        return Observations(points, pulls)

    def moments(self) -> Array:
        """Return number, mean and standard deviation of all values, `(3,)`."""
        pulls = self.pulls.rows(self.pulls.count > 0)
        if not len(pulls.count):
            return np.zeros(3)
        count, means = pulls.count, pulls.means()
        mean = float(means @ count / count.sum())
        unit = float(np.abs(means - mean).max()) or 1.0  # squares of huge values would overflow
        variance = (
            self.pulls.within.sum() / unit / unit + count @ ((means - mean) / unit) ** 2
        ) / count.sum()
        return np.array([count.sum(), mean, unit * math.sqrt(variance)])

    def modelled(self, scale: Array) -> tuple[Array, Array, Array]:
        """Return points, standardised means and counts, failures included; nothing before a success."""
        count, means = self.pulls.count, self.pulls.means(np.nan)
        if not count.any():
            return self.points[:0], np.empty(0), np.empty(0)
        values = (np.where(np.isnan(means), np.nanmin(means), means) - scale[0]) / scale[1]
        return self.points, values, (count + self.pulls.in_vain).astype(np.float64)


def model(setting: AnyArray, dim: int, residual: float) -> SharedMeanModel:
    """Return the model of a setting: places in `LENGTHSCALES` and in `NOISES`."""
    scale, noise = np.asarray(setting, dtype=np.int64).tolist()[:2]
    return SharedMeanModel(dim, LENGTHSCALES[scale] * math.sqrt(dim), NOISES[noise], residual)


def unpacked(precision: AnyArray, response: AnyArray) -> Evidence:
    """Return evidence about the shared function from the packed precision."""
    return Evidence(unpack_symmetric(floats(precision), len(response)), floats(response), 0.0)


def belief(agent_state: AgentState, seen: Observations) -> Belief | None:
    """Return the agent's posterior of its function; None before the first exchange."""
    arrays, scale = agent_state.arrays, read_scale(agent_state.arrays)
    if scale is None or "chosen" not in arrays:
        return None
    residual = RESIDUALS[int(np.asarray(arrays["chosen"])[2])]
    others = unpacked(arrays["others_precision"], arrays["others_response"])
    dim = agent_state.space.dimension
    return shared_mean.belief(model(arrays["chosen"], dim, residual), *seen.modelled(scale), others)


@dataclass(frozen=True)
class GPState(BanditState):
    """The server's state, besides what `BanditState` has."""

    dim: int  # `D`
    design_seed: int
    target: int  # pulls that every agent makes before the next exchange
    exchange: int = 0  # number of the exchange that is open
    # agent -> arrays of its report for the open exchange
    reports: Mapping[str, Mapping[str, AnyArray]] = field(default_factory=dict)
    # mean and standard deviation of the design's values; None: not known yet
    scale: tuple[float, float] | None = None
    # places of lengthscale and noise, for the evidence that agents send next
    setting: tuple[int, int] | None = None
    # places of lengthscale, noise and residual, to which `sent` belongs
    chosen: tuple[int, int, int] | None = None
    # agent -> its precisions and responses of the last exchange, for the chosen residual
    sent: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GPPNE(BatchedBandit[GPState]):
    """Gaussian-process variant of PF-PNE; `BatchedBandit` and `Bandit` describe the other options.

    Parameters
    ----------
    variant : "gp"
    """

    name: ClassVar[str] = "pf-pne"
    task_content: ClassVar[type[Content]] = Setting
    report_content: ClassVar[type[Content]] = Evidences

    variant: str = choice("gp", ("gp",))

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> GPState:
        dim = federation.space.dimension
        first = min(self.budget, shared_mean.design_size(dim, len(federation.agents)))
        return GPState(federation.agents, dim, int(rng.integers(MAX_SEED)), first)

    def tell(self, state: GPState, phase: Phase, reports: Replies) -> GPState:
        received = dict(state.reports)
        for agent, report in reports.items():
            if Evidences.of(report).exchange == state.exchange and report.arrays:
                received[agent] = dict(report.arrays)
        return super().tell(replace(state, reports=in_order(received)), phase, reports)

    def next_pulls(self, state: GPState, agent: str, left: int) -> tuple[Content | None, int]:
        content = Setting(
            exchange=state.exchange,
            agents=len(state.agents),
            scale=None if state.scale is None else np.array(state.scale),
            setting=None if state.setting is None else np.array(state.setting, dtype=np.int64),
        )
        if state.chosen is not None:
            others = [state.sent[other] for other in state.sent if other != agent]
            size = shared_mean.num_inducing(state.dim)
            zeros = np.zeros(size * (size + 1) // 2), np.zeros(size)
            content = replace(
                content,
                chosen=np.array(state.chosen, dtype=np.int64),
                others_precision=sum((p for p, _ in others), zeros[0]),
                others_response=sum((r for _, r in others), zeros[1]),
            )
        elif agent in state.agents:
            content = replace(content, design_seed=state.design_seed, place=state.agents.index(agent))
        elif state.scale is None:
            return None, 0  # an agent that joins later has no part in the design
        left = min(state.target, self.budget) - state.progress.of(agent)
        pulls = min(max(left, 0), self.max_evaluations_per_round)
        if state.chosen is None and content.place < 0:
            pulls = 0
        if pulls == 0 and agent in state.reports:
            return None, 0
        return content, pulls

    def close(self, state: GPState, waiting: Sequence[str]) -> GPState:
        """Merge the reports, once all waiting agents that answer have made their pulls and sent them."""
        responsive = [a for a in state.attendance.responsive(waiting) if a in state.agents or state.chosen]
        if not state.reports or not responsive:
            return state
        behind = any(state.progress.of(agent) < min(state.target, self.budget) for agent in responsive)
        if behind or any(agent not in state.reports for agent in responsive):
            return state
        reports = state.reports
        opened = replace(state, exchange=state.exchange + 1, reports={})
        if state.scale is None:
            return self._agree_on_scale(opened, reports)
        likelihoods = sum(floats(r["likelihoods"]) for r in reports.values())
        best = int(np.argmax(likelihoods))
        setting = best // len(NOISES), best % len(NOISES)
        full = {agent: r for agent, r in reports.items() if "misfit" in r}
        if state.setting is None or not full:
            return replace(opened, setting=setting)
        place = self._best_residual(state, full)
        size = shared_mean.num_inducing(state.dim)
        nothing = np.zeros(size * (size + 1) // 2), np.zeros(size)
        sent = {
            a: (floats(r["precision"])[place], floats(r["response"])[place]) if place < SHARING else nothing
            for a, r in full.items()
        }
        target = min(self.budget, shared_mean.next_exchange(state.target))
        return replace(opened, setting=setting, chosen=(*state.setting, place), sent=sent, target=target)

    def _agree_on_scale(self, state: GPState, reports: Mapping[str, Mapping[str, AnyArray]]) -> GPState:
        """Set mean and standard deviation of all values; without any value, make the design longer."""
        moments = np.array([floats(arrays["moments"]) for arrays in reports.values()])
        n, means, stddevs = moments[moments[:, 0] > 0].T
        if len(n) == 0:
            return replace(state, target=min(self.budget, 2 * state.target))
        unit = max(float(np.ptp(means)), float(stddevs.max())) or 1.0  # squares of huge values would overflow
        mean = float(means[0] + unit * (n @ ((means - means[0]) / unit)) / n.sum())
        variance = float(n @ ((stddevs / unit) ** 2 + ((means - mean) / unit) ** 2) / n.sum())
        return replace(state, scale=(mean, unit * math.sqrt(variance) or 1.0))

    def _best_residual(self, state: GPState, reports: Mapping[str, Mapping[str, AnyArray]]) -> int:
        """Return the place of the residual variance with the largest likelihood of all data together."""
        assert state.setting is not None
        values = []
        for place, residual in enumerate(RESIDUALS):
            total = shared_mean.nothing(state.dim)
            for arrays in reports.values():
                found = shared_mean.nothing(state.dim)
                if place < SHARING:
                    found = unpacked(arrays["precision"][place], arrays["response"][place])
                total = total + replace(found, misfit=float(floats(arrays["misfit"])[place]))
            setting = np.array(state.setting, dtype=np.int64)
            values.append(shared_mean.log_likelihood(model(setting, state.dim, residual), total))
        return int(np.argmax(values))

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
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
                points = shared_mean.choose(believed, draws("choose", trial))[np.newaxis]
            else:
                content = Setting.of(task)
                seed, place, agents = content.design_seed, content.place, content.agents
                if seed < 0 or not 0 <= place < agents <= MAX_AGENTS:
                    raise WireError(
                        f"place: expected a seed and a place below agents <= {MAX_AGENTS}, got {seed}, "
                        f"{place}, {agents}"
                    )
                points = shared_mean.design(dim, agents, place, trial, left, seed)
            outcome = evaluate(
                Trials(agent_state.space.snap(points), pulls=np.ones(len(points), dtype=np.int64))
            )
            seen = seen.add(outcome)
            agent_state = agent_state.passed_to(outcome.next_trial)
        return agent_state.write(**seen.arrays())

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        """Return what the agent tells of its observations."""
        seen, scale = Observations.read(agent_state), read_scale(task.arrays)
        dim = agent_state.space.dimension
        sent = Evidences(exchange=Setting.of(task).exchange, evaluations=self.evaluations(agent_state))
        if scale is None:
            return replace(sent, moments=seen.moments())
        x, y, counts = seen.modelled(scale)
        within = float(seen.pulls.within.sum()) / scale[1] / scale[1]
        likelihoods = shared_mean.log_likelihoods(dim, x, y, counts, within).reshape(-1)
        if "setting" not in task.arrays:
            return replace(sent, likelihoods=likelihoods)
        found = [shared_mean.evidence(model(task.arrays["setting"], dim, d), x, y, counts) for d in RESIDUALS]
        return replace(
            sent,
            likelihoods=likelihoods,
            precision=np.array([pack_symmetric(e.precision) for e in found[:SHARING]]),
            response=np.array([e.response for e in found[:SHARING]]),
            misfit=np.array([e.misfit for e in found]),
        )

    @once_per_state
    def best_pulled(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return the point with the largest posterior mean, and its mean value; None without a success."""
        seen = Observations.read(agent_state)
        succeeded = np.flatnonzero(seen.pulls.count > 0)
        if len(succeeded) == 0:
            return None
        means, believed = seen.pulls.means()[succeeded], belief(agent_state, seen)
        expected = means if believed is None else believed.predict(seen.points[succeeded])[0]
        best = int(np.argmax(expected))
        return seen.points[succeeded[best]], float(means[best])
