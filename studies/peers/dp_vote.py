"""`dp-vote`: agents vote privately for one configuration of a list, DP-Hype [Liebenow2025].

Every agent evaluates all `P` configurations of a list and, with the last one, votes for its best `k`. The
votes of all agents are added by secure sums with distributed noise, and the configuration with most votes
wins. One agent's votes are a vector of `k` ones, so replacing them changes a sum by at most `sqrt(2 k)`,
whatever `P` is. With noise of the standard deviation `z sqrt(2 k)` the sum is a Gaussian mechanism with
multiplier `z`, and the winner is computed from it. Noise is a discrete Gaussian on a grid of about `2^-40`
votes; a sum of these is not exactly one, but the difference is far below any `delta` [Kairouz2021].

[Liebenow2025] Liebenow, Peinemann, Mohammadi: DP-Hype: distributed differentially private hyperparameter
search, arXiv 2510.04902.
[Kairouz2021] Kairouz, Liu, Steinke: The distributed discrete Gaussian mechanism for federated learning with
secure aggregation, ICML 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from fbo_flower.algorithms import check_integer, check_number
from fbo_flower.algorithms.messages import Content, Replies, summable
from fbo_flower.algorithms.options import check_secure_sums
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    Best,
    Federation,
    IntArray,
    Phase,
    Scalar,
    ServerResults,
    Task,
    Trials,
    floats,
)
from fbo_flower.algorithms.requests import Draws, Evaluation, Rng
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.discrete_noise import Uniform, add_noise, grid_step, to_steps
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.privacy import sampled_epsilon
from fbo_flower.numerics.seeding import generator
from fbo_flower.secure import keys
from fbo_flower.space import SearchSpace
from studies.peers.exchanging import Gathered


def listed_points(space: SearchSpace, num_configs: int, seed: int) -> Array:
    """Return the points `(P, D)` of the list, spread over the space; a small discrete space repeats some."""
    return space.snap(sobol(num_configs, space.dimension, generator(seed, "listed configurations")))


def first_places(points: Array) -> IntArray:
    """Return for each point `(P, D)` the first place in the list where it stands, `(P,)`."""
    _, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.reshape(-1)], dtype=np.int64)


def votes(history: Trials, points: Array, num_votes: int) -> Array:
    """Return an agent's votes `(P,)`: 1 for each of its best `num_votes` configurations, else 0.

    A trial's place in the list is its id. A configuration that was evaluated more than once counts with the
    mean of its values, at its first place. Failed evaluations get no vote; in a tie the earlier place wins.
    """
    places = first_places(points)
    rows = (history.trials >= 0) & (history.trials < len(points)) & np.isfinite(history.values)
    at, values = places[history.trials[rows]], history.values[rows]
    # values near the largest float would overflow in a sum
    values = values / max(float(np.abs(values).max(initial=0.0)), 1e-300)
    total, count = (np.bincount(at, weights, minlength=len(points)) for weights in (values, None))
    known = np.flatnonzero(count)
    ballot = np.zeros(len(points))
    ballot[known[np.argsort(-total[known] / count[known], kind="stable")[:num_votes]]] = 1.0
    return ballot


@dataclass(frozen=True)
class VoteState(Gathered):
    """The server's state.

    Parameters
    ----------
    seed : of the list of configurations, which agents draw themselves
    asked : agents that were asked for their votes
    tally, winner : the sum of the votes `(P,)` and its place in the list; None: there is none yet
    announced : whether agents were told the winner
    """

    seed: int = 0
    asked: frozenset[str] = frozenset()
    tally: Array | None = None
    winner: int | None = None
    announced: bool = False


@dataclass(frozen=True, kw_only=True)
class Ballot(Content):
    """A task: the seed of the list, whether to vote, and at the end the place of the winner."""

    seed: int = -1
    vote: bool = False
    winner: int = -1


@dataclass(frozen=True, kw_only=True)
class Votes(Content):
    """A report: the agent's noisy votes."""

    votes: Annotated[
        Array | None, summable("num_configs", bound="largest_vote", repeats=False, with_trials=True)
    ] = None

    @classmethod
    def is_asked_by(cls, task: Task) -> bool:
        return Ballot.of(task).vote

    asks_for_sum = is_asked_by

    @classmethod
    def sum_name(cls, task: Task, agent_state: AgentState) -> str:
        return "votes"  # an agent votes once in a study

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        return {"seed": np.array([_seed(task)], dtype=np.int64)}


@dataclass(frozen=True, kw_only=True)
class DPVote(Algorithm[VoteState]):
    """A private vote on one configuration for all agents.

    Parameters
    ----------
    num_configs : `P`, configurations on the list; every agent evaluates all of them
    num_votes : `k`, configurations that an agent votes for
    noise_multiplier : `z`, standard deviation of the noise on a sum of votes, divided by `sqrt(2 k)`, the
        largest change when one agent's votes are replaced; 0: no noise and no privacy
    delta : `delta` of `(epsilon, delta)`; choose it smaller than 1 divided by the number of agents
    max_evaluations_per_round : largest number of trials of an agent in a round
    secure_sums : smallest number of agents in a sum. Members share the noise: each adds its part of it,
        for the smallest number of members whose sum can be opened. 0: every agent adds all of the noise to
        its own votes, which the server sees
    """

    name: ClassVar[str] = "dp-vote"
    task_content: ClassVar[type[Content]] = Ballot
    report_content: ClassVar[type[Content]] = Votes
    budget_option: ClassVar[str] = "num_configs"

    num_configs: int = 20
    num_votes: int = 3
    noise_multiplier: float = 1.0
    delta: float = 1e-3
    max_evaluations_per_round: int = 5
    secure_sums: int = 3

    def __post_init__(self) -> None:
        check_integer("num_configs", self.num_configs, 2, 4096)
        check_integer("num_votes", self.num_votes, 1)
        check_number("noise_multiplier", self.noise_multiplier, 0, 1e6)
        check_number("delta", self.delta, 1e-15, 0.5)
        check_integer("max_evaluations_per_round", self.max_evaluations_per_round, 1, 10_000)
        check_secure_sums(self.secure_sums)
        if self.num_votes >= self.num_configs:
            raise ConfigError(
                f"num_votes: expected fewer than num_configs={self.num_configs}, got {self.num_votes}"
            )

    @property
    def sensitivity(self) -> float:
        """Return `sqrt(2 k)`: the largest change of a sum when one agent's votes are replaced by others."""
        return math.sqrt(2.0 * self.num_votes)

    def own_noise(self, num_members: int) -> float:
        """Return the noise multiplier of one agent's part of the noise in a group; 1 member: it votes alone.

        Every sum that can be opened holds at least `t` members (`keys.threshold`). Each adds noise of the
        variance `z^2 / t`, so their sum has at least `z^2`.
        """
        shared = self.secure_sums and num_members > 1
        sharing = keys.threshold(num_members, self.secure_sums) if shared else 1
        return self.noise_multiplier / math.sqrt(sharing)

    def epsilon(self, count: int) -> float:
        """Return `epsilon` after `count` votes; it does not depend on the number of configurations.

        Neighbouring federations differ in one agent's votes. With secure sums this holds against everybody
        who sees the sum and knows no member's noise.
        """
        return sampled_epsilon(self.noise_multiplier, 1.0, count, self.delta)

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: np.random.Generator) -> VoteState:
        return VoteState(federation.space, federation.agents, seed=int(rng.integers(2**31)))

    def ask(
        self,
        state: VoteState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[VoteState, dict[str, Task]]:
        values: dict[str, Scalar] = {"seed": state.seed}
        trials = {agent: state.progress.of(agent) for agent in present}
        if phase is Phase.FINISH and state.winner is not None and not state.announced:
            values["winner"], state = state.winner, replace(state, announced=True)
            return state, {a: Task(phase, server_round, t, 0, {}, values) for a, t in trials.items()}
        if phase is not Phase.TRAIN:
            return state, {}
        state = self._count(state)
        last = self.num_configs - 1  # a report with noise belongs to a trial: votes come with the last one
        waiting = [agent for agent, trial in trials.items() if trial < last]
        over = state.winner is not None or state.closed
        if over:  # only tasks whose answers were lost are sent again, without a vote
            silent = state.attendance.missed
            waiting = [a for a, trial in trials.items() if a in silent and trial < self.num_configs]
        tasks = {}
        for agent in waiting:
            count = max(min(self.max_evaluations_per_round, last - trials[agent]), 1)
            tasks[agent] = Task(phase, server_round, trials[agent], count, {}, values)
        if not over and not state.attendance.responsive(waiting):
            voters = [agent for agent, trial in trials.items() if trial == last]
            state = replace(state, asked=state.asked.union(voters))
            for agent in voters:
                tasks[agent] = Task(phase, server_round, last, 1, {}, {**values, "vote": True})
        return replace(state, attendance=state.attendance.ask(tasks)), tasks

    def tell(self, state: VoteState, phase: Phase, replies: Replies) -> VoteState:
        if phase is not Phase.TRAIN:
            return state
        answered = any(report.trial + 1 == self.num_configs for report in replies.values())
        return state.hear(replies, ("votes",), answered)

    def _count(self, state: VoteState) -> VoteState:
        """Return the state with the winner, once votes or their sum have come."""
        if state.winner is not None or state.closed:
            return state
        if not state.parts:
            return replace(state, closed=state.answered)  # nobody voted, or there was no sum
        tally = np.sum([votes for (votes,) in state.parts], axis=0)
        places = first_places(listed_points(state.space, self.num_configs, state.seed))
        distinct = places == np.arange(self.num_configs)
        return replace(state, tally=tally, winner=int(np.argmax(np.where(distinct, tally, -np.inf))))

    def finished(self, state: VoteState) -> bool:
        return state.winner is not None or state.closed or (bool(state.asked) and not state.waits_for(()))

    def results(self, state: VoteState) -> ServerResults:
        """Return epsilon, and after the vote the winner and the sum of the votes with their noise."""
        count = int(bool(state.asked))
        noise = "distributed" if self.secure_sums else "local"
        spent = ServerResults.of_noise(noise, self.epsilon(count), self.delta, {"messages": count})
        if state.winner is None or state.tally is None:
            return spent
        points = listed_points(state.space, self.num_configs, state.seed)
        found = {"shared": state.space.decode(points[state.winner]), "votes": state.tally.tolist()}
        return replace(spent, found=found)

    def progress_lines(self, state: VoteState, before: VoteState) -> list[str]:
        """Return a log line when there is a winner."""
        if state.winner is None or before.winner is not None:
            return []
        return [f"one configuration for all agents: {self.results(state).found['shared']}"]

    @property
    def largest_vote(self) -> float:
        """The largest absolute value of a noisy vote."""
        return 1.0 + 100.0 * self.sensitivity * self.noise_multiplier

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials:
        if task.end > self.num_configs:
            raise WireError(f"trials: expected at most {self.num_configs} in all, got {task.end}")
        points = listed_points(agent_state.space, self.num_configs, _seed(task))
        return Trials(points[agent_state.next_trial : task.end])

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Evaluate the next configurations of the list; at the end of the study, store the winner."""
        _seed(task)  # refuse a task that cannot be answered before anything is evaluated
        agent_state = super().session(task, agent_state, draws, evaluate)
        if task.phase is not Phase.FINISH or "winner" not in task.values:
            return agent_state
        winner = int(task.values["winner"])
        if not 0 <= winner < self.num_configs:
            raise WireError(f"winner: expected a place from 0 to {self.num_configs - 1}, got {winner}")
        points = listed_points(agent_state.space, self.num_configs, _seed(task))
        return agent_state.write(winner=points[winner])

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        if not Ballot.of(task).vote:
            return Votes()
        points = listed_points(agent_state.space, self.num_configs, _seed(task))
        # zeros without a success are sent too: that there was none must not be known
        return Votes(votes=votes(agent_state.history, points, self.num_votes))

    def protect(self, task: Task, agent_state: AgentState, content: Any, uniform: Uniform) -> Any:
        """Add the agent's part of the noise to its votes."""
        if content.votes is None:
            return content
        num_members = len(task.arrays["secure.members"]) + 1 if "secure.members" in task.arrays else 1
        step = grid_step(self.sensitivity, self.noise_multiplier)
        stddev = self.sensitivity * self.own_noise(num_members)
        noisy = add_noise(to_steps(content.votes, step), stddev, step, uniform)
        return Votes(votes=noisy)

    def message_noise(self) -> float:
        """Return the noise multiplier of an agent's own noise in the largest group, where it is least."""
        return self.own_noise(keys.largest_group(self.secure_sums) if self.secure_sums else 1)

    def best(self, agent_state: AgentState, *, own: bool = True) -> Best | None:
        """Return the winner, once the agent knows it and if its evaluation there succeeded."""
        history = agent_state.history
        if "winner" in agent_state.arrays:
            winner = floats(agent_state.arrays["winner"])
            values = history.values[(history.points == winner).all(axis=1)]
            if np.isfinite(values).any():
                return Best(winner, float(np.nanmax(values)))
        return super().best(agent_state, own=own)


def _seed(task: Task) -> int:
    """Return the seed of the list; WireError if the task has none, or one that no generator takes."""
    seed = Ballot.of(task).seed
    if not 0 <= seed < 2**31:
        raise WireError(f"seed: expected a number from 0 to 2^31 - 1, got {task.values.get('seed')!r}")
    return seed
