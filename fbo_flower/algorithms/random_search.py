"""Uniform random search: no model, no communication. The model for adding an algorithm.

The first points of every algorithm are drawn here (`uniform_point`), from a generator that depends
only on the agent and the trial, so that all algorithms with one seed start from the same points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Query, Report, Task
from fbo_flower.algorithms.session import Stepwise


def uniform_point(agent_state: AgentState, rng: np.random.Generator) -> Query:
    """Return one uniform point of the search space."""
    return Query(rng.random((1, agent_state.space.dimension)))


@dataclass(frozen=True, kw_only=True)
class Independent(Stepwise, Algorithm[Progress]):
    """Every agent for itself: an initial design in one batch, then one trial a round; nothing travels.

    Parameters
    ----------
    num_initial : trials of the first round, one batch
    """

    num_initial: int = 3

    def __post_init__(self) -> None:
        check_number("num_initial", self.num_initial, 1, 10_000, integer=True)

    def init(self, federation: Federation, rng: np.random.Generator) -> Progress:
        return Progress()

    def ask(
        self,
        state: Progress,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[Progress, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        trials = {agent: state.of(agent) for agent in present}
        return state, {
            agent: Task(phase, server_round, trial, self.num_initial if trial == 0 else 1)
            for agent, trial in trials.items()
        }

    def tell(self, state: Progress, phase: Phase, reports: Mapping[str, Report]) -> Progress:
        return state.advance(reports)


@dataclass(frozen=True, kw_only=True)
class RandomSearch(Independent):
    """Uniform random search; `Independent` explains its option."""

    name: ClassVar[str] = "random"

    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        if agent_state.next_trial >= task.end:
            return None
        return uniform_point(agent_state, rng)
