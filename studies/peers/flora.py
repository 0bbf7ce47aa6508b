"""`flora`: every agent tunes alone, then one exchange gives one configuration for all [Zhou2021].

An agent spends its local budget with the steps of `ei`. Then it sends a regression of its values, as two sums
over its observations in random features that all agents share. The server combines the regressions to one
surface (`studies.peers.loss_surfaces`), maximises it, and sends the maximiser to all agents, which
evaluate it as their last trial.

The sums `Phi^T Phi` and `Phi^T y` carry a regression as plain numbers; a pickled model would carry code. They
also determine the agent's points and values, so one agent's sums leave it only if its operator discloses
its trials. For `combine = "single"` and "uncertainty" the server needs only their totals, which secure sums
give it without that consent.

A late agent that finds the configuration decided evaluates it first, and nothing else.

[Zhou2021] : see `studies.peers.loss_surfaces`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from fbo_flower.algorithms.ei.local import LocalEI
from fbo_flower.algorithms.messages import Content, real, summable
from fbo_flower.algorithms.progress import MAX_MISSED, once_per_trial
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Federation,
    Payload,
    Phase,
    Query,
    Report,
    Task,
    floats,
    natural_key,
)
from fbo_flower.algorithms.requests import Draws, Rng, Session, alone
from fbo_flower.algorithms.search import searching
from fbo_flower.errors import WireError
from fbo_flower.numerics.surrogates.rff import RandomFeatures, draw_features
from fbo_flower.space import SearchSpace
from studies.peers.flora_options import FloraOptions, FloraState, Surface
from studies.peers.loss_surfaces import combined, packed_size, statistics

NUM_CANDIDATES = 2048  # of the server's maximisation
LARGEST = 1e9


def _packed(algorithm: Any, space: SearchSpace) -> int:
    return packed_size(algorithm.num_features)


@dataclass(frozen=True, kw_only=True)
class Work(Content):
    """A task: share a surface in these features, or evaluate the configuration for all agents."""

    share: bool = False
    frequencies: Annotated[Array | None, real("num_features", "F")] = None
    phases: Annotated[Array | None, real("num_features", low=0.0, high=2 * np.pi)] = None
    design: Annotated[Array | None, real("D", low=0.0, high=1.0)] = None


@dataclass(frozen=True, kw_only=True)
class Sums(Content):
    """A report: `Phi^T Phi`, packed, and `Phi^T y`."""

    gram: Annotated[Array | None, summable(_packed, bound=LARGEST)] = None
    moment: Annotated[Array | None, summable("num_features", bound=LARGEST)] = None


@dataclass(frozen=True, kw_only=True)
class FLoRA(FloraOptions, LocalEI[FloraState]):
    """One exchange of loss surfaces; `FloraOptions` describes the options."""

    name: ClassVar[str] = "flora"
    task_content: ClassVar[type[Content]] = Work
    report_content: ClassVar[type[Content]] = Sums
    repeats_observations: ClassVar[bool] = False  # an agent sends one surface in a study
    finishes: ClassVar[bool] = True
    consent: ClassVar[Mapping[str, tuple[str, ...]]] = {"gram": ("trials",), "moment": ("trials",)}

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> FloraState:
        columns = federation.space.num_features
        features = draw_features(self.num_features, self.lengthscale * columns**0.5, columns, rng)
        return FloraState(federation.space, federation.agents, features)

    def ask(
        self,
        state: FloraState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[FloraState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        state = self._decide(state, rng)
        waiting = [agent for agent in present if state.progress.of(agent) < self.num_local]
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        asks = state.shared is None and not state.closed and not state.attendance.responsive(waiting)
        for agent in present:
            trial = state.progress.of(agent)
            if agent in state.judged:
                continue
            if state.shared is not None or trial < self.num_local:
                count, arrays = once_per_trial(sent, agent, trial, partial(self._content, state, trial))
                tasks[agent] = Task(phase, server_round, trial, count, arrays)
            elif asks:
                shared = Work(
                    share=True, frequencies=state.features.frequencies, phases=state.features.phases
                )
                tasks[agent] = shared.task(phase, server_round, trial, 0)
        return replace(state, sent=sent, attendance=state.attendance.ask(tasks)), tasks

    def _content(self, state: FloraState, trial: int) -> tuple[int, dict[str, AnyArray]]:
        """Return number of trials and arrays of an agent's task."""
        if state.shared is not None:
            return 1, {"design": state.shared}
        return (min(self.num_initial, self.num_local) if trial == 0 else 1), {}

    def tell(self, state: FloraState, phase: Phase, reports: Mapping[str, Report]) -> FloraState:
        surfaces, judged, answered = dict(state.surfaces), set(state.judged), set(state.answered)
        for agent, report in reports.items():
            trial, (_, arrays) = state.sent.get(agent, (-1, (0, {})))
            if report.num_trials == 0:
                answered.add(agent)
            elif trial == report.trial and "design" in arrays:
                judged.add(agent)
            if {"gram", "moment"} <= report.arrays.keys():
                surfaces[agent] = floats(report.arrays["gram"]), floats(report.arrays["moment"])
        return replace(
            state,
            progress=state.progress.advance(reports),
            attendance=state.attendance.tell(reports),
            surfaces=surfaces,
            judged=frozenset(judged),
            answered=frozenset(answered),
        )

    def _decide(self, state: FloraState, rng: np.random.Generator) -> FloraState:
        """Return the state with the shared configuration, once surfaces or their total have come."""
        if state.shared is not None or state.closed:
            return state
        agents = sorted(state.surfaces, key=natural_key)  # sums of floats depend on the order
        sums = [state.surfaces[agent] for agent in agents] if state.total is None else [state.total]
        if not sums:
            # nobody consented: without secure sums the exchange has taken place and brought nothing
            return replace(state, closed=bool(state.answered) and not self.secure_sums)
        surface = combined(self.combine, state.features, sums, self.ridge, self.caution)
        nothing = np.empty((0, state.space.dimension))
        point = alone(searching(surface, state.space, nothing, nothing, NUM_CANDIDATES, 0.0, rng))
        return replace(state, shared=point[0])

    def finished(self, state: FloraState) -> bool:
        if state.closed:
            return True
        missed = state.attendance.missed
        known = {*state.agents, *state.progress.next_trial}
        return bool(state.judged) and all(a in state.judged or missed.get(a, 0) >= MAX_MISSED for a in known)

    def description(self, state: FloraState) -> dict[str, object]:
        """Return the shared configuration; empty before it is decided."""
        return {} if state.shared is None else {"shared": state.space.decode(state.shared)}

    def progress_lines(self, state: FloraState, before: FloraState) -> list[str]:
        """Return a log line when the shared configuration is decided."""
        if state.shared is None or before.shared is not None:
            return []
        return [f"one configuration for all agents: {state.space.decode(state.shared)}"]

    # -- secure sums ---------------------------------------------------------------------------

    def asks_for_sum(self, task: Task) -> bool:
        return Work.of(task).share

    def sum_name(self, task: Task, agent_state: AgentState) -> str:
        return "surface"  # an agent sends one in a study

    def sum_content(self, task: Task) -> Mapping[str, AnyArray]:
        features = _features(task)
        return {"frequencies": features.frequencies, "phases": features.phases}

    def skip_sum(self, state: FloraState) -> FloraState:
        return replace(state, closed=True)

    def aggregate_sum(
        self, state: FloraState, agents: Sequence[str], sums: Mapping[str, Array]
    ) -> FloraState:
        total: Surface = sums["gram"], sums["moment"]
        return replace(state, total=total)

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        """Evaluate the shared configuration, or step as `ei` does."""
        if Work.of(task).share:
            _features(task)  # refuse a task that cannot be answered before anything is evaluated
        if "design" in task.arrays and agent_state.next_trial == task.trial < task.end:
            outcome = yield Query(floats(task.arrays["design"])[None, :])
            agent_state = agent_state.learn(outcome)
        return (yield from super().session(task, agent_state, draws))

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        if not Work.of(task).share or not agent_state.history.num_succeeded:
            return Payload()
        x, y = self.observations(agent_state)
        gram, moment = statistics(_features(task)(x), y)
        return Sums(gram=gram, moment=moment).payload


def _features(task: Task) -> RandomFeatures:
    missing = [name for name in ("frequencies", "phases") if name not in task.arrays]
    if missing:
        raise WireError(f"arrays: expected {', '.join(missing)} in a task that asks for a surface, got none")
    return RandomFeatures(floats(task.arrays["frequencies"]), floats(task.arrays["phases"]))
