"""PF-PNE, the personalised federated X-armed bandit, and each of its two stages alone [Li2024].

The option `variant` chooses between the paper's algorithm (`phased.py`) and our variants without parameters
to set: `racing.py`, and for small budgets `gp.py`.

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024 (arXiv 2310.16323).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fbo_flower.algorithms.pne.gp import GPPNE
from fbo_flower.algorithms.pne.options import PhasedOptions, PNEOptions
from fbo_flower.algorithms.pne.phased import PhasedPNE, PNEState
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination


@dataclass(frozen=True, kw_only=True)
class PFPNE(PhasedPNE, PNEOptions[PNEState]):
    """Personalised federated X-armed bandit; `PNEOptions` describes the options."""

    name: ClassVar[str] = "pf-pne"

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
        variants: dict[object, type[Algorithm[Any]]] = {"racing": RacingPNE, "gp": GPPNE}
        if options.get("variant") in variants:
            return variants[options["variant"]].from_options(options)
        return super().from_options(options)

    @property
    def smoothness(self) -> tuple[float, float]:
        """`nu` and `rho`."""
        return (1.0 if self.nu is None else self.nu), (0.5 if self.rho is None else self.rho)


@dataclass(frozen=True, kw_only=True)
class FedPNE(PhasedPNE, PhasedOptions[PNEState]):
    """Phased elimination of the mean objective: stage 1 of `PFPNE` at every depth; `gap` has no effect."""

    name: ClassVar[str] = "fed-pne"

    @property
    def smoothness(self) -> tuple[float, float]:
        """`nu` and `rho`."""
        return self.nu, self.rho

    def transition(self) -> int:
        """Return a depth that is never exceeded: there is no stage 2."""
        return elimination.NEVER


@dataclass(frozen=True, kw_only=True)
class LocalPNE(PhasedPNE, PhasedOptions[PNEState]):
    """Phased elimination by every agent alone: stage 2 of `PFPNE` without stage 1, no communication."""

    name: ClassVar[str] = "local-pne"

    @property
    def smoothness(self) -> tuple[float, float]:
        """`nu` and `rho`."""
        return self.nu, self.rho

    def transition(self) -> int:
        """Return -1: there is no stage 1."""
        return -1
