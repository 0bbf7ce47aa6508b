"""`Account`: how many answers a site has given, and how much epsilon they have cost.

The account covers all studies: a server cannot get a new budget by starting a new study. It is in the agent's
memory: a journal keeps it permanently; without a journal it is lost when the SuperNode stops.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from fbo_flower.clients.memory import Memory

_NOTE = "account"


@dataclass(frozen=True)
class Account:
    """Number of answers and total epsilon for each bag, "inbag" or "outbag"."""

    answers: dict[str, int] = field(default_factory=dict)
    epsilon: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def read(memory: Memory) -> Account:
        """Load the account from an agent's memory."""
        note = memory.note(_NOTE)
        answers, epsilon = (cast(dict[str, float], note.get(name, {})) for name in ("answers", "epsilon"))
        return Account({split: int(count) for split, count in answers.items()}, dict(epsilon))

    def write(self, memory: Memory) -> None:
        """Store the account in an agent's memory."""
        memory.put_note(_NOTE, {"answers": self.answers, "epsilon": self.epsilon})

    def charge(self, split: str, epsilon: float) -> Account:
        """Return the account after one more answer; the epsilons of answers about the same rows are added."""
        return replace(
            self,
            answers={**self.answers, split: self.answers.get(split, 0) + 1},
            epsilon={**self.epsilon, split: self.epsilon.get(split, 0.0) + epsilon},
        )


def noisy_rate(rate: float, num_rows: int, epsilon: float, rng: np.random.Generator) -> float:
    """Return a misclassification rate with Laplace noise, clipped to [0, 1].

    Replacing one row changes a rate over `n` rows by at most `1 / n`. So noise `Lap(1 / (n epsilon))` makes
    the answer epsilon-differentially private for the replacement of one row (Dwork et al. 2006). Clipping the
    noisy rate needs no further epsilon. `n` is sent without noise.
    """
    return float(np.clip(rate + rng.laplace(scale=1.0 / (num_rows * epsilon)), 0.0, 1.0))
