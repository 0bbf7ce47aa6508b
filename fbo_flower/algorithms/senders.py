"""Algorithms whose server keeps one message per agent: who tunes, who sends when, and who has left.

The schedule `p_t` is the probability that iteration `t` uses the agent's own surrogate
[Dai2020, Alg. 1, line 3].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeVar

import numpy as np

from fbo_flower.algorithms.messages import Content, real
from fbo_flower.algorithms.options import bounded, check_choice, checked, choice, integer
from fbo_flower.algorithms.records import Array, Federation
from fbo_flower.algorithms.thompson import LocalSurrogate
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates import rff
from fbo_flower.space.checks import as_real, check_number
from fbo_flower.space.space import SearchSpace

Schedule = str | float
T = TypeVar("T")
_NAMED = ("1-1/t^2", "1-1/sqrt(t)", "1-1/t")
_FIRST = re.compile(r"first-(\d{1,6})\Z")


def check_schedule(schedule: object) -> Schedule:
    """Return a schedule that `own_probability` knows; ConfigError if it is none."""
    number = as_real(schedule)
    if isinstance(schedule, str) and (schedule in _NAMED or _FIRST.match(schedule)):
        return schedule
    if number is not None and 0 <= number <= 1:
        return number
    raise ConfigError(
        f"schedule: expected {', '.join(_NAMED)}, first-K, or a number between 0 and 1, got {schedule!r}"
    )


def own_probability(schedule: Schedule, iteration: int) -> float:
    """Return `p_t` for iteration `t >= 1`.

    The paper uses "1-1/t^2" for real data and "1-1/sqrt(t)" for synthetic functions. These two and "1-1/t"
    are 0 at `t = 1`; there `p_2` is returned instead. A number is constant. "first-K" is 0 in the first K
    iterations and 1 afterwards.

    >>> own_probability("1-1/t^2", 1), own_probability("1-1/t^2", 2), own_probability("first-5", 5)
    (0.75, 0.75, 0.0)
    """
    t = max(iteration, 2)
    if schedule == "1-1/t^2":
        return 1 - 1 / t**2
    if schedule == "1-1/sqrt(t)":
        return float(1 - t**-0.5)
    if schedule == "1-1/t":
        return 1 - 1 / t
    if isinstance(schedule, str):
        return 0.0 if iteration <= int(schedule.removeprefix("first-")) else 1.0
    return float(schedule)


def once_per_trial(sent: dict[str, tuple[int, T]], agent: str, trial: int, draw: Callable[[], T]) -> T:
    """Return the random content of an agent's task for `trial`; call `draw` only for a new trial.

    If a report is lost and the task is sent again, it has the same content as before.

    Parameters
    ----------
    sent : agent -> trial and content of its last task; updated in place after a new draw
    draw : draws the content
    """
    if agent not in sent or sent[agent][0] != trial:
        sent[agent] = trial, draw()
    return sent[agent][1]


State = TypeVar("State")
BY_DIMENSION = "dimension"
GAPS = 5  # an agent that misses this many mean gaps has left; of those present 1 in 150 is taken for one
PER_ROOT = 0.35  # lengthscale per root of the number of parameters; about .5 for two
Lengthscale = float | tuple[float, ...]


def check_lengthscale(value: object, names: Sequence[str] = (BY_DIMENSION,)) -> Lengthscale | str:
    """Return a lengthscale of the shared features; ConfigError if it is not between 1e-4 and 1e4."""
    if isinstance(value, str):
        check_choice("lengthscale", value, names)
        return value
    if isinstance(value, tuple):
        return tuple(check_number("lengthscale", scale, 1e-4, 1e4) for scale in value)
    return check_number("lengthscale", value, 1e-4, 1e4)


def drawn_features(
    num_features: int, lengthscale: Lengthscale | str, space: SearchSpace, rng: np.random.Generator
) -> rff.RandomFeatures:
    """Draw the features that all agents share.

    Distances in a cube grow with the square root of its dimension, and "dimension" grows with them: with a
    constant lengthscale almost all points of a large cube are unrelated to each other.
    """
    scale = PER_ROOT * space.breadth**0.5 if lengthscale == BY_DIMENSION else lengthscale
    scales = np.asarray(scale, dtype=np.float64)
    return rff.draw_features(num_features, scales, space.dimension, rng, categories=space.categorical)


@dataclass(frozen=True, kw_only=True)
class FeatureTask(Content):
    """A task: the shared features, and whether the agent is asked for its message."""

    frequencies: Annotated[Array | None, real("num_features", "D")] = None
    phases: Annotated[Array | None, real("num_features", low=0.0, high=2 * np.pi)] = None
    message: bool = False

    def features(self) -> rff.RandomFeatures:
        """Return the shared features."""
        found = rff.shared_features(self.arrays)
        assert found is not None
        return found


@dataclass(frozen=True, kw_only=True)
class SharedFeatures(LocalSurrogate[State]):
    """Agents send weights of random features, the same for all; `LocalSurrogate` has the other options.

    Parameters
    ----------
    num_features : `M`, the number of random Fourier features and of numbers in a message
    lengthscale : lengthscale of the shared features: one number, one per parameter of the search space, or
        "dimension": .35 times the square root of their number, a category counted as three
    message_noise_variance : `sigma^2` of the weight posterior, for standardised values
    """

    needs_all_parameters: ClassVar[str] = ""

    num_features: int = integer(100, 1, 4096)
    lengthscale: float | str | tuple[float, ...] = checked(0.5, check_lengthscale)
    message_noise_variance: float = bounded(1e-2, 1e-8, 1e3)

    def check(self, space: SearchSpace) -> None:
        """Raise ConfigError unless there is one lengthscale, or one per parameter of the search space."""
        if isinstance(self.lengthscale, tuple) and len(self.lengthscale) != space.dimension:
            raise ConfigError(
                f"lengthscale: expected {space.dimension} numbers, one per parameter of the search "
                f"space, got {len(self.lengthscale)}"
            )


@dataclass(frozen=True, kw_only=True)
class MessageOptions(SharedFeatures[State]):
    """Which agents tune, and when they send messages; `SharedFeatures` describes the other options.

    Parameters
    ----------
    communication : "every-round": agents send a new message every `refresh_every` rounds; "once": each agent
        sends one message, after its first observations
    refresh_every : rounds between two messages of an agent
    targets : "all", or the names of the agents that tune; the others send one message and do not tune
    """

    barrier: ClassVar[str] = ""

    communication: str = choice("every-round", ("every-round", "once"))
    refresh_every: int = integer(1, 1)
    targets: str | tuple[str, ...] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        named = isinstance(self.targets, tuple) and all(isinstance(agent, str) for agent in self.targets)
        if self.targets != "all" and not (named and self.targets):
            raise ConfigError(
                f"targets: expected 'all' or a list of agents' names (texts), got {self.targets!r}"
            )

    def check_targets(self, federation: Federation) -> None:
        """Raise ConfigError if a target is not an agent of the federation."""
        for agent in () if self.targets == "all" else self.targets:
            if agent not in federation.agents:
                known = ", ".join(federation.agents[:10]) + (", ..." if len(federation.agents) > 10 else "")
                raise ConfigError(f"targets: expected agents of this federation ({known}), got {agent!r}")

    def is_target(self, agent: str) -> bool:
        """Return whether an agent tunes."""
        return self.targets == "all" or agent in self.targets

    def is_due(self, agent: str, answered: Collection[str], server_round: int) -> bool:
        """Return whether the server asks an agent for a message in this round.

        Parameters
        ----------
        answered : agents that were asked for a message before and replied
        """
        if self.targets != "all" and not set(self.targets) - {agent}:
            return False  # the only target is this agent itself: no other agent would use its message
        if agent not in answered:
            return True
        if self.communication == "once" or not self.is_target(agent):
            return False
        return (server_round - 1) % self.refresh_every == 0


@dataclass(frozen=True)
class RoundsPresent:
    """The rounds in which agents took part.

    A server that asks a fraction `f` of the agents in each round sees an agent every `1 / f` rounds. So an
    absence counts in units of the mean gap between two rounds of an agent, over all agents.
    """

    # agent -> its first round, its last round, and in how many it took part
    rounds: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    now: int = 0  # the latest round

    def enter(self, agents: Iterable[str], server_round: int) -> RoundsPresent:
        """Return the record with the agents of a round; a round that is entered again counts once."""
        rounds = dict(self.rounds)
        for agent in agents:
            first, last, count = rounds.get(agent, (server_round, 0, 0))
            rounds[agent] = first, server_round, count + (last != server_round)
        return RoundsPresent(rounds, max(self.now, server_round))

    def mean_gap(self) -> float:
        """Return the mean number of rounds from one round of an agent to its next; infinite if unknown."""
        number = sum(count - 1 for _, _, count in self.rounds.values())
        total = sum(last - first for first, last, _ in self.rounds.values())
        return total / number if number else float("inf")

    def have_left(self) -> frozenset[str]:
        """Return the agents that took part once and have left."""
        longest = GAPS * self.mean_gap()
        return frozenset(a for a, (_, last, _) in self.rounds.items() if self.now - last > longest)
