"""The options of `dp-vote`, its server's state, and its privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.algorithms.options import check_number, check_secure_sums
from fbo_flower.algorithms.progress import Attendance, Progress
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import Array
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy import sampled_epsilon
from fbo_flower.secure import keys
from fbo_flower.space import SearchSpace


@dataclass(frozen=True)
class VoteState:
    """The server's state.

    Parameters
    ----------
    space, agents : the search space; agents of the registration
    seed : of the list of configurations, which agents draw themselves
    progress, attendance : every agent's next trial; which agents answer
    votes : agent -> its votes with its noise `(P,)`; empty with secure sums
    total : the sum of all votes, from a secure sum
    asked, answered : agents that were asked for their votes; those that replied
    tally : the sum of the votes `(P,)`, after the vote
    winner : place of the winner in the list; None: there is none yet
    closed : whether the vote failed, so that there will be no winner
    """

    space: SearchSpace
    agents: tuple[str, ...]
    seed: int
    progress: Progress = field(default_factory=Progress)
    attendance: Attendance = field(default_factory=Attendance)
    votes: Mapping[str, Array] = field(default_factory=dict)
    total: Array | None = None
    asked: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    tally: Array | None = None
    winner: int | None = None
    closed: bool = False


@dataclass(frozen=True, kw_only=True)
class VoteOptions(Algorithm[VoteState]):
    """The options of a private vote on one configuration for all agents.

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

    num_configs: int = 20
    num_votes: int = 3
    noise_multiplier: float = 1.0
    delta: float = 1e-3
    max_evaluations_per_round: int = 5
    secure_sums: int = 3

    def __post_init__(self) -> None:
        check_number("num_configs", self.num_configs, 2, 4096, integer=True)
        check_number("num_votes", self.num_votes, 1, integer=True)
        check_number("noise_multiplier", self.noise_multiplier, 0, 1e6)
        check_number("delta", self.delta, 1e-15, 0.5)
        check_number("max_evaluations_per_round", self.max_evaluations_per_round, 1, 10_000, integer=True)
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
        """Return the noise multiplier of one agent's part of the noise.

        Every sum that can be opened holds at least `t` members (`keys.threshold`). Each adds noise of the
        variance `z^2 / t`, so their sum has at least `z^2`.

        Parameters
        ----------
        num_members : members of its group, this agent included; 1: it votes alone
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
