"""The options of `fed-ei` and its server's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.algorithms.ei.options import EIOptions
from fbo_flower.algorithms.options import check_number, check_secure_sums
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array, Scalar
from fbo_flower.algorithms.trials_per_round import TrialsPerRound
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class Pool:
    """Sums over agents.

    Parameters
    ----------
    sums : name -> sum. "gram" `(M (M + 1) / 2,)` is the upper triangle of the sum of `Phi^T Phi`, "moment"
        `(M,)` the sum of `b_i = Phi_i^T y_i`, "energy" `(1,)` that of `|b_i|^2` over agents without a trend;
        "agreement" `(2,)`: how well values agree with the trend, see `numerics.surrogates.trend`. "closeness"
        `(2,)`: whether they are better than predicted close to others' best points, over all rounds, see
        `numerics.surrogates.innovations`
    trials : agent in the sums -> id of the first trial that is not in them
    """

    sums: Mapping[str, Array]
    trials: Mapping[str, int]


@dataclass(frozen=True)
class FedEIState:
    """The server's state.

    Parameters
    ----------
    space, features, progress : the search space; the shared random features; every agent's next trial
    parts : agent -> its part of the sums; empty with secure sums
    pool : the last sums; None: none yet
    points : agent that allows it -> its best point `(D,)`
    num_released : agent -> number of sums that it is in
    sent : agent -> trial, and number of trials, arrays and values of its last task, so that a lost task is
        sent again unchanged
    """

    space: SearchSpace
    features: RandomFeatures
    progress: Progress = field(default_factory=Progress)
    parts: Mapping[str, Pool] = field(default_factory=dict)
    pool: Pool | None = None
    points: Mapping[str, Array] = field(default_factory=dict)
    num_released: Mapping[str, int] = field(default_factory=dict)
    sent: Mapping[str, tuple[int, tuple[int, dict[str, AnyArray], dict[str, Scalar]]]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class FedEIOptions(EIOptions[FedEIState], TrialsPerRound):
    """The options of federated expected improvement.

    Parameters
    ----------
    num_features : `M`, the number of shared random features of the trend
    lengthscale : lengthscale of these features, divided by the square root of the number of features of the
        search space
    ridge : of the trend's regression, for standardised values
    tilt : how strongly a step prefers the neighbourhoods of others' best points, at first; 0: agents are not
        asked for these points. An agent sends its point only with `disclose = "point"` or "trials"
    num_centres : largest number of others' best points that an agent receives
    secure_sums : smallest number of agents in a sum; the server sees sums only, and a federation of fewer
        agents tunes without a trend. 0: the server sees every agent's part, from which it can compute points
        and values
    noise_multiplier : `z` of the noise on sums, for the privacy of an agent with all its observations; 0: no
        noise. Each agent adds its part, so that the smallest sum has `z` times the largest change that one
        agent can make. Needs `tilt = 0`, because points have no noise. Ten agents are too few for it
    delta : `delta` of the `(epsilon, delta)` that is reported with noise
    """

    num_features: int = 100
    lengthscale: float = 0.35
    ridge: float = 0.1
    tilt: float = 4.0
    num_centres: int = 32
    secure_sums: int = 3
    noise_multiplier: float = 0.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        TrialsPerRound.__post_init__(self)
        check_number("num_features", self.num_features, 1, 512, integer=True)
        check_number("lengthscale", self.lengthscale, 1e-3, 1e3)
        check_number("ridge", self.ridge, 1e-6, 1e6)
        check_number("tilt", self.tilt, 0, 1e3)
        check_number("num_centres", self.num_centres, 1, 1024, integer=True)
        check_secure_sums(self.secure_sums)
        check_number("noise_multiplier", self.noise_multiplier, 0, 1e4)
        check_number("delta", self.delta, 1e-15, 0.5)
        if self.noise_multiplier and self.noise_multiplier / max(self.secure_sums, 1) ** 0.5 < 1e-3:
            raise ConfigError(
                f"noise_multiplier: expected 0 or at least .001 per agent, got {self.noise_multiplier}"
            )
        if self.noise_multiplier and self.tilt:
            raise ConfigError(
                f"tilt: expected 0 with noise on sums, because points travel without noise, got {self.tilt}"
            )
