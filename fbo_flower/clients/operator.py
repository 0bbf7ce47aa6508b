"""`Operator`: the limits that an agent's operator sets in `node_config`; the server cannot change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.capabilities import NeedsTrials, Summable, roles, unwrapped
from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import Task
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import ConfigError, WireError

DISCLOSURES = ("none", "incumbent", "trials")


def check_disclose(disclose: object) -> None:
    """Raise ConfigError if there is no such setting of `disclose`."""
    if disclose not in DISCLOSURES:
        raise ConfigError(f"disclose: expected one of {', '.join(DISCLOSURES)}, got {disclose!r}")


@dataclass(frozen=True)
class Operator:
    """The operator's settings.

    Parameters
    ----------
    disclose : what the agent sends in addition to the algorithm's report: "none", "incumbent" or "trials"
    max_trials : largest number of evaluations in all studies together; 0: no limit
    max_studies : largest number of studies; 0: no limit
    max_epsilon : largest epsilon in all studies together, see `privacy_budget`; 0: no limit
    delta : `delta` of this epsilon. The server's `delta` has no effect on the agent's budget
    secure_sums : smallest number of agents in a secure sum; the agent refuses algorithms that could use
        secure sums, but use smaller ones or none; 0: the server may see single reports
    """

    disclose: str = "none"
    max_trials: int = 0
    max_studies: int = 0
    max_epsilon: float = 0.0
    delta: float = 1e-5
    secure_sums: int = 0

    @staticmethod
    def read(node_config: Mapping[str, Any], disclose: str) -> Operator:
        """Return the settings in `node_config`.

        Parameters
        ----------
        disclose : used if `node_config` does not set it

        Raises
        ------
        ConfigError
            If a setting is out of bounds, or two settings contradict each other.
        """
        disclose = str(node_config.get("disclose", disclose))
        check_disclose(disclose)
        numbers = {f.name: node_config.get(f.name, f.default) for f in fields(Operator)[1:]}
        for name, value in numbers.items():
            if name == "delta":
                check_number(name, value, 1e-15, 0.5)
            else:
                check_number(name, value, 0, integer=name != "max_epsilon")
        if numbers["max_epsilon"] and disclose != "none":
            raise ConfigError(
                f"disclose: expected 'none' together with max_epsilon, got {disclose!r}; remove one of them"
            )
        return Operator(disclose, **numbers)

    @property
    def limits(self) -> tuple[str, ...]:
        """Return the names of the limits that this operator set."""
        names = ("max_trials", "max_studies", "max_epsilon", "secure_sums")
        return tuple(name for name in names if getattr(self, name))

    def admit(self, algorithm: Algorithm[Any]) -> None:
        """Raise ConfigError if the operator's settings exclude an algorithm."""
        if roles(algorithm):
            raise ConfigError(
                f"algorithm: {algorithm.name} expects sites with a role ({', '.join(roles(algorithm))}); "
                "this agent has an objective; make it with `site_app`"
            )
        core = unwrapped(algorithm)
        least = core.secure_sums if isinstance(core, Summable) else self.secure_sums
        if least < self.secure_sums:
            raise ConfigError(
                f"secure_sums: expected sums of at least {self.secure_sums} agents, as node_config requires, "
                f"got {least} in the options of {algorithm.name}; set secure_sums={self.secure_sums} there"
            )
        if isinstance(core, NeedsTrials) and core.reports_trials() and self.disclose != "trials":
            raise ConfigError(
                f"disclose: expected 'trials', because {algorithm.name} with these options sends every trial "
                f"to the server, got {self.disclose!r}; this agent does not take part"
            )

    def check_studies(self, memory: Memory, study: str) -> None:
        """Raise WireError if a task of a new study exceeds `max_studies`."""
        if self.max_studies and memory.study(study) is None and memory.num_studies() >= self.max_studies:
            raise WireError(
                f"study: expected at most {self.max_studies}, the max_studies in node_config, got a further "
                "one; the agent does not take part in it",
                "study",
            )

    def charge(self, memory: Memory, key: str, task: Task) -> None:
        """Count a task's trials against `max_trials`; raise WireError if they exceed it.

        A task is counted before its first evaluation, and only once, even if the agent is interrupted.
        """
        if not self.max_trials or not task.num_trials:
            return
        spent = memory.note("trials")
        if spent.get("task") == key:
            return
        total = int(str(spent.get("total", 0))) + task.num_trials
        if total > self.max_trials:
            raise WireError(
                f"num-trials: expected at most {self.max_trials} in all studies, the max_trials in "
                f"node_config, got {total} with this task; the agent does not run it",
                "num-trials",
            )
        memory.put_note("trials", {"total": total, "task": key})
