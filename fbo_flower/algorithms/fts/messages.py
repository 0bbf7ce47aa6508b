"""What algorithms agree on whose server keeps one message of every agent: who tunes, and when one is due."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.algorithms.records import Federation
from fbo_flower.errors import ConfigError
from fbo_flower.space.space import SearchSpace

COMMUNICATION = ("every-round", "once")
Lengthscale = float | tuple[float, ...]


class MessageOptions(Protocol):
    """The options that decide."""

    @property
    def targets(self) -> str | tuple[str, ...]:
        """The agents that tune, or "all"; the others only answer once."""

    @property
    def communication(self) -> str:
        """Whether messages are renewed, or the first is kept."""

    @property
    def refresh_every(self) -> int:
        """Rounds between two messages of an agent."""


def check_messages(options: MessageOptions) -> None:
    """Raise ConfigError unless the options can be."""
    check_choice("communication", options.communication, COMMUNICATION)
    check_number("refresh_every", options.refresh_every, 1, integer=True)
    targets = options.targets
    named = isinstance(targets, tuple) and all(isinstance(agent, str) for agent in targets)
    if targets != "all" and not (named and targets):
        raise ConfigError(f"targets: expected 'all' or a list of agents' names, got {targets!r}")


def check_targets(options: MessageOptions, federation: Federation) -> None:
    """Raise ConfigError unless all targets take part."""
    for agent in () if options.targets == "all" else options.targets:
        if agent not in federation.agents:
            raise ConfigError(f"targets: expected agents of this federation, got {agent!r}")


def is_target(options: MessageOptions, agent: str) -> bool:
    """Return whether an agent tunes."""
    return options.targets == "all" or agent in options.targets


def is_due(options: MessageOptions, agent: str, answered: Collection[str], server_round: int) -> bool:
    """Return whether an agent is asked for a message in this round.

    Parameters
    ----------
    answered : agents that were asked before, and replied
    """
    if options.targets != "all" and not set(options.targets) - {agent}:
        return False  # nobody would use it
    if agent not in answered:
        return True
    if options.communication == "once" or not is_target(options, agent):
        return False
    return (server_round - 1) % options.refresh_every == 0


def check_lengthscale(value: Lengthscale) -> None:
    """Raise ConfigError unless these are lengthscales of shared features."""
    for scale in value if isinstance(value, tuple) else [value]:
        check_number("lengthscale", scale, 1e-4, 1e4)


def check_features(lengthscale: Lengthscale | str, space: SearchSpace) -> None:
    """Raise ConfigError unless there is one lengthscale, or one for each feature of the search space."""
    if isinstance(lengthscale, tuple) and len(lengthscale) != space.num_features:
        raise ConfigError(
            f"lengthscale: expected {space.num_features} numbers, one per feature of the search "
            f"space, got {len(lengthscale)}"
        )
