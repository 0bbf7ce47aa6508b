"""The options of DP-FTS and its server's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.algorithms.options import check_choice, check_number, check_secure_sums
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.algorithms.schedules import Schedule, check_schedule
from fbo_flower.algorithms.senders import check_features, check_lengthscale
from fbo_flower.algorithms.thompson import LocalSurrogate
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy import sampled_epsilon
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space.space import SearchSpace

NOISE = ("central", "local")
MESSAGES = ("draw", "mean")
WHEN_SPENT = ("stop", "keep")


@dataclass(frozen=True)
class Collection:
    """The sampled agents of the next release, and their messages so far.

    Parameters
    ----------
    shares : sampled agent that is present -> `phi_n (P,)`, its weight in the sum of every region
    largest : `max_n ||phi_n||` over all registered agents, sampled or not, present or not
    messages : agent -> its clipped message `(M,)`
    total : `(P, M)`, the sum of weights times messages, if it came as a secure sum
    """

    shares: Mapping[str, Array] = field(default_factory=dict)
    largest: float = 0.0
    messages: Mapping[str, Array] = field(default_factory=dict)
    total: Array | None = None


@dataclass(frozen=True)
class DPFTSState:
    """The server's state.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    features : the shared random features
    regions : registered agent -> the region of its initial design; also of agents that are not present
    collection : messages for the next release; None: no release is being prepared
    weights : `(P, M)`, the last release; None before the first
    num_releases : releases made so far
    num_messages : agent -> how often it was asked for a message
    spent : whether the privacy budget did not allow a release that was due
    sent : agent -> trial and advice of its last task, so that a lost task is sent again unchanged
    drawn : results of the secret draws for the next `ask`; None: they have not been made
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
    drawn: Mapping[str, AnyArray] | None = None


@dataclass(frozen=True, kw_only=True)
class DPFTSOptions(LocalSurrogate[DPFTSState]):
    """The options of differentially private federated Thompson sampling.

    Parameters
    ----------
    noise : who adds the noise. "central" (the paper): the server adds it to every sum before it sends the
        sum to an agent; agents trust the server with their messages. "local": every agent adds it to its own
        message before it sends the message. Either way it is discrete Gaussian noise on a fixed-point grid,
        from the operating system's generator unless the strategy (central) or the agent (local) has a seed
    noise_multiplier : `z`, standard deviation of the noise divided by the largest change that one agent can
        cause; 0: no noise and no privacy
    sampling_rate : `q`, the probability that a registered agent is in a sum. It lowers epsilon for central
        noise without secure sums only; otherwise 1 gives the least noise for the same epsilon
    clip : `S`; every message is scaled down to a norm of at most `S / sqrt(P)`
    delta : `delta` of `(epsilon, delta)`; choose it smaller than 1 divided by the number of agents
    max_epsilon : privacy budget: a release that would exceed this epsilon is not made; None: no limit
    when_spent : what happens when the budget is spent: "stop" ends the study, "keep" continues with the last
        release
    release_every : rounds between two releases
    num_regions : `P`, number of boxes into which the continuous parameters are divided. Each agent's initial
        design lies in one box, and every box has its own sum. Without continuous parameters there is one
    region_weight : at first an agent counts `exp(region_weight)` times as much in the sum of the region that
        it explored as in the other sums
    region_releases : number of releases after which all agents count the same in every sum
    message : what an agent sends: a "draw" from its weight posterior (the paper), or the posterior's "mean",
        which has a smaller norm
    schedule : `p_t`, the probability that iteration `t` uses the agent's own surrogate: "1-1/t^2",
        "1-1/sqrt(t)", "1-1/t", a number, or "first-K": the first K iterations use releases, later ones not
    num_features : `M`; the norm of the noise grows with its square root
    lengthscale : lengthscale of the shared features: one number, one per feature of the search space, or
        "dimension": .35 times the square root of the number of features
    message_noise_variance : `sigma^2` of the weight posterior, for standardised values. The default is large
        because smooth messages of small norm lose least by clipping and noise
    secure_sums : smallest number of sampled agents in a secure sum: the server sees the sum of their messages
        but no single one, and a smaller sample makes no release. Agents clip their messages themselves,
        unchecked. Sampling does not lower epsilon then. 0: the server sees all messages
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
    lengthscale: float | str | tuple[float, ...] = 0.5
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

    def check(self, space: SearchSpace) -> None:
        check_features(self.lengthscale, space)

    def check_cost(self) -> None:
        """Raise ConfigError if no release is within the budget, or its cost cannot be counted.

        Only a server checks it: agents need not have the library that counts sampled releases.
        """
        least = self.epsilon(1)
        if self.max_epsilon is not None and least > self.max_epsilon:
            raise ConfigError(
                f"max_epsilon: expected at least {least:.4g}, the cost of the first release with these "
                f"options, got {self.max_epsilon!r}; raise it, or raise noise_multiplier"
            )

    def epsilon(self, count: int) -> float:
        """Return `epsilon` after `count` releases, or with local noise after `count` messages of one agent.

        Central noise: neighbouring federations have the same registered agents. In one of them the messages
        of one agent are replaced by zeros, as if it took no part. An agent is in a sum with probability `q`.
        With secure sums `q` does not count, because a sample that is too small makes no release: if a
        release is made, the agent was in it with a larger probability than `q`.

        Local noise: neighbouring data sets differ in all observations of one agent, and the server knows
        which agents sent a message, so sampling does not help.
        """
        rate = self.sampling_rate if self.noise == "central" and not self.secure_sums else 1.0
        return sampled_epsilon(self.noise_multiplier, rate, count, self.delta)

    def affords(self, count: int) -> bool:
        """Return whether `count` releases, or messages of one agent, are within the privacy budget."""
        return self.max_epsilon is None or self.epsilon(count) <= self.max_epsilon
