"""`consensus`: agents agree on averages of the designs that each would evaluate next [Yue2025].

Every agent maximises its own acquisition, here that of `ei`. The server averages these designs with a
consensus matrix, at first uniformly, after `transition` iterations not at all. Each agent evaluates its
average. In the paper a client proposes, hears the average, then evaluates. Here an agent proposes its next
design directly after an evaluation and sends it with the same report, so one exchange suffices.

A design is averaged only if its agent answered the last round and its operator discloses its trials. An agent
without such a design evaluates its own. With one agent, or after the transition, this is `ei`.

Agent `k` evaluates `sum_j w_kj(t) x_j`, where `W(t)` moves from `1/K` everywhere to the identity [Yue2025]:

    w_kj(t) = (1 - s) / K + s [j = k],      s = min(t / T, 1).

Floats, integers and ordinals are averaged on their axis of the unit cube, then snapped. Categories cannot be
averaged: the one with the largest total weight wins, the agent's own in a tie. On the axis of a conditional
parameter only designs in which it is active count, with their weights scaled to the sum 1. If it is active in
none of them, it is at 0.5.

[Yue2025] Yue, Liu, Berahas, Johnson, Al Kontar: Collaborative and distributed Bayesian optimization via
consensus, IEEE Transactions on Automation Science and Engineering, 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fbo_flower.algorithms import check_integer
from fbo_flower.algorithms.messages import Content, real
from fbo_flower.algorithms.protocol import uniform_point
from fbo_flower.algorithms.records import AgentState, Array, IntArray, Phase, Task, Trials, floats
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.space import Categorical, SearchSpace
from studies.peers.exchanging import Exchanging, Told, Write


@dataclass(frozen=True)
class Designs:
    """The designs `x_j` of `K` agents, and their sums, so that each average takes a time independent of `K`.

    Attributes
    ----------
    points, active : `(K, D)`, snapped to the search space; 1 where a parameter is active, else 0
    total, count : `(D,)`, sums of the active coordinates, and how many are active
    bins, votes : axis of a category -> index of its value in each design `(K,)`; how many have each value
    """

    space: SearchSpace
    points: Array
    active: Array
    total: Array
    count: Array
    bins: Mapping[int, IntArray]
    votes: Mapping[int, Array]

    @staticmethod
    def of(space: SearchSpace, points: Array) -> Designs:
        """Return the designs at points `(K, D)` in the unit cube."""
        points = space.snap(points)
        active = space.active(points).astype(np.float64)
        bins: dict[int, IntArray] = {}
        votes: dict[int, Array] = {}
        for axis, parameter in enumerate(space.parameters.values()):
            if isinstance(parameter, Categorical):
                indices = parameter.bin_of(np.ascontiguousarray(points[:, axis]))
                bins[axis] = np.asarray(indices, dtype=np.int64)
                tally = np.bincount(bins[axis], weights=active[:, axis], minlength=parameter.num_values)
                votes[axis] = np.asarray(tally, dtype=np.float64)
        return Designs(space, points, active, (active * points).sum(axis=0), active.sum(axis=0), bins, votes)

    def mixed(self, row: int, progress: float) -> Array:
        """Return `sum_j w_kj x_j`, `(D,)`, for the agent of a row.

        Parameters
        ----------
        progress : `s`, from 0 (all agents alike) to 1 (the agent's own design)
        """
        share = (1.0 - progress) / len(self.points)
        own = progress * self.active[row]
        weight = share * self.count + own
        sums = share * self.total + own * self.points[row]
        point = np.where(weight > 0.0, sums / np.maximum(weight, 1e-300), 0.5)
        for axis, bins in self.bins.items():
            parameter = self.space.parameters[self.space.names[axis]]
            assert isinstance(parameter, Categorical)
            tally = share * self.votes[axis]
            if own[axis] or self.active[row, axis]:
                tally[bins[row]] += own[axis] + 1e-12  # the own category wins a tie
            point[axis] = parameter.centre_of(np.array([int(np.argmax(tally))]))[0]
        mixed: Array = self.space.snap(np.clip(point, 0.0, 1.0)[None, :])[0]
        return mixed


@dataclass(frozen=True, kw_only=True)
class Design(Content):
    """A task: the averaged design. A report: the agent's own next one."""

    design: Annotated[Array | None, real("D", low=0.0, high=1.0, disclose=("trials",))] = None


@dataclass(frozen=True, kw_only=True)
class Consensus(Exchanging):
    """Expected improvement with averaged designs; `LocalEI` describes the other options.

    Parameters
    ----------
    transition : `T`, evaluations after the initial design over which an agent's weight on its own design
        grows from `1/K` to 1; 0: designs are not averaged
    """

    name: ClassVar[str] = "consensus"
    task_content: ClassVar[type[Content]] = Design
    report_content: ClassVar[type[Content]] = Design

    transition: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("transition", self.transition, 0, 10_000)

    def writer(self, state: Told, trials: Mapping[str, int], rng: np.random.Generator) -> Write:
        """Return what averages the designs; a task holds none if it is the agent's own."""
        # a design whose task was sent and lost is older than the others
        fresh = [
            agent
            for agent, trial in trials.items()
            if state.messages.get(agent, (-1,))[0] == trial != state.sent.get(agent, (-1,))[0]
        ]
        designs = None
        if len(fresh) > 1:
            told = np.array([floats(state.messages[agent][1].design) for agent in fresh])
            designs = Designs.of(state.space, told)

        def write(agent: str, trial: int) -> Design:
            iteration = trial - self.num_initial  # t
            if designs is None or agent not in fresh or iteration >= self.transition:
                return Design()
            return Design(design=designs.mixed(fresh.index(agent), max(iteration, 0) / self.transition))

        return write

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Evaluate the averaged design, or the agent's own; then propose the next one."""
        if agent_state.next_trial >= task.end:
            return agent_state
        while agent_state.next_trial < task.end:
            trial = agent_state.next_trial
            if "design" in task.arrays and trial == task.trial:
                query = Trials(floats(task.arrays["design"])[None, :])
            else:
                agent_state = self._propose(task, agent_state, draws)
                own = proposal(agent_state)
                query = uniform_point(agent_state, draws("propose", trial)) if own is None else Trials(own)
            outcome = evaluate(query)
            agent_state = agent_state.learn(outcome)
        return self._propose(task, agent_state, draws)

    def _propose(self, task: Task, agent_state: AgentState, draws: Draws) -> AgentState:
        """Return the state with a design for the next trial, unless that trial is a random one."""
        if proposal(agent_state) is not None or self.is_random(task, agent_state):
            return agent_state
        trial = agent_state.next_trial
        query, fitted = self.step(task, agent_state, draws("propose", trial))
        assert fitted is not None
        number = np.array([trial], dtype=np.int64)
        return agent_state.write(design=query.points[0], design_trial=number, hyperparameters=fitted)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        own = proposal(agent_state)
        if task.phase is not Phase.TRAIN or own is None or agent_state.next_trial != task.end:
            return Design()
        return Design(design=own[0])


def proposal(agent_state: AgentState) -> Array | None:
    """Return the design `(1, D)` that the agent stores for its next trial, None if there is none."""
    if "design" not in agent_state.arrays:
        return None
    number = int(np.asarray(agent_state.arrays["design_trial"])[0])
    design: Array = floats(agent_state.arrays["design"])[None, :]
    return design if number == agent_state.next_trial else None
