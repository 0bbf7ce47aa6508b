"""What an agent checks that tunes only some of the shared parameters."""

from __future__ import annotations

from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.space.held import HeldSpace
from fbo_flower.space.space import SearchSpace


def check_subset(algorithm: Algorithm[Any], space: SearchSpace) -> None:
    """Raise ConfigError if the agent has fixed parameters and the algorithm needs all of them."""
    reason = algorithm.inner.needs_all_parameters
    if reason and isinstance(space, HeldSpace):
        raise ConfigError(
            f"fixed: expected agents that tune all parameters, because in {algorithm.name} {reason}, got "
            f"{', '.join(space.fixed)} fixed; this agent does not take part"
        )
