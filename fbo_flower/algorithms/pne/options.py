"""The options of PF-PNE, of its racing variant, and of each of its stages alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fbo_flower.algorithms.bandits.base import Bandit, XArmedBandit, check_arity, check_most
from fbo_flower.algorithms.options import check_choice, check_number, check_secure_sums
from fbo_flower.errors import ConfigError

State = TypeVar("State")
AGGREGATES = ("mean", "median", "trimmed")
LITERAL_ONLY = ("gap", "c", "c1", "delta", "h0", "aggregate", "trim", "secure_sums")


@dataclass(frozen=True, kw_only=True)
class Elimination:
    """Options of phased elimination.

    Parameters
    ----------
    gap : `Delta`, largest expected difference at the optima between the mean of all objectives and an agent's
        own objective
    c1 : constant of the confidence radius `c sqrt(log(c1 T / delta) / n)`
    delta : probability that a confidence interval fails; None: `1 / M`, for `M` agents
    h0 : transition depth, the last one of stage 1: "literal": the deepest `h` with `nu rho^h >= Delta`;
        "ceil": the first `h` with `nu rho^h <= Delta`
    aggregate : how the server merges the agents' means of a cell: "mean" (the paper); "median" or "trimmed"
        if some agents may lie, which takes more pulls at every depth
    trim : share of the agents that "trimmed" leaves out at each end
    secure_sums : smallest number of agents in a secure sum of statistics: the server sees the sum but no
        agent's own report; only with `aggregate = "mean"`. 0: the server sees all reports
    """

    gap: float = 0.01
    c1: float = 1.0
    delta: float | None = None
    h0: str = "literal"
    aggregate: str = "mean"
    trim: float = 0.2
    secure_sums: int = 0


@dataclass(frozen=True, kw_only=True)
class PhasedOptions(Elimination, XArmedBandit[State]):
    """Options of phased elimination; `Elimination` and `XArmedBandit` describe them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_elimination(self)


@dataclass(frozen=True, kw_only=True)
class PNEOptions(Elimination, Bandit[State]):
    """Personalised federated X-armed bandit; `Bandit` and `Elimination` describe the other options.

    Those of `Elimination` and `c` have an effect only with `variant = "literal"`.

    Parameters
    ----------
    variant : "literal": the paper's algorithm; "racing": ours, which chooses cells by upper confidence bound
        and needs no constants; "gp": ours for budgets up to some hundreds, a Gaussian process whose mean
        function the agents learn together, without cells
    nu, rho : smoothness: no point of a cell of depth `h` is better than its centre by more than `nu rho^h`.
        None: 1 and 1/2 for "literal"; for "racing" they are learned, and given values are lower bounds
    c : constant of the confidence radius `c sqrt(log(c1 T / delta) / n)`
    arity : "binary": each depth halves one dimension; "full": each depth halves every dimension, for `D <= 3`
    max_evaluations_per_round : largest number of trials of one agent in a round
    """

    variant: str = "literal"
    nu: float | None = None
    rho: float | None = None
    c: float = 0.1
    arity: str = "binary"
    max_evaluations_per_round: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, ("literal", "racing", "gp"))
        if self.nu is not None:
            check_number("nu", self.nu, 1e-12)
        if self.rho is not None:
            check_number("rho", self.rho, 1e-6, 1 - 1e-6)
        check_number("c", self.c, 1e-12)
        check_arity(self.arity)
        check_most(self.max_evaluations_per_round)
        check_elimination(self)


def check_elimination(options: Elimination) -> None:
    """Raise ConfigError if an option of the elimination is out of bounds."""
    check_number("gap", options.gap, 0)
    check_number("c1", options.c1, 1e-12)
    if options.delta is not None:
        check_number("delta", options.delta, 1e-300, 1)
    check_choice("h0", options.h0, ("literal", "ceil"))
    check_choice("aggregate", options.aggregate, AGGREGATES)
    check_number("trim", options.trim, 0, 0.5)
    check_secure_sums(options.secure_sums)
    if options.secure_sums and options.aggregate != "mean":
        raise ConfigError(f"aggregate: expected 'mean' with secure_sums, got {options.aggregate!r}")
