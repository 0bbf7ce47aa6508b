"""Which agents have left a federation, judged by the rounds in which each of them took part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

GAPS = 5  # an agent that misses this many mean gaps has left; of those present 1 in 150 is taken for one


@dataclass(frozen=True)
class RoundsPresent:
    """The rounds in which agents took part.

    A server that asks a fraction `f` of the agents in each round sees an agent every `1 / f` rounds. So an
    absence counts in units of the mean gap between two rounds of an agent, over all agents.

    Parameters
    ----------
    rounds : agent -> its first round, its last round, and in how many it took part
    now : the latest round
    """

    rounds: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    now: int = 0

    def enter(self, agents: Iterable[str], server_round: int) -> RoundsPresent:
        """Return the record with the agents of a round; a round that is entered again counts once."""
        rounds = dict(self.rounds)
        for agent in agents:
            first, last, count = rounds.get(agent, (server_round, 0, 0))
            rounds[agent] = first, server_round, count + (last != server_round)
        return RoundsPresent(rounds, max(self.now, server_round))

    def mean_gap(self) -> float:
        """Return the mean number of rounds from one round of an agent to its next; infinite if unknown."""
        number = sum(count - 1 for _, _, count in self.rounds.values())
        return (
            sum(last - first for first, last, _ in self.rounds.values()) / number if number else float("inf")
        )

    def have_left(self) -> frozenset[str]:
        """Return the agents that took part once and have left."""
        longest = GAPS * self.mean_gap()
        return frozenset(a for a, (_, last, _) in self.rounds.items() if self.now - last > longest)
