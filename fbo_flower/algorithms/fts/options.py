"""The options of FTS and its server's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fbo_flower.algorithms.fts.attendance import RoundsPresent
from fbo_flower.algorithms.fts.messages import (
    BY_DIMENSION,
    check_features,
    check_lengthscale,
    check_messages,
)
from fbo_flower.algorithms.fts.schedules import Schedule, check_schedule
from fbo_flower.algorithms.options import check_choice, check_number, check_secure_sums
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.algorithms.thompson import LocalSurrogate
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space.space import SearchSpace

DESIGNS = ("random", "advised")
ADVICE = ("single", "portfolio", "mixture", "random")
PREFERENCES = ("uniform", "learned")
FEDERATED = "federated"


@dataclass(frozen=True)
class FTSState:
    """The server's state.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    features : the shared random features; None until their lengthscale is chosen
    messages : agent -> its latest `omega (M,)`
    answered : agents that were asked for a message and replied
    used : target -> agents whose message it has used (with `communication = "once"`)
    advised : target -> points `(k, D)` that it was told to evaluate (with `advice = "portfolio"`)
    has_messages : targets that store the messages (with `advice = "mixture"`, `communication = "once"`)
    sent : target -> trial and advice of its last task, so that a lost task is sent again unchanged
    log_likelihoods : agent -> `(L,)`, log marginal likelihood of each lengthscale of the grid
    attendance : who took part in which rounds, to know the agents that have left
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
    attendance: RoundsPresent = field(default_factory=RoundsPresent)


@dataclass(frozen=True, kw_only=True)
class FTSOptions(LocalSurrogate[FTSState]):
    """The options of federated Thompson sampling.

    Parameters
    ----------
    advice : how an agent uses the other agents' messages.
        "single" (the paper): with probability `1 - p_t` it maximises one other agent's message.
        "portfolio": with probability `1 - p_t` it evaluates a point that the server chooses greedily, so
        that the points sent to one agent together cover the maxima of all messages.
        "mixture": in every iteration it chooses, by marginal likelihood, between its own surrogate and one
        whose prior mean is a weighted mean of the messages.
        "random": with probability `1 - p_t` it evaluates a uniform random point; a control that shows how
        much of an improvement comes from exploration alone
    initial_design : what an agent evaluates first. "random" (the paper): `num_initial` random points.
        "advised": while the server holds messages, of other agents or of an earlier study, each of these
        trials follows advice, one per round; without messages they are random. An agent that joins late, or
        after a warm start, then does not begin from nothing
    schedule : `p_t`, the probability that iteration `t` uses the agent's own surrogate: "1-1/t^2",
        "1-1/sqrt(t)", "1-1/t", a number, or "first-K": the first K iterations use messages, later ones not
    communication : "every-round": agents send a new message every `refresh_every` rounds; "once": each agent
        sends one message, and each target uses it at most once
    refresh_every : rounds between two messages of an agent
    targets : "all", or the names of the agents that tune; the others send one message and do not tune
    preferences : `P_N`, how another agent is drawn for "single": "uniform", or "learned" from how well the
        rankings of two agents' messages agree
    learning_rate : with `preferences = "learned"`, agents have weight `exp(rate * observations * agreement)`
    num_features : `M`, the number of random Fourier features and of numbers in a message
    lengthscale : lengthscale of the shared features: one number, one per feature of the search space;
        "dimension": .35 times the square root of the number of features; "federated": agents report log
        marginal likelihoods of a small grid, the largest sum is chosen
    message_noise_variance : `sigma^2` of the weight posterior (Eqs. 2-3), for standardised values
    mixture_messages : largest number of messages sent to a target with `advice = "mixture"`
    secure_sums : with `lengthscale = "federated"`, the smallest number of agents in a secure sum of log
        likelihoods: the server sees the sum but no agent's own values. 0: it sees each agent's values
    """

    advice: str = "single"
    initial_design: str = "random"
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
        check_choice("initial_design", self.initial_design, DESIGNS)
        check_schedule(self.schedule)
        check_messages(self)
        check_choice("preferences", self.preferences, PREFERENCES)
        check_number("learning_rate", self.learning_rate, 0, 100)
        check_number("num_features", self.num_features, 1, 4096, integer=True)
        check_number("message_noise_variance", self.message_noise_variance, 1e-8, 1e3)
        check_number("mixture_messages", self.mixture_messages, 1, 1024, integer=True)
        check_secure_sums(self.secure_sums)
        if self.secure_sums and self.lengthscale != FEDERATED:
            raise ConfigError(
                f"secure_sums: expected 0 unless lengthscale='federated', the only quantity that {self.name} "
                f"sums, got {self.secure_sums!r}"
            )
        if isinstance(self.lengthscale, str):
            check_choice("lengthscale", self.lengthscale, (FEDERATED, BY_DIMENSION))
        else:
            check_lengthscale(self.lengthscale)

    def check(self, space: SearchSpace) -> None:
        check_features(self.lengthscale, space)
