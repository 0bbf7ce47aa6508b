"""What FTS can be told, and what its server remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.algorithms.fts.messages import check_features, check_lengthscale, check_messages
from fbo_flower.algorithms.fts.schedules import Schedule, check_schedule
from fbo_flower.algorithms.options import check_choice, check_number, check_secure_sums
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.algorithms.thompson import LocalSurrogate
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space.space import SearchSpace

ADVICE = ("single", "portfolio", "mixture", "random")
PREFERENCES = ("uniform", "learned")


@dataclass(frozen=True)
class FTSState:
    """What the server knows.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    features : the shared random features; None until their lengthscale is chosen
    messages : agent -> its latest `omega (M,)`
    answered : agents that were asked for a message and replied
    used : target -> agents whose message it has used (`communication = "once"`)
    advised : target -> points `(k, D)` it was advised to evaluate (`advice = "portfolio"`)
    has_messages : targets that hold the messages (`advice = "mixture"`, `communication = "once"`)
    sent : target -> the trial it was asked for last, and the advice: a lost task is sent again as it was
    log_likelihoods : agent -> `(L,)`, of the lengthscale grid
    """

    space: SearchSpace
    progress: Progress = field(default_factory=Progress)
    features: RandomFeatures | None = None
    messages: Mapping[str, Array] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()
    used: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    advised: Mapping[str, Array] = field(default_factory=dict)
    has_messages: frozenset[str] = frozenset()
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)
    log_likelihoods: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FTSOptions(LocalSurrogate[FTSState]):
    """The options of federated Thompson sampling.

    Parameters
    ----------
    advice : what a foreign iteration does. "single": maximise one agent's message (the paper);
        "portfolio": evaluate the next point of a greedy portfolio over all messages, chosen by the
        server; "mixture": draw from {own surrogate, messages plus a surrogate of the residual} by
        evidence, in every iteration; "random": a uniform point, the control that tells federation
        from exploration
    schedule : `p_t`: "1-1/t^2", "1-1/sqrt(t)", "1-1/t", "first-K" or a number
    communication : "every-round" renews messages, "once" keeps the first and uses each at most once
    refresh_every : rounds between two messages of an agent
    targets : "all", or the agents that tune; the others only answer once
    preferences : `P_N`: "uniform", or "learned" from the rank agreement of messages
    learning_rate : of "learned": weight `exp(rate * observations * agreement)`
    num_features : `M`
    lengthscale : of the shared features, one number, one per feature, or "federated": the sum of
        the agents' log marginal likelihoods over a small grid decides
    message_noise_variance : `sigma^2` of the weight posterior, in units of standardised values
    mixture_messages : messages that a target of "mixture" is sent at most
    secure_sums : least number of agents whose likelihoods the server adds up without seeing one of them, with
        `lengthscale = "federated"`; 0: it sees them
    """

    advice: str = "single"
    schedule: Schedule = "1-1/sqrt(t)"
    communication: str = "every-round"
    refresh_every: int = 1
    targets: str | tuple[str, ...] = "all"
    preferences: str = "uniform"
    learning_rate: float = 0.5
    num_features: int = 100
    lengthscale: float | str | tuple[float, ...] = 0.5
    message_noise_variance: float = 1e-2
    mixture_messages: int = 32
    secure_sums: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("advice", self.advice, ADVICE)
        check_schedule(self.schedule)
        check_messages(self)
        check_choice("preferences", self.preferences, PREFERENCES)
        check_number("learning_rate", self.learning_rate, 0, 100)
        check_number("num_features", self.num_features, 1, 4096, integer=True)
        check_number("message_noise_variance", self.message_noise_variance, 1e-8, 1e3)
        check_number("mixture_messages", self.mixture_messages, 1, 1024, integer=True)
        check_secure_sums(self.secure_sums)
        if self.secure_sums and self.lengthscale != "federated":
            raise ConfigError(
                f"secure_sums: expected 0 without lengthscale='federated', the only sum of {self.name}, "
                f"got {self.secure_sums!r}"
            )
        if isinstance(self.lengthscale, str):
            check_choice("lengthscale", self.lengthscale, ("federated",))
        else:
            check_lengthscale(self.lengthscale)

    def check(self, space: SearchSpace) -> None:
        check_features(self.lengthscale, space)
