"""The options of `flora` and its server's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.algorithms.ei.local import EIOptions
from fbo_flower.algorithms.options import check_choice, check_number, check_secure_sums
from fbo_flower.algorithms.progress import Attendance, Progress
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space import SearchSpace
from studies.peers.loss_surfaces import COMBINATIONS

Surface = tuple[Array, Array]  # packed `Phi^T Phi (M (M + 1) / 2,)` and `Phi^T y (M,)`


@dataclass(frozen=True)
class FloraState:
    """The server's state.

    Parameters
    ----------
    space, agents, features : the search space; agents of the registration; the shared random features
    progress, attendance : every agent's next trial; which agents answer
    surfaces : agent -> its surface; empty with secure sums
    total : the sum of all surfaces, from a secure sum
    answered : agents that were asked for a surface and replied, with or without one
    shared : the configuration for all agents `(D,)`; None: not decided yet
    closed : whether the exchange failed, so that there will be none
    judged : agents that have evaluated it
    sent : agent -> trial, and number of trials and arrays of its last task, so that a lost task is sent again
        unchanged
    """

    space: SearchSpace
    agents: tuple[str, ...]
    features: RandomFeatures
    progress: Progress = field(default_factory=Progress)
    attendance: Attendance = field(default_factory=Attendance)
    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    total: Surface | None = None
    answered: frozenset[str] = frozenset()
    shared: Array | None = None
    closed: bool = False
    judged: frozenset[str] = frozenset()
    sent: Mapping[str, tuple[int, tuple[int, dict[str, AnyArray]]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FloraOptions(EIOptions[FloraState]):
    """The options of `flora`; `EIOptions` describes those of the local steps.

    Parameters
    ----------
    budget : trials of every agent; the last one is the shared configuration, the others are local
    combine : the surface that the server maximises. "single": one regression of all observations;
        "uncertainty": the same minus `caution` standard deviations; "max-min": the smallest of the agents'
        predictions; "average": their mean, weighted by the numbers of observations
    caution : standard deviations that "uncertainty" subtracts
    num_features : `M`, the number of shared random features
    lengthscale : lengthscale of these features, divided by the square root of the number of features of the
        search space
    ridge : of the regressions, for standardised values
    secure_sums : smallest number of agents in a sum; for "single" and "uncertainty". 0: the server sees each
        agent's surface, from which it can compute points and values; only agents with `disclose = "trials"`
        send theirs
    """

    budget: int = 25
    combine: str = "single"
    caution: float = 1.0
    num_features: int = 100
    lengthscale: float = 0.35
    ridge: float = 0.1
    secure_sums: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("budget", self.budget, 2, 100_000, integer=True)
        check_choice("combine", self.combine, COMBINATIONS)
        check_number("caution", self.caution, 0, 1e3)
        check_number("num_features", self.num_features, 1, 512, integer=True)
        check_number("lengthscale", self.lengthscale, 1e-3, 1e3)
        check_number("ridge", self.ridge, 1e-6, 1e6)
        check_secure_sums(self.secure_sums)
        if self.secure_sums and self.combine not in ("single", "uncertainty"):
            raise ConfigError(
                f"combine: expected 'single' or 'uncertainty' with secure_sums={self.secure_sums}, got "
                f"{self.combine!r}, which needs every agent's surface; set secure_sums=0"
            )

    @property
    def num_local(self) -> int:
        """Return the number of local trials."""
        return self.budget - 1
