"""`OwnObjective`: your own Python function as a problem, with one agent per item of your data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.options import check_number
from fbo_flower.clients.evaluator import points_of
from fbo_flower.clients.objective import ObjectiveContext, check_objective, takes_context
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.simulation.problems.base import Config, Problem
from fbo_flower.space.space import SearchSpace

OwnFunction = Callable[..., float | Mapping[str, float]]  # `f(config, data)` or `f(config, data, context)`
AgentData = Mapping[Any, Any] | Sequence[Any]


@dataclass(frozen=True, eq=False)
class OwnObjective(Problem):
    """A function `f(config, data)` that every agent evaluates on its own data; `own_objective` builds it.

    Parameters
    ----------
    objective : `f(config, data)`, or `f(config, data, context)` with the `ObjectiveContext` of the trial
    search_space : of its configurations
    names : the agents' ids, by partition
    data : the agents' data, by partition
    aims : what it returns, and whether larger or smaller is better
    initial : configurations that every agent evaluates first
    """

    objective: OwnFunction
    search_space: SearchSpace
    names: tuple[str, ...]
    data: tuple[Any, ...]
    aims: Aims = NUMBER
    initial: tuple[Config, ...] = ()

    name: ClassVar[str] = "own objective"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = 1
    # a function with its data equals itself only; as a `Problem` it would equal all of its size and seed
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        check_number("seed", self.seed, 0, integer=True)

    @classmethod
    def options(cls) -> dict[str, object]:
        """Return no options, because functions and data cannot be written into `study.json`."""
        return {}

    @property
    def space(self) -> SearchSpace:
        return self.search_space

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        further = {"context": context} if self._takes_context else {}
        value: Any = self.objective(dict(config), self.data[context.partition], **further)
        return value  # type: ignore[no-any-return]  # the agent checks it, and changes the signs

    @cached_property
    def _takes_context(self) -> bool:
        return takes_context(self.objective)  # takes ten times as long as a call of a small function

    def true_value(self, config: Config, partition: int) -> float | None:
        """Return None: whether the function has noise is unknown."""
        return None

    def title(self) -> str:
        return str(getattr(self.objective, "__name__", self.name)).strip("<>")

    def agent_name(self, partition: int) -> str:
        return self.names[partition]


def own_objective(
    objective: object, space: object, agents: object, seed: int, aims: Aims, initial: object
) -> OwnObjective:
    """Return the problem of a user's function; see `simulate` for the arguments.

    Raises
    ------
    ConfigError
        If an argument has the wrong type, or a configuration of `initial` is not in the search space.
    """
    check_objective(objective, space, "data")
    names, data = _named(agents)
    function: Any = objective  # `check_objective` has checked both
    search_space: Any = space
    points_of(initial, search_space)
    known: Any = initial
    return OwnObjective(len(names), seed, function, search_space, names, data, aims, tuple(known))


def _named(agents: object) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the agents' ids and their data."""
    if isinstance(agents, Mapping):
        names, data = tuple(str(name) for name in agents), tuple(agents.values())
    elif isinstance(agents, Sequence) and not isinstance(agents, str | bytes):
        names, data = tuple(map(str, range(len(agents)))), tuple(agents)
    else:
        raise ConfigError(
            "agents: expected the agents' data, a dict from names to data or a list with one item per agent, "
            f"got {kind_of(agents)}; for agents without data pass their number"
        )
    if not names:
        raise ConfigError("agents: expected the data of at least one agent, got none")
    for name in names:
        if not 0 < len(name) <= 100 or not name.isprintable() or "," in name or names.count(name) > 1:
            raise ConfigError(
                "agents: expected different names of 1 to 100 printable characters without a comma, got "
                f"{name[:40]!r}{' twice' if names.count(name) > 1 else ''}"
            )
    return names, data
