"""Uniform random search: no surrogate, no communication. Copy this file to add an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fbo_flower.algorithms.protocol import Independent, uniform_point
from fbo_flower.algorithms.records import AgentState, Task, Trials
from fbo_flower.algorithms.requests import Rng


@dataclass(frozen=True, kw_only=True)
class RandomSearch(Independent):
    """Uniform random search; `TrialsPerRound` describes its options."""

    name: ClassVar[str] = "random"
    takes_outputs: ClassVar[bool] = True

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials:
        return uniform_point(agent_state, rng())
