"""The options that RGPE and TAF share, and their server's state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.algorithms.senders import MessageOptions, check_features, check_lengthscale, check_messages
from fbo_flower.algorithms.thompson import LocalSurrogate
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True)
class WeightPosterior:
    """An agent's posterior over weights of the shared features: `omega ~ N(mean, sigma^2 inverse)`.

    Parameters
    ----------
    mean : `nu (M,)`
    inverse : `Sigma^-1`, its lower triangle row by row, `(M (M + 1) / 2,)`
    incumbent : `(1,)`, the agent's best value; `(0,)` if it is not sent
    """

    mean: Array
    inverse: Array
    incumbent: Array

    @cached_property
    def digest(self) -> int:
        """The first 63 bits of SHA-256 of the content: the key under which a target stores it."""
        content = b"".join(
            np.ascontiguousarray(a).tobytes() for a in (self.mean, self.inverse, self.incumbent)
        )
        return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class TransferState:
    """The server's state.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    features : the shared random features
    posteriors : agent -> the last posterior that it sent
    answered : agents that were asked for a posterior and replied
    has_features : agents that store the random features
    stored : target -> digests of the posteriors that it stores
    sent : target -> trial and arrays of its last task, so that a lost task is sent again unchanged
    """

    space: SearchSpace
    features: RandomFeatures
    progress: Progress = field(default_factory=Progress)
    posteriors: Mapping[str, WeightPosterior] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()
    has_features: frozenset[str] = frozenset()
    stored: Mapping[str, frozenset[int]] = field(default_factory=dict)
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TransferOptions(MessageOptions, LocalSurrogate[TransferState]):
    """Options of the algorithms that send whole posteriors.

    Parameters
    ----------
    refresh_every : rounds between two posteriors of an agent
    num_features : `M`, number of random Fourier features; a posterior has `M (M + 3) / 2` numbers
    lengthscale : lengthscale of the shared features: one number, one per feature of the search space, or
        "dimension": .35 times the square root of the number of features
    message_noise_variance : `sigma^2` of the weight posterior, for standardised values
    max_members : largest number of other agents' posteriors that a target uses; if there are more, a random
        sample, fixed for each group of targets
    """

    refresh_every: int = 5
    num_features: int = 100
    lengthscale: float | str | tuple[float, ...] = 0.5
    message_noise_variance: float = 1e-2
    max_members: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_messages(self)
        check_number("num_features", self.num_features, 1, 1024, integer=True)
        check_number("message_noise_variance", self.message_noise_variance, 1e-8, 1e3)
        check_number("max_members", self.max_members, 1, 1024, integer=True)
        check_lengthscale(self.lengthscale)

    def check(self, space: SearchSpace) -> None:
        check_features(self.lengthscale, space)
