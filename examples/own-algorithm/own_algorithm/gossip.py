"""Gossip: every agent searches near its own best point or near that of another agent.

After each round the agents send their best points, without values, to the server. With the next task the
server sends each agent the best point of another one, drawn at random. The agent then explores with
probability `epsilon` (a uniform point), else it takes a Gaussian step from one of the two points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from fbo_flower.algorithms import (
    Algorithm,
    Content,
    Phase,
    Progress,
    Trials,
    check_integer,
    check_number,
    real,
)


@dataclass(frozen=True, kw_only=True)
class Neighbour(Content):  # a task: the best point of another agent
    neighbour: Annotated[np.ndarray | None, real("D", low=0.0, high=1.0)] = None


@dataclass(frozen=True, kw_only=True)
class Incumbent(Content):  # a report: the agent's best point
    incumbent: Annotated[np.ndarray | None, real("D", low=0.0, high=1.0)] = None


@dataclass(frozen=True)
class GossipState:
    """What the server knows: how far each agent is, and its best point `(D,)`."""

    progress: Progress = field(default_factory=Progress)
    incumbents: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Gossip(Algorithm[GossipState]):
    """Epsilon-greedy search with exchanged best points.

    Parameters
    ----------
    num_initial : uniform trials of the first round, one batch
    epsilon : chance of a uniform point in every later round
    step : standard deviation of a step, in units of the cube's side
    """

    name: ClassVar[str] = "gossip"
    task_content: ClassVar[type[Content]] = Neighbour
    report_content: ClassVar[type[Content]] = Incumbent

    num_initial: int = 3
    epsilon: float = 0.2
    step: float = 0.1

    def __post_init__(self) -> None:
        check_integer("num_initial", self.num_initial, 1, 10_000)
        check_number("epsilon", self.epsilon, 0, 1)
        check_number("step", self.step, 1e-6, 1)

    # -- the server ----------------------------------------------------------------------------

    def init(self, federation, rng):
        return GossipState()

    def ask(self, state, phase, server_round, present, rng):
        if phase is not Phase.TRAIN:
            return state, {}
        tasks = {}
        for agent in present:
            others = [other for other in state.incumbents if other != agent]
            point = state.incumbents[others[rng.integers(len(others))]] if others else None
            trial = state.progress.of(agent)
            count = self.num_initial if trial == 0 else 1
            tasks[agent] = Neighbour(neighbour=point).task(phase, server_round, trial, count)
        return state, tasks

    def tell(self, state, phase, replies):
        sent = {a: r.arrays["incumbent"] for a, r in replies.items() if "incumbent" in r.arrays}
        known = {**state.incumbents, **sent}
        return GossipState(state.progress.advance(replies), {agent: known[agent] for agent in sorted(known)})

    # -- an agent ------------------------------------------------------------------------------

    def propose(self, task, agent_state, rng):
        rng = rng()
        best = self.best(agent_state, own=False)
        own = None if best is None else best.point
        centres = [p for p in (own, task.arrays.get("neighbour")) if p is not None]
        if agent_state.next_trial < self.num_initial or not centres or rng.random() < self.epsilon:
            return Trials(rng.random((1, agent_state.space.dimension)))
        centre = centres[rng.integers(len(centres))]
        return Trials(np.clip(centre + self.step * rng.standard_normal((1, len(centre))), 0, 1))

    def summarise(self, task, agent_state, rng):
        best = self.best(agent_state, own=False)
        return Incumbent(incumbent=None if best is None else best.point)
