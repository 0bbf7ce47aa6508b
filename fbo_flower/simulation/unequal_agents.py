"""Agents of a simulation that differ: in their budgets, their share of the rounds, and what they tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.clients.guards import check_subset
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.simulation.problems import Problem
from fbo_flower.space.held import held_space

FixedPerAgent = Mapping[str, Mapping[str, object]] | Sequence[Mapping[str, object] | None]
_NUMBERS = "a number, a dict from agents to numbers, or a list"
_KINDS = {
    "max_trials": _NUMBERS,
    "participation": _NUMBERS,
    "fixed": "a dict from agents to their fixed parameters, or a list of such parameters",
}
PerAgent = float | Mapping[str, float] | Sequence[float]  # one number for all, by agent, or in their order


@dataclass(frozen=True)
class UnequalAgents:
    """Settings of each agent, as its operator sets them on a device.

    Parameters
    ----------
    names : the agents, by partition
    max_trials, participation : one number for all agents, agent -> number (others have no limit), or a list
        with a number for each; None: no limit
    fixed : agent -> its fixed parameters, name -> value (others have none), or a list with those of each

    Raises
    ------
    ConfigError
        If a mapping names an agent that does not exist, or a list has not one item per agent.
    """

    names: tuple[str, ...]
    max_trials: PerAgent | None = None
    participation: PerAgent | None = None
    fixed: FixedPerAgent | None = None

    def __post_init__(self) -> None:
        for partition in range(len(self.names)):
            self.settings(partition)

    @classmethod
    def of(
        cls,
        problem: Problem,
        algorithm: Algorithm[Any],
        max_trials: PerAgent | None,
        participation: PerAgent | None,
        fixed: FixedPerAgent | None,
    ) -> UnequalAgents:
        """Return the settings of a problem's agents; ConfigError if sites with roles are given any."""
        if max_trials is None and participation is None and fixed is None:
            return NOBODY
        if algorithm.roles:
            raise ConfigError(
                f"max_trials, participation, fixed: expected none with {algorithm.name}, whose sites have "
                "roles"
            )
        names = tuple(problem.agent_name(partition) for partition in range(problem.num_agents))
        unequal = cls(names, max_trials, participation, fixed)
        for partition in range(len(names)):
            check_subset(algorithm, held_space(problem.space, unequal.settings(partition).get("fixed")))
        return unequal

    def settings(self, partition: int) -> dict[str, Any]:
        """Return the arguments of `TuningAgent` for one agent."""
        given = {
            name: self._of(name, getattr(self, name), partition)
            for name in ("max_trials", "participation", "fixed")
        }
        return {name: value for name, value in given.items() if value is not None}

    def _of(self, name: str, values: Any, partition: int) -> Any:
        if isinstance(values, Mapping):
            unknown = [str(agent) for agent in values if agent not in self.names]
            if unknown:
                raise ConfigError(
                    f"{name}: expected agents of the simulation ({', '.join(self.names[:5])}"
                    f"{', ...' if len(self.names) > 5 else ''}), got {', '.join(unknown[:5])}"
                )
            return values.get(self.names[partition])
        if isinstance(values, Sequence) and not isinstance(values, str):
            if len(values) != len(self.names):
                raise ConfigError(
                    f"{name}: expected one item for each of {len(self.names)} agents, got {len(values)}"
                )
            return values[partition]
        if values is not None and (
            name == "fixed" or isinstance(values, bool) or not isinstance(values, int | float)
        ):
            raise ConfigError(f"{name}: expected {_KINDS[name]}, got {kind_of(values)}")
        return values


NOBODY = UnequalAgents(())
