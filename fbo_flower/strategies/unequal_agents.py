"""Agents with budgets of their own: whom to ask in a round, and when nobody has anything left to do.

An agent says at registration in which share of the rounds it wants tasks, and in a report that it has used up
its budget of evaluations. The server asks it for no more evaluations. What it has sent stays in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor

from fbo_flower.algorithms.records import Phase
from fbo_flower.numerics.seeding import generator
from fbo_flower.strategies.registration import AgentRegistry


def takes_part(seed: int, agent: str, server_round: int, share: float) -> bool:
    """Return whether an agent that wants tasks in a share of the rounds gets one in this round.

    Its rounds are spread evenly, from a random first one: of any `n` rounds in a row it takes part in
    `share n`, up to one round.
    """
    offset = float(generator(seed, "server", "participation", agent).random())
    return floor(server_round * share + offset) > floor((server_round - 1) * share + offset)


def willing(
    registry: AgentRegistry, agents: Sequence[str], phase: Phase, server_round: int, seed: int
) -> list[str]:
    """Return the agents that may be asked in a half-round.

    Agents without a budget are left out of TRAIN only: later exchanges of a round make no evaluations.
    """
    shares: Mapping[str, float] = registry.participation
    spent = registry.spent if phase is Phase.TRAIN else set()
    return [
        agent
        for agent in agents
        if agent not in spent
        and (
            phase is Phase.FINISH
            or agent not in shares
            or takes_part(seed, agent, server_round, shares[agent])
        )
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
