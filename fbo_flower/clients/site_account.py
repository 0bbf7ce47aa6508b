"""How often a site has answered, and how much of its privacy that has cost.

The account is kept beside the memory of the studies: a server that begins another study does not begin
another budget. It lasts as long as the agent's memory: with a journal for good, without one until the
SuperNode ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from fbo_flower.clients.memory import Memory

_NOTE = "account"


@dataclass(frozen=True)
class Account:
    """Answers given and epsilon spent, by the rows they are about: "inbag" or "outbag"."""

    answers: dict[str, int] = field(default_factory=dict)
    epsilon: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def read(memory: Memory) -> Account:
        """Return the account in an agent's memory."""
        note = memory.note(_NOTE)
        answers, epsilon = (cast(dict[str, float], note.get(name, {})) for name in ("answers", "epsilon"))
        return Account({split: int(count) for split, count in answers.items()}, dict(epsilon))

    def write(self, memory: Memory) -> None:
        """Keep the account in an agent's memory."""
        memory.put_note(_NOTE, {"answers": self.answers, "epsilon": self.epsilon})

    def charge(self, split: str, epsilon: float) -> Account:
        """Return the account after one more answer; epsilons of answers about the same rows add up."""
        return replace(
            self,
            answers={**self.answers, split: self.answers.get(split, 0) + 1},
            epsilon={**self.epsilon, split: self.epsilon.get(split, 0.0) + epsilon},
        )


def noisy_rate(rate: float, num_rows: int, epsilon: float, rng: np.random.Generator) -> float:
    """Return a misclassification rate with Laplace noise, clipped to [0, 1].

    One row more or less wrong changes a rate over `n` rows by `1 / n`, so `Lap(1 / (n epsilon))` makes the
    answer epsilon-differentially private for the replacement of one row (Dwork et al. 2006); clipping
    afterwards costs nothing. `n` itself is told as it is.
    """
    return float(np.clip(rate + rng.laplace(scale=1.0 / (num_rows * epsilon)), 0.0, 1.0))
