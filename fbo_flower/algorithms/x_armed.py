"""What the X-armed bandits have in common: a budget, a partition, and how smooth the objective is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from fbo_flower.algorithms.protocol import Algorithm, check_choice, check_number

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class XArmedBandit(Algorithm[State]):
    """A search of cells that ends with its budget.

    Parameters
    ----------
    budget : `T`, evaluations of every agent
    nu, rho : a cell of depth `h` holds nothing better than its centre by more than `nu rho^h`
    c : of the confidence radius
    arity : "binary": a depth halves one dimension; "full": every dimension, for `D <= 3`
    max_evaluations_per_round : bound of one agent's work between two messages
    """

    finishes: ClassVar[bool] = True

    budget: int = 20_000
    nu: float = 1.0
    rho: float = 0.5
    c: float = 0.1
    arity: str = "binary"
    max_evaluations_per_round: int = 10_000

    def __post_init__(self) -> None:
        check_number("budget", self.budget, 1, 10**9, integer=True)
        check_number("nu", self.nu, 1e-12)
        check_number("rho", self.rho, 1e-6, 1 - 1e-6)
        check_number("c", self.c, 1e-12)
        check_choice("arity", self.arity, ("binary", "full"))
        check_number("max_evaluations_per_round", self.max_evaluations_per_round, 1, 10**7, integer=True)

    def branching(self, dim: int) -> int:
        """Return `k`, the children of a cell."""
        return 2 if self.arity == "binary" else 2**dim
