"""Who an agent is, and `Operator`: what its operator sets in `node_config`, which no server can change.

In simulation the run config lists the files of all nodes, and a simulated agent is named after its file.

Work is counted before it is done, in the agent's memory, and only once even if the agent is interrupted. With
a budget of epsilon the agent refuses every task whose report depends on its observations without noise of its
own; each noisy report is priced at its own noise multiplier, in all studies together.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from flwr.app import Context

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.messages import reports_trials, uses_observations
from fbo_flower.algorithms.options import Settings, bounded, choice, flag, integer
from fbo_flower.algorithms.records import Task
from fbo_flower.algorithms.registry import APP, DEFAULT, DISCLOSURES, OPERATOR, SIMULATION
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError, JournalError, WireError
from fbo_flower.numerics.privacy import Account
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.paths import path_of, read_text
from fbo_flower.version import __version__


def agent_id(context: Context) -> str:
    """Return the agent's id: `agent` in `node_config`, else the name of its file, else `partition-id`."""
    if "agent" not in context.node_config and (name := name_of_file(context.node_config, context.run_config)):
        return name
    for key in ("agent", "partition-id"):
        if key in context.node_config:
            name = str(context.node_config[key])
            if 0 < len(name) <= 100 and name.isprintable() and "," not in name:
                return name
            raise ConfigError(f"{key}: expected 1 to 100 printable characters without a comma, got {name!r}")
    raise ConfigError(
        "node_config: expected 'agent' or 'partition-id', got neither; start the SuperNode with "
        "--node-config 'agent=\"NAME\"'"
    )


def in_simulation() -> bool:
    """Return whether this is a worker of Flower's simulation, whose nodes all end with their run.

    `node_config` does not tell: an operator may set `partition-id` on a device. No SuperNode imports that.
    """
    return "flwr.simulation.ray_transport.ray_actor" in sys.modules


def shows_trials(node_config: Mapping[str, Any]) -> bool:
    """Return whether this process simulates a node in an actor of Ray, so that all data are one user's."""
    ray = sys.modules.get("ray")
    if ray is None or not in_simulation() or "partition-id" not in node_config or not ray.is_initialized():
        return False
    return bool(ray.get_runtime_context().get_actor_id())


def data_file(context: ObjectiveContext) -> Path | None:
    """Return the path of this node's data file; None if it has none.

    On a device it is `data` in `node_config`, which the operator sets. A simulated node takes the file of its
    partition in the run config's `data`, which `fbo-flower run --data 'dir/*.csv'` sets. The run config never
    overrides the operator's choice.

    Parameters
    ----------
    context : the second argument of an objective

    Raises
    ------
    ConfigError
        If the run config lists files, but none for this partition.
    """
    own = str(context.node_config.get("data", ""))
    if own:
        return path_of(own, "data")
    text = str(context.run_config.get("data", ""))
    if not text:
        return None
    try:
        files = dict(enumerate(json.loads(text)))
        return path_of(files[context.partition], "data")
    except (ValueError, TypeError, LookupError) as error:
        raise ConfigError(
            f"data: expected a JSON list with a file for partition {context.partition}, got {text[:80]!r}; "
            "set it with fbo-flower run --data 'dir/*.csv'"
        ) from error


def name_of_file(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> str | None:
    """Return a simulated agent's name, that of its file; None if the run config lists no file for it."""
    try:
        files = json.loads(str(run_config["data"]))
        is_list = isinstance(files, list)  # otherwise the app has a key `data` of its own
        return dict(enumerate(names_of_files(files)))[int(node_config["partition-id"])] if is_list else None
    except (ValueError, TypeError, LookupError):
        return None


def names_of_files(files: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return a different name for each file: the file's name, and as much more of its path as is needed.

    If no part of the paths makes the names different, they are the files' numbers.

    >>> names_of_files(["data/north.csv", "data/south.csv"]), names_of_files(["a/x.csv", "b/x.csv"])
    (['north', 'south'], ['a/x', 'b/x'])
    """
    paths = [Path(file) for file in files]
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        for last in ([path.stem for path in paths], [path.name for path in paths]):
            names = ["/".join([*path.parts[-depth:-1], name]) for path, name in zip(paths, last, strict=True)]
            # what an agent's id may have
            names = ["".join("_" if c == "," or not c.isprintable() else c for c in n)[-100:] for n in names]
            if len(set(names)) == len(names):
                return names
    return [str(number) for number in range(len(paths))]


def node_info(context: Context) -> dict[str, str | float]:
    """Return versions, the clock in seconds since 1970, and whether there is a journal, without its path."""
    return {
        "version": __version__,
        "flwr": _flower_version(),
        "python": platform.python_version(),
        "time": time.time(),
        "journal": "kept" if context.node_config.get("journal") else "none",
    }


_flower_version = cache(partial(metadata.version, "flwr"))  # it reads a file, once for all simulated agents


_LIMITS = ("max_trials", "max_studies", "max_epsilon", "secure_sums")
_SETTINGS = (*_LIMITS, "participation", "delta", "disclose", "disclose_curves", "secure_peers")
_PRIVACY, _TRIALS = "privacy", "trials"  # notes in the agent's memory


class BudgetSpentError(WireError):
    """A task asks for more evaluations than `max_trials` or the search leaves; the agent declines it."""


@dataclass(frozen=True)
class Operator(Settings):
    """The operator's settings.

    Parameters
    ----------
    disclose : what the agent sends in addition to the algorithm's report: "none", "incumbent" or "trials"
    max_trials : largest number of evaluations in all studies together; 0: no limit. An agent that has made
        them is asked for no more, and the study goes on without waiting for it
    participation : share of the rounds in which the agent gets tasks, above 0; 1: all rounds
    max_studies : largest number of studies; 0: no limit
    max_epsilon : largest epsilon in all studies together; 0: no limit
    delta : `delta` of this epsilon. The server's `delta` has no effect on the agent's budget
    secure_sums : smallest number of agents in a secure sum; the agent refuses algorithms that could use
        secure sums, but use smaller ones or none; 0: the server may see single reports
    chosen_by : who set `disclose`: "default" (nobody), "app author", "operator" or "simulation"
    secure_peers : public identity keys of the agents that may be in a sum with this one, in hexadecimal
        digits; empty: all agents that the server names
    disclose_curves : whether the agent sends medians of its learning curves to a server that pools them

    Raises
    ------
    ConfigError
        If a setting is out of bounds, or two settings contradict each other.
    """

    disclose: str = choice("none", DISCLOSURES)
    max_trials: int = integer(0, 0)
    participation: float = bounded(1.0, 1e-3, 1.0)
    max_studies: int = integer(0, 0)
    max_epsilon: float = bounded(0.0, 0.0)
    delta: float = bounded(1e-5, 1e-15, 0.5)
    secure_sums: int = integer(0, 0)
    chosen_by: str = DEFAULT
    secure_peers: frozenset[str] = frozenset()
    disclose_curves: bool = flag(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_epsilon and self.disclose != "none":
            raise ConfigError(
                f"disclose: expected 'none' together with max_epsilon, got {self.disclose!r}; remove one of "
                "them"
            )
        if self.max_epsilon and self.disclose_curves:
            raise ConfigError(
                "disclose_curves: expected False together with max_epsilon, because medians have no noise, "
                "got True; remove one of them"
            )
        if self.secure_peers and not self.secure_sums:
            raise ConfigError(
                "secure_sums: expected at least 2 together with secure_peers, got 0; without it the server "
                "may ask for reports outside of secure sums"
            )

    @staticmethod
    def read(
        node_config: Mapping[str, Any], disclose: str | None, chosen_by: str = APP, **app: Any
    ) -> Operator:
        """Return the settings in `node_config`, and those of the app where it has none.

        Parameters
        ----------
        disclose : the app's; None: "none", and "trials" in Flower's simulation without a privacy budget
        chosen_by : who set the argument `disclose`
        app : further settings of the app; None: not set
        """
        given: dict[str, Any] = {name: value for name, value in app.items() if value is not None}
        given |= {name: node_config[name] for name in _SETTINGS if name in node_config}
        if "disclose" in given:
            disclose, chosen_by = str(given.pop("disclose")), OPERATOR
        elif disclose is None:
            shows = shows_trials(node_config) and not given.get("max_epsilon")
            disclose, chosen_by = ("trials", SIMULATION) if shows else ("none", DEFAULT)
        if "secure_peers" in given:
            given["secure_peers"] = _read_peers(str(given["secure_peers"]))
        given |= {"disclose": disclose, "chosen_by": chosen_by}
        return Operator(**given)

    @property
    def limits(self) -> tuple[str, ...]:
        """Return the names of the limits that this operator set."""
        return tuple(name for name in _LIMITS if getattr(self, name))

    def admit(self, algorithm: Algorithm[Any]) -> None:
        """Raise ConfigError if the operator's settings exclude an algorithm."""
        if algorithm.roles:
            raise ConfigError(
                f"algorithm: {algorithm.name} expects sites with a role ({', '.join(algorithm.roles)}); "
                "this agent has an objective; make it with `site_app`"
            )
        least = algorithm.secure_sums if "secure_sums" in algorithm.options() else self.secure_sums
        if least < self.secure_sums:
            raise ConfigError(
                f"secure_sums: expected sums of at least {self.secure_sums} agents, as node_config requires, "
                f"got {least} in the options of {algorithm.name}; set secure_sums={self.secure_sums} there"
            )
        if reports_trials(algorithm) and self.disclose != "trials":
            raise ConfigError(
                f"disclose: expected 'trials', because {algorithm.name} with these options sends every trial "
                f"to the server, got {self.disclose!r}; this agent does not take part"
            )

    def check_studies(self, memory: Memory) -> None:
        """Raise WireError if a new study exceeds `max_studies`."""
        if memory.num_studies() >= self.max_studies:
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

    # -- budgets -------------------------------------------------------------------------------

    def allowed_part(self, memory: Memory, key: str, task: Task) -> Task:
        """Return a task with as many of its trials as `max_trials` still allows, if it allows one.

        An interrupted task keeps its part. Without a trial left the task is returned as it is, and refused.
        """
        spent = memory.note(_TRIALS)
        if spent.get("task") == key:
            return replace(task, num_trials=int(str(spent.get("number", task.num_trials))))
        left = self.max_trials - _total(spent)
        return replace(task, num_trials=left) if 0 < left < task.num_trials else task

    def charge(self, memory: Memory, key: str, task: Task) -> None:
        """Count a task's trials against `max_trials`; raise BudgetSpentError if they exceed it."""
        spent = memory.note(_TRIALS)
        if not task.num_trials or spent.get("task") == key:
            return
        total = _total(spent) + task.num_trials
        if total > self.max_trials:
            raise BudgetSpentError(
                f"num-trials: expected at most {self.max_trials} in all studies, the max_trials in "
                f"node_config, got {total} with this task; the agent does not run it",
                "num-trials",
            )
        memory.put_note(_TRIALS, {"total": total, "task": key, "number": task.num_trials})

    def is_spent(self, memory: Memory) -> bool:
        """Return whether the agent has made all evaluations that `max_trials` allows."""
        return bool(self.max_trials) and _total(memory.note(_TRIALS)) >= self.max_trials

    def spend(
        self, memory: Memory, key: str, algorithm: Algorithm[Any], task: Task, space: SearchSpace
    ) -> None:
        """Enter a task's report in the account of epsilon.

        Parameters
        ----------
        key : names the study and the task

        Raises
        ------
        WireError
            If the report has no noise of the agent's own, or the total exceeds `max_epsilon`. Nothing was
            evaluated.
        JournalError
            If the account cannot be read. It is not replaced by an empty one.
        """
        if not uses_observations(algorithm, space, task):
            return
        note = memory.note(_PRIVACY)
        try:
            account = Account.from_json(json.loads(str(note["account"]))) if note else Account()
        except (KeyError, ValueError, TypeError, ConfigError) as error:
            raise JournalError(
                f"privacy account: expected one that this version wrote, got {error}; restore the journal "
                "from a copy. The agent sends no noisy report until then"
            ) from error
        if note.get("last", "") == key:
            return
        noise = algorithm.message_noise()
        if not noise:
            raise self._too_much(f"a report of {algorithm.name} without noise of the agent's own")
        try:
            account = account.add(noise)
            total = account.epsilon(self.delta)
        except ConfigError as error:  # a noise multiplier or a number of entries that no account can hold
            raise self._too_much(str(error)) from error
        if not total <= self.max_epsilon:
            raise self._too_much(f"{total:.4g} in all studies at delta = {self.delta:g}")
        memory.put_note(_PRIVACY, {"account": json.dumps(account.to_json()), "last": key})

    def _too_much(self, got: str) -> WireError:
        return WireError(
            f"epsilon: expected at most {self.max_epsilon:g}, the max_epsilon in node_config, got {got}; the "
            "agent does not run this task",
            "epsilon",
        )


def _total(spent: Mapping[str, object]) -> int:
    return int(str(spent.get("total", 0)))


def _read_peers(setting: str) -> frozenset[str]:
    """Return the public identity keys in `secure_peers`: keys separated by commas, or a file of keys."""
    if not setting:
        return frozenset()
    text = setting
    if not all(map(_is_key, setting.split(","))):
        try:
            text = ",".join(read_text(path_of(setting)).split())
        except (OSError, ConfigError) as error:
            raise ConfigError(
                "secure_peers: expected keys of 64 hexadecimal digits separated by commas, or a file with "
                f"one per line, got {setting[:100]!r}: {error}"
            ) from error
    parts = [part.strip().lower() for part in text.split(",")]
    wrong = next((part for part in parts if not _is_key(part)), None)
    if wrong is not None:
        raise ConfigError(
            f"secure_peers: expected keys of 64 hexadecimal digits, one per line of {setting!r}, got "
            f"{wrong[:100]!r}; `fbo-flower key JOURNAL` prints an agent's key"
        )
    return frozenset(parts)


def _is_key(text: str) -> bool:
    return re.fullmatch("[0-9a-fA-F]{64}", text.strip()) is not None
