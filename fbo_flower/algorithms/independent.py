"""Algorithms whose agents tune alone, and the uniform points of every initial design.

The generator of `uniform_point` depends only on the seed, the agent and the trial, so all algorithms with one
seed start from the same points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Query, Report, Task
from fbo_flower.algorithms.trials_per_round import TrialsPerRound


def uniform_point(agent_state: AgentState, rng: Generator) -> Query:
    """Return one uniform point of the search space."""
    return Query(rng.random((1, agent_state.space.dimension)))


@dataclass(frozen=True, kw_only=True)
class Independent(TrialsPerRound, Algorithm[Progress]):
    """Every agent tunes alone: an initial design in one batch, then `trials_per_round` trials per round."""

    barrier: ClassVar[str] = ""
    needs_all_parameters: ClassVar[str] = ""

    def init(self, federation: Federation, rng: Generator) -> Progress:
        return Progress()

    def ask(
        self, state: Progress, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[Progress, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        trials = {agent: state.of(agent) for agent in present}
        return state, {
            agent: Task(phase, server_round, trial, self.trials_from(trial))
            for agent, trial in trials.items()
        }

    def tell(self, state: Progress, phase: Phase, reports: Mapping[str, Report]) -> Progress:
        return state.advance(reports)
