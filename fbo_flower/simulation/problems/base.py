"""The base class of benchmark problems: one objective per agent over one search space, to be maximised.

A problem is a frozen dataclass whose fields are its options. So it is hashable, it
can be sent to worker processes as a few numbers, and it can be the key of the caches that hold agents' data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.space.checks import as_real, plain
from fbo_flower.space.space import SearchSpace

Config = Mapping[str, object]


@dataclass(frozen=True)
class Problem(ABC):
    """One objective per agent; higher is better.

    Attributes
    ----------
    num_agents : the agents that take part are `0 .. num_agents - 1`
    seed : seed of everything the problem draws once: splits, functions, orders
    name, metric : as printed in tables and figures
    default_agents : default of `num_agents`
    max_agents : largest number of agents that the data allow; None: any number
    """

    num_agents: int
    seed: int

    name: ClassVar[str]
    metric: ClassVar[str]
    default_agents: ClassVar[int]
    max_agents: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = plain(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            if not _is_instance(value, hints[field.name]):
                raise ConfigError(
                    f"{self.name}: {field.name}: expected {_describe(hints[field.name])}, got {value!r}"
                )
        if self.num_agents < 1:
            raise ConfigError(f"{self.name}: expected at least 1 agent, got {self.num_agents}")
        if self.max_agents is not None and self.num_agents > self.max_agents:
            raise ConfigError(
                f"{self.name}: expected at most {self.max_agents} agents, got {self.num_agents}"
            )
        if self.seed < 0:
            raise ConfigError(f"{self.name}: seed: expected a non-negative integer, got {self.seed}")

    @property
    @abstractmethod
    def space(self) -> SearchSpace:
        """The search space of the hyperparameters to tune."""

    @abstractmethod
    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        """Evaluate `config` on the data of agent `context.partition`."""

    @property
    def aims(self) -> Aims:
        """What the objective returns: one number, or outputs by name."""
        return NUMBER

    @abstractmethod
    def true_value(self, config: Config, partition: int) -> float | None:
        """Return the value without noise, or None if it is unknown.

        For a deterministic objective this takes as long as an evaluation.
        """

    def optimum(self, partition: int) -> float | None:
        """Return the largest `true_value` of this agent, or None if it is unknown."""
        self.check_partition(partition)
        return None

    def check_data(self) -> None:
        """Raise ConfigError if data files are missing; the error says how to get them."""
        return

    def title(self) -> str:
        """Return the name of the problem in a study's settings."""
        return self.name

    def agent_name(self, partition: int) -> str:
        """Return the id of the agent that holds a partition."""
        return str(partition)

    def role(self, partition: int) -> str:
        """Return the agent's role, for algorithms with roles; "" means none."""
        self.check_partition(partition)
        return ""

    def check_partition(self, partition: int) -> None:
        """Raise ConfigError if `partition` is not the number of an agent."""
        if not 0 <= partition < self.num_agents:
            raise ConfigError(
                f"{self.name}: partition: expected 0 <= partition < {self.num_agents}, got {partition}"
            )

    def expect(self, option: str, holds: bool, expected: str) -> None:
        """Raise ConfigError that names `option` and its value if `holds` is false."""
        if not holds:
            raise ConfigError(f"{self.name}: {option}: expected {expected}, got {getattr(self, option)!r}")

    @classmethod
    def options(cls) -> dict[str, object]:
        """Return the names of the options with their defaults."""
        return {field.name: field.default for field in fields(cls) if field.default is not MISSING}


def number(config: Config, name: str) -> float:
    """Return parameter `name` of `config` as a float."""
    value = as_real(config.get(name))
    if value is None:
        raise ObjectiveError(f"{name}: expected a number in the configuration, got {config.get(name)!r}")
    return float(value)


def _is_instance(value: object, hint: Any) -> bool:
    """Return whether a value matches an annotation, which is a class, a Literal or a union of classes."""
    if get_origin(hint) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    allowed = get_args(hint) or (hint,)
    if isinstance(value, bool):
        return bool in allowed
    if isinstance(value, int | float) and float in allowed:
        return math.isfinite(value)
    return isinstance(value, allowed)


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    names = {int: "an integer", float: "a finite number", bool: "true or false", type(None): "None"}
    return " or ".join(names.get(kind, str(kind)) for kind in get_args(hint) or (hint,))
