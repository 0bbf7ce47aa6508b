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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.capabilities import Summand, observations_name
from fbo_flower.algorithms.ei.fed_options import FedEIState, Pool
from fbo_flower.algorithms.ei.task_check import FEATURES, SUMMED, check_task
from fbo_flower.algorithms.ei.trend import FederatedAgent
from fbo_flower.algorithms.progress import once_per_trial
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Phase,
    Report,
    Scalar,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.numerics.surrogates.trend import packed_size
from fbo_flower.space.space import SearchSpace

Content = tuple[int, dict[str, AnyArray], dict[str, Scalar]]


@dataclass(frozen=True, kw_only=True)
class FedEI(FederatedAgent):
    """Federated expected improvement; `FedEIOptions` describes the options."""

    name: ClassVar[str] = "fed-ei"
    needs_sums: ClassVar[bool] = False
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
        for agent in present:
            trial = state.progress.of(agent)
            # a generator per agent, so that one agent's draws do not depend on the others
            own = generator(seed, "centres", agent)
            write = partial(self._content, state, agent, trial, len(present) > 1, own)
            num_trials, arrays, values = once_per_trial(sent, agent, trial, write)
            tasks[agent] = Task(phase, server_round, trial, num_trials, arrays, values)
        return replace(state, sent=sent), tasks

    def _content(
        self, state: FedEIState, agent: str, trial: int, shares: bool, rng: np.random.Generator
    ) -> Content:
        """Return number of trials, arrays and values of an agent's task."""
        arrays: dict[str, AnyArray] = {}
        values: dict[str, Scalar] = {}
        pool = state.pool
        known = pool is not None and bool(pool.trials.keys() - {agent})
        if pool is not None and known:
            arrays |= pool.sums
            values["counted"] = pool.trials.get(agent, -1)
        if shares:
            values["share"] = True
        others = [a for a in sorted(state.points, key=natural_key) if a != agent]
        if len(others) > self.num_centres:
            others = [others[i] for i in np.sort(rng.choice(len(others), self.num_centres, replace=False))]
        if others:
            arrays["points"] = np.array([state.points[a] for a in others])
        if shares or known:
            arrays["frequencies"], arrays["phases"] = state.features.frequencies, state.features.phases
        return (1 if trial or known else self.num_initial), arrays, values

    def tell(self, state: FedEIState, phase: Phase, reports: Mapping[str, Report]) -> FedEIState:
        parts, points = dict(state.parts), dict(state.points)
        for agent, report in reports.items():
            if "point" in report.arrays:
                points[agent] = floats(report.arrays["point"])
            if "gram" in report.arrays:
                sums = {name: floats(report.arrays[name]) for name in SUMMED}
                parts[agent] = Pool(sums, {agent: report.trial + report.num_trials})
        return replace(state, progress=state.progress.advance(reports), parts=parts, points=points)

    # -- secure sums ---------------------------------------------------------------------------

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        if not self.secure_sums or not task.values.get("share"):
            return {}
        shapes = self._shapes()
        return {name: Summand(shapes[name], 1e9) for name in SUMMED}

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        return observations_name(task, agent_state)

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        check_task(task)
        return {name: task.arrays[name] for name in FEATURES}

    def skip_sum(self, state: FedEIState) -> FedEIState:
        return state  # the last sums stay in use

    def aggregate_sum(
        self, state: FedEIState, agents: Sequence[str], sums: Mapping[str, Array]
    ) -> FedEIState:
        trials = {agent: state.progress.of(agent) for agent in agents}
        return replace(state, pool=Pool(sums, trials))

    # -- what may cross the wire ---------------------------------------------------------------

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        size = self.num_features
        of_trend = {"gram": (packed_size(size),), "moment": (size,), "energy": (1,)}
        return {**of_trend, "agreement": (2,), "closeness": (2,)}

    def task_schema(self, space: SearchSpace) -> Schema:
        shapes = self._shapes()
        return Schema(
            arrays={
                "frequencies": ArraySpec((self.num_features, space.num_features)),
                "phases": ArraySpec((self.num_features,), low=0.0, high=2 * np.pi),
                "points": ArraySpec((None, space.dimension), low=0.0, high=1.0, max_length=self.num_centres),
                **{name: ArraySpec(shapes[name]) for name in SUMMED},
            },
            values={"share": bool, "counted": int},
        )

    def report_schema(self, space: SearchSpace) -> Schema:
        shapes = self._shapes() if not self.secure_sums else {}
        arrays = {name: ArraySpec(shape, low=-1e9, high=1e9) for name, shape in shapes.items()}
        if self.tilt:
            arrays["point"] = ArraySpec((space.dimension,), low=0.0, high=1.0)
        return Schema(arrays)


def _total(parts: Mapping[str, Pool]) -> Pool | None:
    """Return the sum of the agents' parts, None if there is none."""
    agents = sorted(parts, key=natural_key)  # sums of floats depend on the order
    if not agents:
        return None
    sums = {name: np.sum([parts[a].sums[name] for a in agents], axis=0) for name in SUMMED}
    return Pool(sums, {agent: parts[agent].trials[agent] for agent in agents})
