"""`share-best` and `share-random`: every fourth evaluation repeats another agent's best point, else `ei`.

`share-best` repeats the best of all others' best points by raw values, `share-random` one of them drawn at
random. Only agents whose operators disclose trials tell their best point; all get the points of others. With
limits, an agent tells a point only if it holds its own; with several objectives it tells one of its front,
drawn at random, and none counts as better than another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fbo_flower.algorithms import check_integer
from fbo_flower.algorithms.messages import Content, real
from fbo_flower.algorithms.records import AgentState, Array, Phase, Task, Trials, floats, natural_key
from fbo_flower.algorithms.requests import Rng
from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.numerics.seeding import generator
from studies.peers.exchanging import Exchanging, Told, Write


@dataclass(frozen=True, kw_only=True)
class Copied(Content):
    """A task: the point to repeat."""

    point: Annotated[Array | None, real("D", low=0.0, high=1.0)] = None


@dataclass(frozen=True, kw_only=True)
class Best(Content):
    """A report: the agent's best point and its value."""

    point: Annotated[Array | None, real("D", low=0.0, high=1.0, disclose=("trials",))] = None
    value: Annotated[Array | None, real(1, disclose=("trials",))] = None


@dataclass(frozen=True, kw_only=True)
class ShareBest(Exchanging):
    """Repeat the best of the others' best points; `LocalEI` describes the other options.

    Parameters
    ----------
    every : which evaluations after the initial design are repetitions: the first and then each `every`-th
    """

    name: ClassVar[str] = "share-best"
    takes_outputs: ClassVar[bool] = True
    task_content: ClassVar[type[Content]] = Copied
    report_content: ClassVar[type[Content]] = Best
    barrier: ClassVar[str] = ""

    every: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("every", self.every, 1, 10_000)

    def writer(self, state: Told, trials: Mapping[str, int], rng: np.random.Generator) -> Write:
        """Return what writes the point that an agent is to repeat, if its trial is a repetition."""
        seed = int(rng.integers(2**63))

        def write(agent: str, trial: int) -> Copied:
            told = [state.messages[a][1] for a in sorted(state.messages, key=natural_key) if a != agent]
            others = [(floats(best.point), float(best.value[0])) for best in told]
            due = trial >= self.num_initial and (trial - self.num_initial) % self.every == 0
            if not (due and others):
                return Copied()
            return Copied(point=self.chosen(others, generator(seed, "share", agent)))

        return write

    def chosen(self, others: Sequence[tuple[Array, float]], rng: np.random.Generator) -> Array:
        """Return one of the others' best points."""
        return max(others, key=lambda best: best[1])[0]

    def is_random(self, task: Task, agent_state: AgentState) -> bool:
        return "point" not in task.arrays and super().is_random(task, agent_state)

    def step(
        self, task: Task, agent_state: AgentState, rng: np.random.Generator
    ) -> tuple[Trials, Array | None]:
        """Return the point to repeat, unless the agent knows its value; else the step of `ei`."""
        point = Copied.of(task).point
        if point is not None and agent_state.next_trial == task.trial:
            snapped = agent_state.space.snap(floats(point)[None, :])
            if not (agent_state.history.points == snapped).all(axis=1).any():
                return Trials(snapped), None
        if not agent_state.history.num_succeeded:
            return Trials(rng.random((1, agent_state.space.dimension))), None
        return super().step(task, agent_state, rng)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        history, objectives = agent_state.history, len(agent_state.aims.objectives)
        values = agent_state.usable_values(own=True)
        usable = np.flatnonzero(np.isfinite(values))
        if objectives > 1 and len(usable):
            assert history.outputs is not None
            front = usable[non_dominated(history.outputs[usable, :objectives])]
            values = np.full(len(values), np.nan)
            values[rng().choice(front)] = 0.0
        if task.phase is not Phase.TRAIN or not np.isfinite(values).any():
            return Best()
        row = int(np.nanargmax(values))
        return Best(point=agent_state.history.points[row], value=values[[row]])


@dataclass(frozen=True, kw_only=True)
class ShareRandom(ShareBest):
    """Repeat the best point of another agent, drawn at random; values are not compared."""

    name: ClassVar[str] = "share-random"

    def chosen(self, others: Sequence[tuple[Array, float]], rng: np.random.Generator) -> Array:
        return others[int(rng.integers(len(others)))][0]
