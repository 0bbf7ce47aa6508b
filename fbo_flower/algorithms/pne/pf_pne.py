"""PF-PNE, personalised federated X-armed bandit with double elimination, and its two halves [Li2024].

The option `variant` chooses between the paper's algorithm (`phased.py`) and one that learns its constants
(`racing.py`).

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024 (arXiv 2310.16323).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fbo_flower.algorithms.pne.options import PhasedOptions, PNEOptions
from fbo_flower.algorithms.pne.phased import Phases, PNEState
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.bandits import elimination


@dataclass(frozen=True, kw_only=True)
class PFPNE(Phases, PNEOptions[PNEState]):
    """Personalised federated X-armed bandit; `PNEOptions` explains the options."""

    name: ClassVar[str] = "pf-pne"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant != "literal":
            raise ConfigError(
                f"variant: expected 'literal' here, got {self.variant!r}; RacingPNE is the racing one, and "
                "make_algorithm builds it"
            )

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Algorithm[Any]:
        """Build the variant that the options name."""
        if options.get("variant") == "racing":
            return RacingPNE.from_options(options)
        return super().from_options(options)

    @property
    def smoothness(self) -> tuple[float, float]:
        """`nu` and `rho`."""
        return (1.0 if self.nu is None else self.nu), (0.5 if self.rho is None else self.rho)


@dataclass(frozen=True, kw_only=True)
class FedPNE(Phases, PhasedOptions[PNEState]):
    """Phased elimination of the mean objective: stage 1 of `PFPNE` without end; `gap` has no effect."""

    name: ClassVar[str] = "fed-pne"

    @property
    def smoothness(self) -> tuple[float, float]:
        """`nu` and `rho`."""
        return self.nu, self.rho

    def transition(self) -> int:
        """Return `H0`: there is no stage 2."""
        return elimination.NEVER


@dataclass(frozen=True, kw_only=True)
class LocalPNE(Phases, PhasedOptions[PNEState]):
    """Phased elimination by every agent alone: stage 2 of `PFPNE` from the root, no communication."""

    name: ClassVar[str] = "local-pne"

    @property
    def smoothness(self) -> tuple[float, float]:
        """`nu` and `rho`."""
        return self.nu, self.rho

    def transition(self) -> int:
        """Return `H0`: there is no stage 1."""
        return -1
