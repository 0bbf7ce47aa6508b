"""Several trials between two exchanges: an agent makes `k` steps of its own before it answers.

An exchange over a network takes seconds, whatever is in it. With `k > 1` an agent uses the advice of one
exchange for `k` steps, each with the model of all its observations so far, as the local epochs of federated
averaging use one global model [McMahan2017]. Messages and sums are made once per exchange.

[McMahan2017] McMahan et al.: Communication-efficient learning of deep networks from decentralized data,
AISTATS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

from fbo_flower.algorithms.options import Configurable, integer


@dataclass(frozen=True, kw_only=True)
class TrialsPerRound(Configurable):
    """The sizes of an agent's tasks: its initial design first, then `k` trials in each round.

    Parameters
    ----------
    num_initial : random trials of an agent's first round, evaluated as one batch
    trials_per_round : `k`, trials of an agent in every later round. It sends and receives messages once per
        round, so more of them save exchanges and use older advice
    """

    num_initial: int = integer(3, 1, 10_000)
    trials_per_round: int = integer(1, 1, 10_000)

    def trials_from(self, trial: int, advised: bool = False) -> int:
        """Return the number of trials of the task that begins at `trial`.

        Parameters
        ----------
        advised : whether advice replaces the initial design
        """
        return self.trials_per_round if trial > 0 or advised else self.num_initial


def answers_in_part(algorithm: object) -> bool:
    """Return whether an agent may do the first trials of a task only, if its operator allows no more.

    Parameters
    ----------
    algorithm : without the secure sums that may wrap it
    """
    return isinstance(algorithm, TrialsPerRound)
