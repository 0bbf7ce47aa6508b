"""PF-PNE, the personalised federated X-armed bandit, and each of its two stages alone [Li2024].

Our variants without parameters to set are `racing.py`, and for small budgets `gp.py`.

[Li2024] : see `phased.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fbo_flower.algorithms.options import bounded, choice
from fbo_flower.algorithms.pne.gp import GPPNE
from fbo_flower.algorithms.pne.phased import PhasedPNE
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination


@dataclass(frozen=True, kw_only=True)
class PFPNE(PhasedPNE):
    """Personalised federated X-armed bandit; `PhasedPNE` describes the other options.

    Parameters
    ----------
    gap : `Delta`, largest expected difference at the optima between the mean of all objectives and an agent's
        own objective
    h0 : transition depth, the last one of stage 1: "literal": the deepest `h` with `nu rho^h >= Delta`;
        "ceil": the first `h` with `nu rho^h <= Delta`
    variant : "literal": the paper's algorithm; "racing": ours, which chooses cells by upper confidence bound
        and needs no constants (`RacingPNE`); "gp": ours for budgets up to some hundreds, a Gaussian process
        whose mean function the agents learn together, without cells (`GPPNE`)
    """

    name: ClassVar[str] = "pf-pne"

    gap: float = bounded(0.01, 0)
    h0: str = choice("literal", ("literal", "ceil"))
    variant: str = choice("literal", ("literal", "racing", "gp"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant != "literal":
            raise ConfigError(
                f"variant: expected 'literal' for the class PFPNE, got {self.variant!r}; use RacingPNE or "
                "GPPNE, or make_algorithm('pf-pne', {'variant': 'racing'})"
            )

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Algorithm[Any]:
        """Build the variant that the options name."""
        variants = [kind for kind in (RacingPNE, GPPNE) if options.get("variant") == kind.variant]
        make = variants[0].from_options if variants else super().from_options
        made: Algorithm[Any] = make(options)
        return made

    def transition(self) -> int:
        return elimination.transition_depth(self.nu, self.rho, self.gap, self.h0)


@dataclass(frozen=True, kw_only=True)
class FedPNE(PhasedPNE):
    """Phased elimination of the mean objective: stage 1 of `PFPNE` at every depth."""

    name: ClassVar[str] = "fed-pne"

    def transition(self) -> int:
        return elimination.NEVER


@dataclass(frozen=True, kw_only=True)
class LocalPNE(PhasedPNE):
    """Phased elimination by every agent alone: stage 2 of `PFPNE` without stage 1, no communication."""

    name: ClassVar[str] = "local-pne"

    def transition(self) -> int:
        return -1
