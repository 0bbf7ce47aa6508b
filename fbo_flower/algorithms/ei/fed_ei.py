"""`fed-ei`: expected improvement, guided by what the other agents have in common.

In each round an agent sends two sums over its observations, `Phi^T Phi` and `Phi^T y` in random features that
all agents share. The server only hands out their totals, so secure sums can hide every agent's part. An agent
subtracts its own part and regresses. The result, the trend of the others, is the prior mean of its own model,
with the weight that its own values and the federation's give it (`numerics.surrogates.trend`). If operators
allow it, agents also send their best points, without values. An agent's steps then prefer the neighbourhoods
of the others' points, less so with each observation.

An agent that joins late begins with the trend's best point in place of random ones.
`docs/papers/fed_ei.md` has the equations and what the server can infer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.ei import noisy_sums
from fbo_flower.algorithms.ei.fed_options import FedEIState, Pool
from fbo_flower.algorithms.ei.task_check import FEATURES, NOISY, check_task
from fbo_flower.algorithms.ei.trend import FederatedAgent
from fbo_flower.algorithms.progress import once_per_trial
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Payload,
    Phase,
    Report,
    Scalar,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.server_results import ServerResults
from fbo_flower.algorithms.summand import Summand
from fbo_flower.numerics.discrete_noise import Uniform
from fbo_flower.numerics.privacy_account import Account
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.numerics.surrogates.trend import packed_size
from fbo_flower.space.space import SearchSpace

Content = tuple[int, dict[str, AnyArray], dict[str, Scalar]]


@dataclass(frozen=True, kw_only=True)
class FedEI(FederatedAgent):
    """Federated expected improvement; `FedEIOptions` describes the options."""

    name: ClassVar[str] = "fed-ei"
    barrier: ClassVar[str] = ""
    needs_all_parameters: ClassVar[str] = ""
    needs_sums: ClassVar[bool] = False
    repeats_observations: ClassVar[bool] = True
    reports_with_trials: ClassVar[bool] = True
    consent: ClassVar[Mapping[str, tuple[str, ...]]] = {"point": ("point", "trials")}

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> FedEIState:
        num_columns = federation.space.num_features
        scale = self.lengthscale * num_columns**0.5
        return FedEIState(federation.space, draw_features(self.num_features, scale, num_columns, rng))

    def ask(
        self,
        state: FedEIState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[FedEIState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        seed = int(rng.integers(2**63))
        if not self.secure_sums:
            state = replace(state, pool=_total(state.parts))
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        shares = len({*present, *state.progress.next_trial}) > 1
        holders = sorted(state.points, key=natural_key)
        places = {holder: place for place, holder in enumerate(holders)}
        points = np.array([state.points[holder] for holder in holders])
        for agent in present:
            trial = state.progress.of(agent)
            others = partial(self._others, points, places.get(agent), seed, agent)
            write = partial(self._content, state, agent, trial, shares, others)
            num_trials, arrays, values = once_per_trial(sent, agent, trial, write)
            tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        return replace(state, sent=sent), tasks

    def _content(
        self,
        state: FedEIState,
        agent: str,
        trial: int,
        shares: bool,
        others: Callable[[], Array],
    ) -> Content:
        """Return number of trials, arrays and values of an agent's task.

        Parameters
        ----------
        shares : whether the agent is to add to the sums
        others : returns others' best points
        """
        arrays: dict[str, AnyArray] = {}
        values: dict[str, Scalar] = {}
        pool = state.pool
        known = pool is not None and len(pool.trials) > (agent in pool.trials)
        if pool is not None and known:
            arrays |= pool.sums
            values["counted"] = pool.trials.get(agent, -1)
            if self.noise_multiplier:
                values["observed"] = sum(pool.trials.values())
        if shares:
            values["share"] = True
        if pool is not None and known and self.noise_multiplier:
            values["summed"] = len(pool.trials)
        points = others()
        if len(points):
            arrays["points"] = points
        if shares or known:
            arrays["frequencies"], arrays["phases"] = state.features.frequencies, state.features.phases
        return self.trials_from(trial, known), arrays, values

    def _others(self, points: Array, own: int | None, seed: int, agent: str) -> Array:
        """Return at most `num_centres` of the best points `(n, D)`, without the agent's own one.

        Each agent gets a draw of its own. If all got the same points, they would look at the same places, and
        find less.
        """
        count = len(points) - (own is not None)
        if count <= self.num_centres:
            return points if own is None else np.delete(points, own, axis=0)
        rng = generator(seed, "centres", agent)
        chosen = np.sort(rng.choice(count, self.num_centres, replace=False))
        return points[chosen if own is None else chosen + (chosen >= own)]

    def tell(self, state: FedEIState, phase: Phase, reports: Mapping[str, Report]) -> FedEIState:
        parts, points, released = dict(state.parts), dict(state.points), dict(state.num_released)
        for agent, report in reports.items():
            if "point" in report.arrays:
                points[agent] = floats(report.arrays["point"])
            if "moment" in report.arrays:
                told = {name: floats(report.arrays[name]) for name in self._shapes()}
                sums = _with_earlier_evidence(told, parts.get(agent))
                released[agent] = released.get(agent, 0) + 1
                parts[agent] = Pool(sums, {agent: report.trial + report.num_trials})
        progress = state.progress.advance(reports)
        return replace(state, progress=progress, parts=parts, points=points, num_released=released)

    # -- secure sums ---------------------------------------------------------------------------

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        if not self.secure_sums or not task.values.get("share"):
            return {}
        stddev = noisy_sums.own_stddev(self.noise_multiplier, self.secure_sums)
        bound = noisy_sums.BOUND + 100.0 * stddev if stddev else 1e9
        return {name: Summand(shape, bound) for name, shape in self._shapes().items()}

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        return super().sum_name(task, agent_state)

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        check_task(task, self.noise_multiplier > 0)
        return {name: task.arrays[name] for name in FEATURES}

    def skip_sum(self, state: FedEIState) -> FedEIState:
        return state  # the last sums stay in use

    def aggregate_sum(
        self, state: FedEIState, agents: Sequence[str], sums: Mapping[str, Array]
    ) -> FedEIState:
        trials = {agent: state.progress.of(agent) for agent in agents}
        released = {**state.num_released, **{a: state.num_released.get(a, 0) + 1 for a in agents}}
        pool = Pool(_with_earlier_evidence(sums, state.pool), trials)
        return replace(state, pool=pool, num_released=released)

    # -- differential privacy ------------------------------------------------------------------

    def protect(self, task: Task, agent_state: AgentState, payload: Payload, uniform: Uniform) -> Payload:
        if not self.noise_multiplier or "moment" not in payload.arrays:
            return payload
        part = np.concatenate([floats(payload.arrays[name]) for name in NOISY])
        noisy = noisy_sums.with_noise(part, self.noise_multiplier, self.secure_sums, uniform)
        return replace(payload, arrays={**payload.arrays, "moment": noisy[:-2], "agreement": noisy[-2:]})

    def uses_observations(self, task: Task, space: SearchSpace) -> bool:
        return bool(task.values.get("share"))

    def message_noise(self) -> float:
        return float(self.noise_multiplier / np.sqrt(max(self.secure_sums, 1)))

    def results(self, state: FedEIState) -> ServerResults | None:
        if not self.noise_multiplier:
            return None
        count = max(state.num_released.values(), default=0)
        epsilon = Account({(self.noise_multiplier, 1.0): count}).epsilon(self.delta) if count else 0.0
        noise = "in sums of all agents" if self.secure_sums else "local"
        return ServerResults.of_noise(noise, epsilon, self.delta, {"messages": count})

    # -- what may cross the wire ---------------------------------------------------------------

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        size = self.num_features
        if self.noise_multiplier:
            return {"moment": (size,), "agreement": (2,)}
        of_trend = {"gram": (packed_size(size),), "moment": (size,), "energy": (1,)}
        return {**of_trend, "agreement": (2,), "closeness": (2,)}

    def task_schema(self, space: SearchSpace) -> Schema:
        shapes = self._shapes()
        noisy: dict[str, type] = {"summed": int, "observed": int} if self.noise_multiplier else {}
        return Schema(
            arrays={
                "frequencies": ArraySpec((self.num_features, space.num_features)),
                "phases": ArraySpec((self.num_features,), low=0.0, high=2 * np.pi),
                "points": ArraySpec((None, space.dimension), low=0.0, high=1.0, max_length=self.num_centres),
                **{name: ArraySpec(shape) for name, shape in shapes.items()},
            },
            values={"share": bool, "counted": int, **noisy},
        )

    def report_schema(self, space: SearchSpace) -> Schema:
        shapes = self._shapes() if not self.secure_sums else {}
        arrays = {name: ArraySpec(shape, low=-1e9, high=1e9) for name, shape in shapes.items()}
        if self.tilt:
            arrays["point"] = ArraySpec((space.dimension,), low=0.0, high=1.0)
        return Schema(arrays)


def _with_earlier_evidence(sums: Mapping[str, Array], earlier: Pool | None) -> Mapping[str, Array]:
    """Return sums whose "closeness", which agents compute from their newest values only, is that of all."""
    if earlier is None or "closeness" not in sums:
        return sums
    return {**sums, "closeness": sums["closeness"] + earlier.sums["closeness"]}


def _total(parts: Mapping[str, Pool]) -> Pool | None:
    """Return the sum of the agents' parts, None if there is none."""
    agents = sorted(parts, key=natural_key)  # sums of floats depend on the order
    if not agents:
        return None
    names = parts[agents[0]].sums
    sums = {name: np.sum([parts[a].sums[name] for a in agents], axis=0) for name in names}
    return Pool(sums, {agent: parts[agent].trials[agent] for agent in agents})
