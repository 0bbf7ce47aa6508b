"""What DP-FTS can be told, and what its server remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.algorithms.fts.messages import check_features, check_lengthscale
from fbo_flower.algorithms.fts.schedules import Schedule, check_schedule
from fbo_flower.algorithms.options import check_choice, check_number, check_secure_sums
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.algorithms.thompson import LocalSurrogate
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy import epsilon_of_releases
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space.space import SearchSpace

NOISE = ("central", "local")
MESSAGES = ("draw", "mean")
WHEN_SPENT = ("stop", "keep")


@dataclass(frozen=True)
class Collection:
    """The agents of the next release.

    Parameters
    ----------
    shares : agent -> `phi_n (P,)`, its share in the sum of every region; those that were sampled
    largest : largest norm of the shares of any agent, sampled or not
    messages : agent -> `(M,)`, clipped, as they came
    total : `(P, M)`, the sum of messages times shares, where the server sees nothing else
    """

    shares: Mapping[str, Array] = field(default_factory=dict)
    largest: float = 0.0
    messages: Mapping[str, Array] = field(default_factory=dict)
    total: Array | None = None


@dataclass(frozen=True)
class DPFTSState:
    """What the server knows.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    features : the shared random features
    regions : agent -> the region that it explores
    collection : of the next release; None: none is under way
    weights : `(P, M)`, the last release; None before the first
    num_releases : made so far, the one under way left out
    num_messages : agent -> how often it was asked for a message
    spent : whether a release was due that the budget does not allow
    sent : agent -> the trial it was asked for last, and the advice: a lost task is sent again as it was
    """

    space: SearchSpace
    features: RandomFeatures
    progress: Progress = field(default_factory=Progress)
    regions: Mapping[str, int] = field(default_factory=dict)
    collection: Collection | None = None
    weights: Array | None = None
    num_releases: int = 0
    num_messages: Mapping[str, int] = field(default_factory=dict)
    spent: bool = False
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DPFTSOptions(LocalSurrogate[DPFTSState]):
    """The options of differentially private federated Thompson sampling.

    Parameters
    ----------
    noise : who adds it. "central": the server, to every sum, before anybody sees it (the paper); agents trust
        the server with their messages. "local": every agent, to its own message, before it leaves
    noise_multiplier : `z`, s.d. of the noise over the most that one agent changes; 0: no noise, no privacy
    sampling_rate : `q`, the chance of an agent to be in a sum
    clip : `S`; every message is shortened to `S / sqrt(P)`
    delta : of `(epsilon, delta)`; choose it below one over the number of agents
    max_epsilon : a release that would exceed it is not made; None: no bound
    when_spent : "stop" ends the study then, "keep" goes on with the last release
    release_every : rounds between two releases
    num_regions : `P`, boxes of the continuous parameters. Every agent's initial design lies in one of them,
        and every region has a sum of its own; without continuous parameters there is one
    region_weight : how much more, `exp(region_weight)`, an agent counts in the region it explored, at first
    region_releases : releases over which that advantage is gone
    message : "draw" from the weight posterior (the paper), or its "mean", which is shorter
    schedule : `p_t`: "1-1/t^2", "1-1/sqrt(t)", "1-1/t", "first-K" or a number
    num_features : `M`; the noise grows with its root
    lengthscale : of the shared features, one number or one per feature
    message_noise_variance : `sigma^2` of the weight posterior, in units of standardised values; large, so
        that messages are short and smooth: what is left after clipping and noise is then largest
    secure_sums : least number of sampled agents whose messages the server adds up without seeing one of them;
        a smaller sample makes no release. Agents shorten their messages themselves, and nobody checks that
        they did. 0: it sees them
    """

    noise: str = "central"
    noise_multiplier: float = 1.0
    sampling_rate: float = 0.35
    clip: float = 1.0
    delta: float = 1e-3
    max_epsilon: float | None = None
    when_spent: str = "stop"
    release_every: int = 1
    num_regions: int = 1
    region_weight: float = 15.0
    region_releases: int = 10
    message: str = "mean"
    schedule: Schedule = "1-1/sqrt(t)"
    num_features: int = 30
    lengthscale: float | tuple[float, ...] = 0.5
    message_noise_variance: float = 1.0
    secure_sums: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("noise", self.noise, NOISE)
        check_number("noise_multiplier", self.noise_multiplier, 0, 1e6)
        check_number("sampling_rate", self.sampling_rate, 1e-6, 1)
        check_number("clip", self.clip, 1e-6, 1e6)
        check_number("delta", self.delta, 1e-15, 0.5)
        check_choice("when_spent", self.when_spent, WHEN_SPENT)
        check_number("release_every", self.release_every, 1, integer=True)
        check_number("num_regions", self.num_regions, 1, 256, integer=True)
        check_number("region_weight", self.region_weight, 0, 100)
        check_number("region_releases", self.region_releases, 1, integer=True)
        check_choice("message", self.message, MESSAGES)
        check_schedule(self.schedule)
        check_number("num_features", self.num_features, 1, 4096, integer=True)
        check_number("message_noise_variance", self.message_noise_variance, 1e-8, 1e3)
        check_lengthscale(self.lengthscale)
        check_secure_sums(self.secure_sums)
        if self.max_epsilon is not None:
            check_number("max_epsilon", self.max_epsilon, 0)
            least = self.epsilon(1)
            if least > self.max_epsilon:
                raise ConfigError(
                    f"max_epsilon: expected at least {least:.4g}, what the first release costs with these "
                    f"options, got {self.max_epsilon!r}"
                )

    def check(self, space: SearchSpace) -> None:
        check_features(self.lengthscale, space)

    def epsilon(self, count: int) -> float:
        """Return `epsilon` after so many releases; with local noise, of an agent after so many messages.

        Central: neighbours differ by one agent, which is in a sum with probability `q`. Local: neighbours
        differ in all that one agent has observed, and whoever reads a message knows that it was sent.
        """
        rate = self.sampling_rate if self.noise == "central" else 1.0
        return epsilon_of_releases(count, rate, self.noise_multiplier, self.delta)

    def affords(self, count: int) -> bool:
        """Return whether so many releases, or messages of an agent, are within the budget."""
        return self.max_epsilon is None or self.epsilon(count) <= self.max_epsilon
