"""`Operator`: the limits that an agent's operator sets in `node_config`; the server cannot change them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import Task
from fbo_flower.algorithms.registry import APP, DEFAULT, DISCLOSURES, OPERATOR
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import ConfigError, WireError

_NUMBERS = ("participation", "max_trials", "max_studies", "max_epsilon", "delta", "secure_sums")
_SETTINGS = ("disclose", "disclose_curves", *_NUMBERS, "secure_peers")


class BudgetSpentError(WireError):
    """A task asks for more evaluations than `max_trials` leaves; the agent declines it."""


def check_disclose(disclose: object) -> None:
    """Raise ConfigError if there is no such setting of `disclose`."""
    if disclose not in DISCLOSURES:
        raise ConfigError(f"disclose: expected one of {', '.join(DISCLOSURES)}, got {disclose!r}")


def check_flag(name: str, value: object) -> None:
    """Raise ConfigError unless a setting is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: expected True or False, got {value!r}")


@dataclass(frozen=True)
class Operator:
    """The operator's settings.

    Parameters
    ----------
    disclose : what the agent sends in addition to the algorithm's report: "none", "incumbent" or "trials"
    max_trials : largest number of evaluations in all studies together; 0: no limit. An agent that has made
        them is asked for no more, and the study goes on without waiting for it
    participation : share of the rounds in which the agent gets tasks, above 0; 1: all rounds
    max_studies : largest number of studies; 0: no limit
    max_epsilon : largest epsilon in all studies together, see `privacy_budget`; 0: no limit
    delta : `delta` of this epsilon. The server's `delta` has no effect on the agent's budget
    secure_sums : smallest number of agents in a secure sum; the agent refuses algorithms that could use
        secure sums, but use smaller ones or none; 0: the server may see single reports
    chosen_by : who set `disclose`: "default" (nobody), "app author", "operator" or "simulation"
    secure_peers : public identity keys of the agents that may be in a sum with this one, in hexadecimal
        digits; empty: all agents that the server names
    disclose_curves : whether the agent sends medians of its learning curves to a server that pools them
    """

    disclose: str = "none"
    max_trials: int = 0
    participation: float = 1.0
    max_studies: int = 0
    max_epsilon: float = 0.0
    delta: float = 1e-5
    secure_sums: int = 0
    chosen_by: str = DEFAULT
    secure_peers: frozenset[str] = frozenset()
    disclose_curves: bool = False

    @staticmethod
    def read(
        node_config: Mapping[str, Any],
        disclose: str | None,
        chosen_by: str = APP,
        disclose_curves: bool = False,
    ) -> Operator:
        """Return the settings in `node_config`.

        Parameters
        ----------
        disclose : used if `node_config` does not set it; None: "none"
        chosen_by : who set the argument `disclose`
        disclose_curves : used if `node_config` does not set it

        Raises
        ------
        ConfigError
            If a setting is out of bounds, or two settings contradict each other.
        """
        if not any(name in node_config for name in _SETTINGS):
            return _without_settings(disclose, chosen_by, disclose_curves)
        if "disclose" in node_config:
            disclose, chosen_by = str(node_config["disclose"]), OPERATOR
        else:
            standard = _without_settings(disclose, chosen_by)
            disclose, chosen_by = standard.disclose, standard.chosen_by
        check_disclose(disclose)
        numbers = {f.name: node_config.get(f.name, f.default) for f in fields(Operator) if f.name in _NUMBERS}
        for name, value in numbers.items():
            if name == "delta":
                check_number(name, value, 1e-15, 0.5)
            elif name == "participation":
                check_number(name, value, 1e-3, 1.0)
            else:
                check_number(name, value, 0, integer=name != "max_epsilon")
        if numbers["max_epsilon"] and disclose != "none":
            raise ConfigError(
                f"disclose: expected 'none' together with max_epsilon, got {disclose!r}; remove one of them"
            )
        curves = node_config.get("disclose_curves", disclose_curves)
        check_flag("disclose_curves", curves)
        if numbers["max_epsilon"] and curves:
            raise ConfigError(
                "disclose_curves: expected False together with max_epsilon, because medians have no noise, "
                "got True; remove one of them"
            )
        peers = _read_peers(str(node_config.get("secure_peers", "")))
        if peers and not numbers["secure_sums"]:
            raise ConfigError(
                "secure_sums: expected at least 2 together with secure_peers, got 0; without it the server "
                "may ask for reports outside of secure sums"
            )
        return Operator(disclose, secure_peers=peers, chosen_by=chosen_by, disclose_curves=curves, **numbers)

    @property
    def limits(self) -> tuple[str, ...]:
        """Return the names of the limits that this operator set."""
        names = ("max_trials", "max_studies", "max_epsilon", "secure_sums")
        return tuple(name for name in names if getattr(self, name))

    def admit(self, algorithm: Algorithm[Any]) -> None:
        """Raise ConfigError if the operator's settings exclude an algorithm."""
        if algorithm.roles:
            raise ConfigError(
                f"algorithm: {algorithm.name} expects sites with a role ({', '.join(algorithm.roles)}); "
                "this agent has an objective; make it with `site_app`"
            )
        core = algorithm.inner
        least = core.secure_sums if "secure_sums" in core.options() else self.secure_sums
        if least < self.secure_sums:
            raise ConfigError(
                f"secure_sums: expected sums of at least {self.secure_sums} agents, as node_config requires, "
                f"got {least} in the options of {algorithm.name}; set secure_sums={self.secure_sums} there"
            )
        if core.reports_trials() and self.disclose != "trials":
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

    def check_peers(self, identities: Sequence[bytes]) -> None:
        """Raise WireError if an agent in a secure sum is not in `secure_peers`."""
        strangers = [key.hex() for key in identities if key.hex() not in self.secure_peers]
        if self.secure_peers and strangers:
            raise WireError(
                f"secure_peers: expected only agents that node_config names in a secure sum, got "
                f"{len(strangers)} others, the first with key {strangers[0]}; add their keys, as "
                "`fbo-flower key` prints them, or leave these agents out of the study",
                "content",
            )

    def allowed_part(self, memory: Memory, key: str, task: Task) -> Task:
        """Return a task with as many of its trials as `max_trials` still allows, if it allows one.

        An interrupted task keeps its part. Without a trial left the task is returned as it is, and refused.
        """
        spent = memory.note("trials") if self.max_trials else {}
        if spent.get("task") == key:
            return replace(task, num_trials=int(str(spent.get("number", task.num_trials))))
        left = self.max_trials - int(str(spent.get("total", 0)))
        return replace(task, num_trials=left) if self.max_trials and 0 < left < task.num_trials else task

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
            raise BudgetSpentError(
                f"num-trials: expected at most {self.max_trials} in all studies, the max_trials in "
                f"node_config, got {total} with this task; the agent does not run it",
                "num-trials",
            )
        memory.put_note("trials", {"total": total, "task": key, "number": task.num_trials})

    def is_spent(self, memory: Memory) -> bool:
        """Return whether the agent has made all evaluations that `max_trials` allows."""
        return bool(self.max_trials) and int(str(memory.note("trials").get("total", 0))) >= self.max_trials


@lru_cache(maxsize=16)
def _without_settings(disclose: str | None, chosen_by: str, disclose_curves: bool = False) -> Operator:
    """Return the settings of an operator who has set nothing."""
    if disclose is None:
        return Operator("none", chosen_by=DEFAULT, disclose_curves=disclose_curves)
    check_disclose(disclose)
    return Operator(disclose, chosen_by=chosen_by, disclose_curves=disclose_curves)


def _read_peers(setting: str) -> frozenset[str]:
    """Return the public identity keys in `secure_peers`: keys separated by commas, or a file of keys."""
    if not setting:
        return frozenset()
    text = setting
    if not _is_list_of_keys(setting.split(",")):
        try:
            text = ",".join(Path(setting).read_text().split())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                "secure_peers: expected keys of 64 hexadecimal digits separated by commas, or a file with "
                f"one per line, got {setting[:100]!r}: {error}"
            ) from error
    parts = [part.strip().lower() for part in text.split(",")]
    if not _is_list_of_keys(parts):
        wrong = next(part for part in parts if not _is_list_of_keys([part]))
        raise ConfigError(
            f"secure_peers: expected keys of 64 hexadecimal digits, one per line of {setting!r}, got "
            f"{wrong[:100]!r}; `fbo-flower key JOURNAL` prints an agent's key"
        )
    return frozenset(parts)


def _is_list_of_keys(parts: Sequence[str]) -> bool:
    return all(re.fullmatch("[0-9a-fA-F]{64}", part.strip()) for part in parts)
