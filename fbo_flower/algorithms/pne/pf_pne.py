"""PF-PNE, personalised federated X-armed bandit with double elimination, and its two halves [Li2024].

`PFPNE` is one of two algorithms by its option `variant`: the paper's (`pne_phased.py`), or the racing one
(`pne_racing.py`), which learns what the paper wants to be told.

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024 (arXiv 2310.16323).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fbo_flower.algorithms.bandits.base import Bandit
from fbo_flower.algorithms.pne.phased import PhasedPNE
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.protocol import Schema, Session, Summand, check_choice
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Federation, Phase, Query, Report, Task
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination
from fbo_flower.space.space import SearchSpace

_LITERAL_ONLY = ("gap", "c", "c1", "delta", "h0", "aggregate", "trim", "secure_sums")


@dataclass(frozen=True, kw_only=True)
class PFPNE(Bandit[Any]):
    """Personalised federated X-armed bandit; `Bandit` explains the other options.

    Parameters
    ----------
    variant : "literal": the paper's; "racing": cells chosen by upper bound, without parameters
    nu, rho : a cell of depth `h` holds nothing better than its centre by more than `nu rho^h`; None: 1 and
        1/2 for "literal"; learned by "racing", for which given ones are a lower bound
    gap : `Delta`, how far the mean of the objectives may be from an agent's own at their optima; "literal"
    c, c1 : of the confidence radius `c sqrt(log(c1 T / delta) / n)`; "literal"
    delta : probability of failure; None: `1 / M`; "literal"
    h0 : "literal": the deepest `h` with `nu rho^h >= Delta`; "ceil": the first with `nu rho^h <= Delta`
    aggregate : of the agents' means of a cell: "mean" (the paper's), or, where some may lie, "median" or
        "trimmed", which take more pulls; "literal"
    trim : share of the agents that "trimmed" leaves out on either side; "literal"
    secure_sums : least number of agents over which the server adds up what they measured without seeing any
        one's; with "mean" only. 0: it sees everybody's; "literal"
    arity : "binary": a depth halves one dimension; "full": every dimension, for `D <= 3`
    max_evaluations_per_round : bound of one agent's work between two messages
    """

    name: ClassVar[str] = "pf-pne"

    variant: str = "literal"
    nu: float | None = None
    rho: float | None = None
    gap: float = 0.01
    c: float = 0.1
    c1: float = 1.0
    delta: float | None = None
    h0: str = "literal"
    aggregate: str = "mean"
    trim: float = 0.2
    secure_sums: int = 0
    arity: str = "binary"
    max_evaluations_per_round: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, ("literal", "racing"))
        for name in _LITERAL_ONLY if self.variant == "racing" else ():
            if getattr(self, name) != self.option_defaults()[name]:
                raise ConfigError(f"{name}: expected none with variant racing, got {getattr(self, name)!r}")
        self.method()

    def method(self) -> PhasedPNE | RacingPNE:
        """Return the algorithm that these options stand for."""
        common: dict[str, Any] = {
            "budget": self.budget,
            "deterministic": self.deterministic,
            "arity": self.arity,
            "max_evaluations_per_round": self.max_evaluations_per_round,
        }
        if self.variant == "racing":
            return RacingPNE(**common, nu=self.nu, rho=self.rho)
        smoothness: dict[str, Any] = {
            name: value for name, value in (("nu", self.nu), ("rho", self.rho)) if value is not None
        }
        own = {name: getattr(self, name) for name in _LITERAL_ONLY}
        return PhasedPNE(**common, **smoothness, **own)

    # -- all of it is the method's -------------------------------------------------------------

    def check(self, space: SearchSpace) -> None:
        self.method().check(space)

    def init(self, federation: Federation, rng: np.random.Generator) -> Any:
        return self.method().init(federation, rng)

    def ask(
        self, state: Any, phase: Phase, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> tuple[Any, dict[str, Task]]:
        return self.method().ask(state, phase, server_round, present, rng)

    def tell(self, state: Any, phase: Phase, reports: Mapping[str, Report]) -> Any:
        return self.method().tell(state, phase, reports)

    def aggregate_sum(self, state: Any, agents: Sequence[str], sums: Mapping[str, Array]) -> Any:
        return self.method().aggregate_sum(state, agents, sums)

    def summands(self, task: Task, space: SearchSpace) -> Mapping[str, Summand]:
        return self.method().summands(task, space)

    def keep(self, state: Any) -> dict[str, AnyArray]:
        return self.method().keep(state)

    def warm(self, state: Any, kept: Mapping[str, AnyArray]) -> Any:
        return self.method().warm(state, kept)

    def finished(self, state: Any) -> bool:
        return self.method().finished(state)

    def session(self, task: Task, agent_state: AgentState) -> Session:
        return self.method().session(task, agent_state)

    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        return self.method().propose(task, agent_state, rng)

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> dict[str, AnyArray]:
        return self.method().summarise(task, agent_state, rng)

    def recommend(self, agent_state: AgentState) -> Array | None:
        return self.method().recommend(agent_state)

    def incumbent(self, agent_state: AgentState) -> float:
        return self.method().incumbent(agent_state)

    def task_schema(self, space: SearchSpace) -> Schema:
        return self.method().task_schema(space)

    def report_schema(self, space: SearchSpace) -> Schema:
        return self.method().report_schema(space)


@dataclass(frozen=True, kw_only=True)
class FedPNE(PhasedPNE):
    """Phased elimination of the mean objective: stage 1 of `PFPNE` for ever; `gap` has no meaning."""

    name: ClassVar[str] = "fed-pne"

    def transition(self) -> int:
        return elimination.NEVER


@dataclass(frozen=True, kw_only=True)
class LocalPNE(PhasedPNE):
    """Phased elimination by every agent alone: stage 2 of `PFPNE` from the root, no communication."""

    name: ClassVar[str] = "local-pne"

    def transition(self) -> int:
        return -1
