"""The messages of DP-FTS-DE, and the server's record of its releases; `dp_fts` has the notation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from fbo_flower.algorithms.messages import Content, real, step_numbers, summable
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import AnyArray, Array, IntArray, Task, floats
from fbo_flower.numerics.surrogates import rff
from fbo_flower.space.space import SearchSpace


def regions_of(algorithm: Any, space: SearchSpace) -> int:
    """Return `P`, the number of regions; without a continuous axis there is one."""
    return int(algorithm.num_regions) if len(space.whole.continuous) else 1


def largest_norm(algorithm: Any, space: SearchSpace) -> float:
    """Return `C`, the largest norm of a message."""
    return float(algorithm.clip / np.sqrt(regions_of(algorithm, space)))


def largest_sent(algorithm: Any, space: SearchSpace) -> float:
    """Return the largest absolute value of an entry of a message, local noise included."""
    noise = 100.0 * algorithm.noise_multiplier if algorithm.noise == "local" else 0.0
    return largest_norm(algorithm, space) * (1.0 + noise)


# It travels in secure sums only. Messages have noise, which protects them whoever is in a sum.
_SUMS = summable(
    regions_of, "num_features", bound=largest_sent, only_if=lambda algorithm: False,
    repeats=False, with_trials=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Release(Content):
    """A task: the shared features, the last release for some of its steps, and what the server asks for."""

    frequencies: Annotated[Array | None, real("num_features", "D")] = None
    phases: Annotated[Array | None, real("num_features", low=0.0, high=2 * np.pi)] = None
    weights: Annotated[Array | None, real(regions_of, "num_features")] = None  # omega^i, Eq. (R)
    steps: Annotated[IntArray | None, step_numbers()] = None  # those that follow the release
    shares: Annotated[Array | None, real(regions_of, low=0.0, high=1.0)] = None  # phi_n, for a secure sum
    message: bool = False
    region: int = -1  # of the initial design


@dataclass(frozen=True, kw_only=True)
class ReleaseMessage(Content):
    """A report: the agent's clipped message; in a secure sum it travels times its shares."""

    weights: Annotated[Array | None, real("num_features", in_clear=True, with_trials=True)] = None
    sums: Annotated[Array | None, _SUMS] = None

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        return {name: task.arrays[name] for name in ("frequencies", "phases") if name in task.arrays}

    @classmethod
    def is_asked_by(cls, task: Task) -> bool:
        return bool(task.values.get("message"))

    asks_for_sum = is_asked_by


@dataclass(frozen=True)
class Collection:
    """The sampled agents of the next release, and their messages so far."""

    # sampled agent that is present -> `phi_n (P,)`, its weight in the sum of every region
    shares: Mapping[str, Array] = field(default_factory=dict)
    largest: float = 0.0  # `max_n ||phi_n||` over all registered agents, sampled or not, present or not
    messages: Mapping[str, Array] = field(default_factory=dict)  # agent -> its clipped message `(M,)`
    total: Array | None = None  # `(P, M)`, the sum of weights times messages, if it came as a secure sum


@dataclass(frozen=True)
class DPFTSState:
    """The server's state."""

    space: SearchSpace
    features: rff.RandomFeatures  # the shared random features
    progress: Progress = field(default_factory=Progress)  # every agent's next trial
    # registered agent -> the region of its initial design; also of agents that are not present
    regions: Mapping[str, int] = field(default_factory=dict)
    collection: Collection | None = None  # messages for the next release; None: no release is being prepared
    weights: Array | None = None  # `(P, M)`, the last release; None before the first
    num_releases: int = 0  # releases made so far
    # agent -> how often it was asked for a message
    num_messages: Mapping[str, int] = field(default_factory=dict)
    spent: bool = False  # whether the privacy budget did not allow a release that was due
    # agent -> trial and advice of its last task, so that a lost task is sent again unchanged
    sent: Mapping[str, tuple[int, dict[str, AnyArray]]] = field(default_factory=dict)
    # results of the secret draws for the next `ask`; None: they have not been made
    drawn: Mapping[str, AnyArray] | None = None

    def with_agents(self, present: Sequence[str], num_regions: int) -> DPFTSState:
        """Register new agents: assign each the next region in turn, for its initial design.

        Registration is public. A new agent changes the shares of all agents from the next release on.
        """
        regions = dict(self.regions)
        for agent in present:
            regions.setdefault(agent, len(regions) % num_regions)
        return replace(self, regions=regions)

    def shares(self, num_regions: int, region_weight: float, region_releases: int) -> dict[str, Array]:
        """Return `phi_n (P,)` of every registered agent: a softmax that gets flatter with every release."""
        advantage = max(0.0, 1.0 - self.num_releases / region_releases)
        explored = np.array(list(self.regions.values()))[:, None] == np.arange(num_regions)
        raw = np.exp(region_weight * advantage * (explored - 1.0))  # (N, P)
        return dict(zip(self.regions, raw / raw.sum(axis=0), strict=True))

    def released(self) -> DPFTSState:
        """Release the sums that were drawn for the collected messages, and discard the messages."""
        state, drawn = replace(self, collection=None), self.drawn or {}
        if "sums" not in drawn:
            return state  # nothing was collected, or the secure sum failed
        return replace(state, weights=floats(drawn["sums"]), num_releases=state.num_releases + 1)
