"""`Account`: how many answers a site has given, and how much epsilon they have cost.

The account covers all studies: a server cannot get a new budget by starting a new study. It is in the agent's
memory: a journal keeps it permanently; without a journal it is lost when the SuperNode stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import cast

from fbo_flower.clients.memory import Memory
from fbo_flower.numerics.discrete_noise import noisy_count

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


def noisy_rate(rate: float, num_rows: int, epsilon: float, uniform: Callable[[int], int]) -> float:
    """Return a misclassification rate with discrete Laplace noise on the count of wrong rows, in [0, 1].

    One row more or less wrong changes the count by 1, so `P(k) ~ exp(-epsilon |k|)` makes the answer
    epsilon-differentially private for the replacement of one row [Canonne2020]. The count is an integer and
    the noise is drawn without floating point: the bits of the answer depend on the noisy count alone.
    `num_rows` is sent without noise.

    Parameters
    ----------
    uniform : `uniform(n)` returns a uniform integer in `[0, n)`; `secrets.randbelow` on devices

    References
    ----------
    [Canonne2020] Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, NeurIPS 2020.
    """
    return noisy_count(round(rate * num_rows), num_rows, Fraction(epsilon), uniform) / num_rows
