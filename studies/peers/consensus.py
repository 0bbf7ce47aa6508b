"""`consensus`: agents agree on averages of the designs that each would evaluate next [Yue2025].

Every agent maximises its own acquisition, here that of `ei`. The server averages these designs with a
consensus matrix, at first uniformly, after `transition` iterations not at all. Each agent
evaluates its average.

In the paper a client proposes, hears the average, then evaluates: two exchanges per evaluation. Here an agent
proposes its next design directly after an evaluation and sends it with the same report, so one exchange per
evaluation suffices, and no proposal is older than the agent's observations.

A design is averaged only if its agent answered the last round and its operator discloses its trials, because
averages and designs tell which points it evaluates. An agent without such a design evaluates its own. With
one agent, or after the transition, this is `ei`.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar

import numpy as np

from fbo_flower.algorithms import check_integer
from fbo_flower.algorithms.ei.local import LocalEI
from fbo_flower.algorithms.messages import Content, Replies, real
from fbo_flower.algorithms.progress import Progress, once_per_trial, uniform_point
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
from fbo_flower.space import Categorical, SearchSpace


@dataclass(frozen=True)
class Designs:
    """The designs `x_j` of `K` agents, and their sums, so that each average takes a time independent of `K`.

    Attributes
    ----------
    points : `(K, D)`, snapped to the search space
    active : `(K, D)`, 1 where a parameter is active, else 0
    total : `(D,)`, sums of the active coordinates
    count : `(D,)`, in how many designs each parameter is active
    bins : axis of a category -> `(K,)`, index of its value in each design
    votes : axis of a category -> how many designs have each of its values
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


@dataclass(frozen=True)
class ConsensusState:
    """The server's state.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    designs : agent -> trial and point `(D,)` of its next design
    sent : agent -> trial and arrays of its last task, so that a lost task is sent again unchanged
    """

    space: SearchSpace
    progress: Progress = field(default_factory=Progress)
    designs: Mapping[str, tuple[int, Array]] = field(default_factory=dict)
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Consensus(LocalEI[ConsensusState]):
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

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> ConsensusState:
        return ConsensusState(federation.space)

    def ask(
        self,
        state: ConsensusState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[ConsensusState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        trials = {agent: state.progress.of(agent) for agent in present}
        # a design whose task was sent and lost is older than the others
        fresh = [
            agent
            for agent, trial in trials.items()
            if state.designs.get(agent, (-1,))[0] == trial != state.sent.get(agent, (-1,))[0]
        ]
        designs = None
        if len(fresh) > 1:
            designs = Designs.of(state.space, np.array([state.designs[a][1] for a in fresh]))
        rows = {agent: row for row, agent in enumerate(fresh)}
        tasks: dict[str, Task] = {}
        sent = dict(state.sent)
        for agent, trial in trials.items():
            average = partial(self._average, designs, rows.get(agent), trial)
            arrays = once_per_trial(sent, agent, trial, average)
            tasks[agent] = Task(phase, server_round, trial, 1 if trial else self.num_initial, arrays)
        return replace(state, sent=sent), tasks

    def _average(self, designs: Designs | None, row: int | None, trial: int) -> dict[str, AnyArray]:
        """Return the averaged design for an agent's task; nothing if it is the agent's own."""
        iteration = trial - self.num_initial  # t
        if designs is None or row is None or iteration >= self.transition:
            return {}
        return {"design": designs.mixed(row, max(iteration, 0) / self.transition)}

    def tell(self, state: ConsensusState, phase: Phase, reports: Replies) -> ConsensusState:
        designs = dict(state.designs)
        for agent, report in reports.items():
            if "design" in report.arrays:
                designs[agent] = report.trial + report.num_trials, floats(report.arrays["design"])
        return replace(state, progress=state.progress.advance(reports), designs=designs)

    # -- the agent's half ----------------------------------------------------------------------

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
