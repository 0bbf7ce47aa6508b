"""Fed1-UCB: elimination of random arms by their mean over the agents [Shi2021].

In a phase every agent pulls every active arm `ceil(10 log T)` times, in an order of its own. Then the server
drops the arms whose upper bound does not exceed the best lower bound. The last arm is pulled until the budget
is spent. The mathematics is in `numerics.bandits.ucb`.

The mean of an arm leaves out agents that did not pull it. A phase does not wait for agents that left their
last task unanswered. An agent that returns takes part in the current phase. A failed pull uses up a trial but
does not count as a pull of the arm.

[Shi2021] Shi, Shen. Federated multi-armed bandits. AAAI 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.bandits import base
from fbo_flower.algorithms.bandits.base import BanditState, BatchedBandit, PullMeans
from fbo_flower.algorithms.messages import Content, Replies, whole
from fbo_flower.algorithms.options import bounded, integer
from fbo_flower.algorithms.records import AgentState, Array, Federation, IntArray, Phase, Task, Trials
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.errors import WireError
from fbo_flower.numerics.bandits import elimination, ucb
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True, kw_only=True)
class Arms(Content):
    """A task: the seed of all arms, the active ones and the pulls wanted of each; at the end the best arm."""

    arms_seed: int = -1
    phase: int = -1
    pulls: int = 0
    best: int = -1
    arms: Annotated[IntArray | None, whole(None, most=base.most_rows)] = None


@dataclass(frozen=True)
class Fed1State(BanditState):
    """The server's state, besides what `BanditState` has."""

    arms_seed: int  # seed of the arms
    num_arms: int  # `K`
    active: IntArray  # arms that are not eliminated, ascending
    phase: int = 0  # number of the current phase, from 0
    means: Mapping[str, Array] = field(default_factory=dict)  # agent -> its statistics of all arms, `(K,)`
    counts: Mapping[str, IntArray] = field(default_factory=dict)
    # agent -> pulls that it has still to make in this phase
    owed: Mapping[str, int] = field(default_factory=dict)
    announced: bool = False  # whether agents were told the best arm


@dataclass(frozen=True, kw_only=True)
class Fed1UCB(BatchedBandit[Fed1State]):
    """Elimination of random arms by their mean over the agents; `BatchedBandit` describes other options.

    Parameters
    ----------
    noise_stddev : `sigma` of the confidence radius `sqrt(4 sigma^2 log T / n)`
    arms_seed : seed of the arms; None: the server draws one
    """

    name: ClassVar[str] = "fed1-ucb"
    task_content: ClassVar[type[Content]] = Arms
    report_content: ClassVar[type[Content]] = PullMeans

    noise_stddev: float = bounded(1.0, 0)
    arms_seed: int | None = integer(None, 0, base.MAX_SEED)

    def most_rows(self, space: SearchSpace) -> int:
        """Return the largest number of arms in a report."""
        return base.num_arms(space.dimension)

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> Fed1State:
        count = base.num_arms(federation.space.dimension)
        seed = base.drawn_seed(self.arms_seed, rng)
        return Fed1State(federation.agents, seed, count, np.arange(count, dtype=np.int64))

    def ask(
        self, state: Fed1State, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[Fed1State, dict[str, Task]]:
        if phase is not Phase.FINISH or state.announced or not state.counts:
            return super().ask(state, phase, server_round, present, rng)
        state, merged = replace(state, announced=True), self._merged(state)
        if not merged.num_clients.any():
            return state, {}
        best = int(state.active[np.argmax(np.where(merged.num_clients > 0, merged.mean, -np.inf))])
        content = Arms(arms_seed=state.arms_seed, best=best)  # the best merged mean, for all that took part
        members = [agent for agent in present if agent in state.counts]
        return state, {a: content.task(phase, server_round, state.progress.of(a), 0) for a in members}

    def next_pulls(self, state: Fed1State, agent: str, left: int) -> tuple[Content | None, int]:
        pulls = ucb.phase_length(self.budget) if len(state.active) > 1 else self.budget
        content = Arms(arms_seed=state.arms_seed, phase=state.phase, pulls=pulls, arms=state.active)
        owed = state.owed.get(agent, pulls * len(state.active))
        most = min(owed, left, self.max_evaluations_per_round)
        return content if most > 0 else None, most

    def tell(self, state: Fed1State, phase: Phase, reports: Replies) -> Fed1State:
        means, counts, owed = dict(state.means), dict(state.counts), dict(state.owed)
        for agent, (mean, count, left) in PullMeans.about(reports, len(state.active)).items():
            means[agent] = means.get(agent, np.zeros(state.num_arms)).copy()
            counts[agent] = counts.get(agent, np.zeros(state.num_arms, dtype=np.int64)).copy()
            means[agent][state.active], counts[agent][state.active] = mean, count
            owed[agent] = left
        state = replace(
            state, means=base.in_order(means), counts=base.in_order(counts), owed=base.in_order(owed)
        )
        return super().tell(state, phase, reports)

    def _merged(self, state: Fed1State) -> elimination.Merged:
        """Return the statistics of the active arms over the agents that pulled them."""
        agents = list(state.counts)
        means = [state.means[agent][state.active] for agent in agents]
        return elimination.merge(means, [state.counts[agent][state.active] for agent in agents])

    def close(self, state: Fed1State, waiting: Sequence[str]) -> Fed1State:
        """Eliminate arms, once all waiting agents that answer have made their pulls [Shi2021, Alg. 1]."""
        waiting = state.attendance.responsive(waiting)
        if not state.owed or len(state.active) == 1 or any(state.owed.get(a, 1) > 0 for a in waiting):
            return state
        if not waiting:  # the budget ended within this phase, or nobody answers now
            return state
        merged = self._merged(state)
        known = merged.num_clients > 0
        active = state.active[known]
        radius = ucb.fed1_radius(merged.count[known], 1, self.budget, self.noise_stddev)
        if len(active):
            active = active[ucb.fed1_survivors(merged.mean[known], radius)]
        return replace(state, active=active if len(active) else state.active, phase=state.phase + 1, owed={})

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Pull the arms of a phase, arm by arm, in a random order; the next task goes on with the rest.

        If the budget ends within a phase, agents with different orders have together pulled more arms.
        """
        content, dim = Arms.of(task), agent_state.space.dimension
        count, seed = base.num_arms(dim), base.checked_seed(content.arms_seed)
        wanted = np.asarray(() if content.arms is None else content.arms, dtype=np.int64)
        if not -1 <= content.best < count or (wanted >= count).any():
            raise WireError(f"best, arms: expected arms from 0 to {count - 1}, got {content.best}, {wanted}")
        phase, known = content.phase, int(np.sum(agent_state.arrays.get("phase.number", -2)))
        done = np.zeros(count, dtype=np.int64)
        if known > -2 and (phase < 0 or known == phase):
            phase, done = known, np.array(agent_state.arrays["phase.done"], dtype=np.int64)
        pulls, points = base.read_pulls(agent_state), base.points(seed, dim)
        numbers = {"seed": seed, "best": content.best, "phase.number": phase}
        agent_state = agent_state.write(**{n: np.array([k], dtype=np.int64) for n, k in numbers.items()})
        while (left := task.end - agent_state.next_trial) > 0 and len(wanted):
            active = draws("order", phase).permutation(wanted)
            taken = base.first_that_fit(np.maximum(0, content.pulls - done[active]), left)
            rows = active[taken > 0]
            if len(rows) == 0:
                break
            outcome = evaluate(Trials(agent_state.space.snap(points[rows]), pulls=taken[taken > 0]))
            done[rows] += outcome.spans
            pulls, agent_state = (
                base.with_outcome(pulls, rows, outcome),
                agent_state.passed_to(outcome.next_trial),
            )
        return agent_state.write(**pulls.arrays("arms."), **{"phase.done": done})

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        content, sent = Arms.of(task), PullMeans(evaluations=self.evaluations(agent_state))
        if content.arms is None:
            return sent
        active = np.asarray(content.arms, np.int64)
        done = np.asarray(agent_state.arrays["phase.done"], dtype=np.int64)[active]
        owed = np.maximum(0, content.pulls - done).sum(keepdims=True)
        pulls = base.read_pulls(agent_state).rows(active)
        return replace(sent, means=pulls.means(), counts=pulls.count, owed=owed)

    @base.once_per_state
    def best_pulled(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return the arm that the server announced, if the agent pulled it; else its arm of best mean."""
        pulls = base.read_pulls(agent_state)
        if not pulls.count.any():
            return None
        named = int(np.sum(agent_state.arrays.get("best", -1)))
        known = named >= 0 and pulls.count[named] > 0
        return base.recommended(agent_state, pulls, named if known else int(np.argmax(pulls.means(-np.inf))))
