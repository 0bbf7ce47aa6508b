"""What an agent's operator has decided, in its `node_config`, and no server can change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.capabilities import NeedsTrials, Summable, roles, unwrapped
from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import Task
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import ConfigError, WireError

DISCLOSURES = ("none", "incumbent", "trials")


@dataclass(frozen=True)
class Operator:
    """The operator's settings.

    Parameters
    ----------
    disclose : what may leave beyond the algorithm's report: "none", "incumbent" or "trials"
    max_trials : evaluations in all studies together, after which the agent declines; 0: no bound
    max_epsilon : see `privacy_budget`; 0: no bound
    secure_sums : least number of agents in a sum, without which the agent declines algorithms that can add
        up; 0: the server may see reports
    """

    disclose: str = "none"
    max_trials: int = 0
    max_epsilon: float = 0.0
    secure_sums: int = 0

    @staticmethod
    def read(node_config: Mapping[str, Any], disclose: str) -> Operator:
        """Return what a node's configuration says; `disclose` where it says nothing of that.

        Raises
        ------
        ConfigError
            If a setting cannot be.
        """
        disclose = str(node_config.get("disclose", disclose))
        if disclose not in DISCLOSURES:
            raise ConfigError(f"disclose: expected one of {', '.join(DISCLOSURES)}, got {disclose!r}")
        numbers = {name: node_config.get(name, 0) for name in ("max_trials", "max_epsilon", "secure_sums")}
        for name, value in numbers.items():
            check_number(name, value, 0, integer=name != "max_epsilon")
        if numbers["max_epsilon"] and disclose != "none":
            raise ConfigError(f"disclose: expected 'none' beside max_epsilon, got {disclose!r}")
        return Operator(disclose, **numbers)

    def admit(self, algorithm: Algorithm[Any]) -> None:
        """Raise ConfigError unless the agent takes part in an algorithm."""
        if roles(algorithm):
            raise ConfigError(
                f"algorithm: {algorithm.name} expects sites with a role ({', '.join(roles(algorithm))}); "
                "this agent has an objective, see `site_app`"
            )
        core = unwrapped(algorithm)
        least = core.secure_sums if isinstance(core, Summable) else self.secure_sums
        if least < self.secure_sums:
            raise ConfigError(
                f"secure_sums: expected sums of at least {self.secure_sums} agents, as node_config says, got "
                f"{least} in the options of {algorithm.name}; this agent does not take part"
            )
        if isinstance(core, NeedsTrials) and core.reports_trials() and self.disclose != "trials":
            raise ConfigError(
                f"disclose: expected 'trials' for {algorithm.name} with these options, which send every "
                f"trial to the server, got {self.disclose!r}; this agent does not take part"
            )

    def charge(self, memory: Memory, key: str, task: Task) -> None:
        """Count a task's trials against `max_trials`; WireError if that is used up.

        They are counted before the first is made, and once, however often the agent is cut off.
        """
        if not self.max_trials or not task.num_trials:
            return
        spent = memory.note("trials")
        if spent.get("task") == key:
            return
        total = int(str(spent.get("total", 0))) + task.num_trials
        if total > self.max_trials:
            raise WireError(
                f"num-trials: expected at most {self.max_trials} in all studies, as max_trials in "
                f"node_config says, got {total}; this agent does not take part any more",
                "num-trials",
            )
        memory.put_note("trials", {"total": total, "task": key})
