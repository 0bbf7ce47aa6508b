"""Silent agents: a round waits for them until its timeout, so they are asked less often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
