"""Whom to ask in a round: agents that are silent, that have used up their budget, or that want fewer rounds.

An agent says at registration in which share of the rounds it wants tasks, and in a report that it has used up
its budget of evaluations. The server asks it for no more evaluations. What it has sent stays in use. A round
waits for a silent agent until its timeout, so silent agents are asked less often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from fbo_flower.algorithms.records import Phase
from fbo_flower.numerics.seeding import generator
from fbo_flower.strategies.registration import AgentRegistry

_SILENT_ROUNDS = 3  # silent rounds in a row after which an agent is asked less often
_LONGEST_REST = 8  # rounds between two tasks of a silent agent


@dataclass
class Silence:
    """Which agents have sent no reply to their last task.

    Parameters
    ----------
    rounds : agent -> number of silent rounds in a row, and the last one
    """

    rounds: dict[str, tuple[int, int]] = field(default_factory=dict)

    def due(self, agents: Sequence[str], server_round: int) -> list[str]:
        """Return the agents without those that rest because they have sent no reply for three rounds or more.

        An agent that was silent for three rounds in a row is asked again in the second round after the last
        one, then in the fourth, then in every eighth.
        """
        return [agent for agent in agents if server_round >= self._next_round(agent)]

    def note(self, agent: str, server_round: int, silent: bool) -> None:
        """Note whether an agent sent no reply to a task of a round."""
        number, last = self.rounds.pop(agent, (0, 0))
        if silent:
            self.rounds[agent] = number + (last != server_round), server_round

    def _next_round(self, agent: str) -> int:
        number, last = self.rounds.get(agent, (0, 0))
        if number < _SILENT_ROUNDS:
            return last
        return last + min(1 << (number - _SILENT_ROUNDS + 1), _LONGEST_REST)


def takes_part(seed: int, agent: str, server_round: int, share: float) -> bool:
    """Return whether an agent that wants tasks in a share of the rounds gets one in this round.

    Its rounds are spread evenly, from a random first one: of any `n` rounds in a row it takes part in
    `share n`, up to one round.
    """
    if share == 1.0:
        return True
    offset = float(generator(seed, "server", "participation", agent).random())
    return floor(server_round * share + offset) > floor((server_round - 1) * share + offset)


def willing(
    registry: AgentRegistry, agents: Sequence[str], phase: Phase, server_round: int, seed: int
) -> list[str]:
    """Return the agents that may be asked in a half-round.

    Agents without a budget are left out of TRAIN only: later exchanges of a round make no evaluations.
    """
    spent = registry.spent if phase is Phase.TRAIN else set()
    shares = {} if phase is Phase.FINISH else registry.participation
    return [
        agent
        for agent in agents
        if agent not in spent and takes_part(seed, agent, server_round, shares.get(agent, 1.0))
    ]


def all_spent(registry: AgentRegistry) -> bool:
    """Return whether every agent has used up its budget of evaluations."""
    return bool(registry.nodes) and registry.nodes.keys() <= registry.spent


def longest_pause(registry: AgentRegistry) -> int:
    """Return the number of rounds of which every agent takes part in one at least."""
    return ceil(1.0 / min(registry.participation.values(), default=1.0))


def end_line(registry: AgentRegistry, server_round: int) -> str:
    """Return the line of the log that says why the study has ended before its last round."""
    number, others = len(registry.spent), len(registry.nodes.keys() - registry.spent)
    agents = f"{number} agent{'' if number == 1 else 's'}"
    rest = f"; the algorithm has no work for the other {others}" if others else ""
    have = "has" if number == 1 else "have"
    return (
        f"{agents} {have} used up the budget of evaluations (max_trials){rest}: the study ends after round "
        f"{server_round}"
    )
