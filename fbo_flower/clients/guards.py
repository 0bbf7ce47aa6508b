"""What an agent checks before it works on a task, and what it lets out with its report.

**The operator's limits.** `Operator` holds what the operator sets in `node_config`; the server cannot change
it.

**One answer for each piece of work.** A server that may ask the same question twice, with other options or
other arrays, subtracts the answers. So the options of a study are pinned at its first task, every trial is
answered once, and so is every kind of report about the same observations. A task that is sent again unchanged
gets the first answer again.

**A privacy budget.** An agent whose operator limits the epsilon refuses every task whose report depends on
its observations without noise of its own. Every report with noise is entered in the agent's account at its
own noise multiplier, in all studies together, and a task whose report would exceed the budget is refused.
`delta` is the operator's. A task is entered before it runs, and only once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm, with_secure_sums
from fbo_flower.algorithms.messages import Schema
from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import AgentState, AnyArray, Phase, Report, Task
from fbo_flower.algorithms.registry import APP, DEFAULT, DISCLOSURES, OPERATOR, find
from fbo_flower.algorithms.run_task import TaskResult
from fbo_flower.clients.evaluator import Times, disclosed_times
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import ConfigError, JournalError, WireError
from fbo_flower.numerics.privacy import Account
from fbo_flower.space.held import HeldSpace
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import task_key
from fbo_flower.wire import Envelope

_NUMBERS = ("participation", "max_trials", "max_studies", "max_epsilon", "delta", "secure_sums")
_SETTINGS = frozenset(("disclose", "disclose_curves", *_NUMBERS, "secure_peers"))
_LONGEST = 20_000  # characters of the options of an algorithm that is kept for the next message
_KEYS, _PRIVACY, _TRIALS = "secure-key", "privacy", "trials"  # notes in the agent's memory


class BudgetSpentError(WireError):
    """A task asks for more evaluations than `max_trials` or the search leaves; the agent declines it."""


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
        if _SETTINGS.isdisjoint(node_config):
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
        spent = memory.note(_TRIALS) if self.max_trials else {}
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
        spent = memory.note(_TRIALS)
        if spent.get("task") == key:
            return
        total = int(str(spent.get("total", 0))) + task.num_trials
        if total > self.max_trials:
            raise BudgetSpentError(
                f"num-trials: expected at most {self.max_trials} in all studies, the max_trials in "
                f"node_config, got {total} with this task; the agent does not run it",
                "num-trials",
            )
        memory.put_note(_TRIALS, {"total": total, "task": key, "number": task.num_trials})

    def is_spent(self, memory: Memory) -> bool:
        """Return whether the agent has made all evaluations that `max_trials` allows."""
        return bool(self.max_trials) and int(str(memory.note(_TRIALS).get("total", 0))) >= self.max_trials


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


def algorithm_of(name: str, options: str, space: SearchSpace) -> tuple[Algorithm[Any], Schema]:
    """Return an algorithm that fits the space, and its schema of tasks.

    Parameters
    ----------
    options : JSON, as the message holds them
    """
    make = _make if len(options) > _LONGEST else _shared
    return make(find(name).load(), options, space)


def _make(kind: type[Algorithm[Any]], options: str, space: SearchSpace) -> tuple[Algorithm[Any], Schema]:
    algorithm = with_secure_sums(kind.from_options(_read_options(options)))
    algorithm.check(space)
    return algorithm, algorithm.task_schema(space)


_shared = lru_cache(maxsize=64)(_make)


def _read_options(text: str) -> dict[str, object]:
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise WireError(f"options: expected a JSON object, got {text[:80]!r}")
    return options


def pinned(envelope: Envelope) -> str:
    """Return the algorithm and its options as text, to be stored with a new study."""
    return f"{envelope.algorithm} {envelope.options}"


def check_once(
    memory: Memory,
    envelope: Envelope,
    algorithm: Algorithm[Any],
    task: Task,
    agent_state: AgentState,
    key: str,
) -> tuple[str, str]:
    """Return the name of the piece of work that a task asks for, and the checksum of what it asks.

    The name is the same for all tasks that ask about the same observations; "" if the agent may answer it any
    number of times.

    Parameters
    ----------
    key : `task_key(task)`

    Raises
    ------
    BudgetSpentError
        If the agent has ended its search.
    WireError
        If the algorithm or its options are not those of the study's first task, the agent has answered
        another task about this work, the task does not begin at the agent's next trial, or it asks for a
        second noisy report about the same observations.
    """
    study, following = envelope.study, agent_state.next_trial
    first = memory.algorithm(study)
    if first and first != pinned(envelope):
        raise WireError(
            f"options: expected those of the study's first task, {first}, got {pinned(envelope)}; "
            "start a new study for other options",
            "options",
        )
    asked, name = algorithm.evaluation_task(task), ""
    key = key if asked is task else task_key(asked)
    if task.num_trials:
        name = f"{task.phase} trial {task.trial}"
    elif not algorithm.sums_securely or task.phase in {Phase.TRAIN, Phase.FINISH}:
        # named by the agent's own count: the server may put any trial and any phase in a task without trials.
        # Other exchanges within a secure sum have rules of their own
        kind = algorithm.inner.report_kind(task)
        name = "" if kind is None else f"report {kind} after {following}"
    before = memory.answered(study, name) if name else None
    if before is not None and before != key:
        raise WireError(
            f"task: expected the one that this agent has answered already ({name}), got another one; "
            "an agent answers each piece of work once",
            "answered",
        )
    late = task.num_trials > 0 and task.trial < following and before is None
    if late or (task.trial > following and not algorithm.roles):
        raise WireError(f"trial: expected {following}, the agent's next trial, got {task.trial}")
    if task.num_trials and before is None and algorithm.inner.has_ended(agent_state):
        raise BudgetSpentError(f"num-trials: expected 0, because the search has ended, got {task.num_trials}")
    noisy = not task.num_trials and algorithm.inner.reports_with_trials
    if noisy and algorithm.uses_observations(task, agent_state.space):
        raise WireError(
            "num-trials: expected at least one trial for a report with noise, got 0", "num-trials"
        )
    return name, key


def check_subset(algorithm: Algorithm[Any], space: SearchSpace) -> None:
    """Raise ConfigError if the agent has fixed parameters and the algorithm needs all of them."""
    reason = algorithm.inner.needs_all_parameters
    if reason and isinstance(space, HeldSpace):
        raise ConfigError(
            f"fixed: expected agents that tune all parameters, because in {algorithm.name} {reason}, got "
            f"{', '.join(space.fixed)} fixed; this agent does not take part"
        )


def own_keys(memory: Memory) -> tuple[bytes, bytes]:
    """Return the private identity key (32 bytes) and agreement key (48 bytes); the first call makes them."""
    from fbo_flower.secure import keys  # imported late: only secure sums need it

    note = memory.note(_KEYS)
    if not note:
        note = {"identity": keys.new_identity().hex(), "private": keys.new_private_key().hex()}
        memory.put_note(_KEYS, note)
    return bytes.fromhex(str(note["identity"])), bytes.fromhex(str(note["private"]))


def own_card(memory: Memory) -> bytes:
    """Return the agent's public keys as it sends them at registration: `CARD_BYTES` bytes."""
    from fbo_flower.secure.keys import make_card

    return make_card(*own_keys(memory))


def public_identity(memory: Memory) -> bytes:
    """Return the agent's public identity key (32 bytes), which other operators list in `secure_peers`."""
    from fbo_flower.secure.keys import identity_of

    return identity_of(own_card(memory))


def identity(memory: Memory, study: str) -> dict[str, AnyArray]:
    """Return the arrays that the agent's state must hold in a study with secure sums.

    Raises
    ------
    WireError
        If the memory has forgotten the study, and with it which reports were masked.
    """
    from fbo_flower.algorithms.secure_member import identity_arrays

    if study in cast(list[str], memory.note("forgotten").get("studies", [])):
        raise WireError(
            f"study: expected one that this agent has not forgotten, got {study[:100]!r}; start a new study, "
            "or give the agent a `journal` in node_config, which keeps all studies"
        )

    identity, private = own_keys(memory)
    return identity_arrays(private, identity, study)


def spend(
    memory: Memory,
    budget: float,
    delta: float,
    key: str,
    algorithm: Algorithm[Any],
    task: Task,
    space: SearchSpace,
) -> None:
    """Enter a task's report in the account; raise WireError if the total exceeds the budget.

    Parameters
    ----------
    budget : largest epsilon of all studies together; 0: no limit, nothing is entered
    delta : `delta` of that epsilon
    key : names the study and the task

    Raises
    ------
    WireError
        If the report has no noise of the agent's own, or the total exceeds the budget. Nothing was evaluated.
    JournalError
        If the account cannot be read. It is not replaced by an empty one.
    """
    if not budget or not algorithm.uses_observations(task, space):
        return
    account, last = _read_account(memory)
    if last == key:
        return
    core = algorithm.inner
    noise = core.message_noise()
    if not noise:
        raise _refusal(budget, f"a report of {algorithm.name} without noise of the agent's own")
    try:
        account = account.add(noise)
        total = account.epsilon(delta)
    except ConfigError as error:  # a noise multiplier or a number of entries that no account can hold
        raise _refusal(budget, str(error)) from error
    if not total <= budget:
        raise _refusal(budget, f"{total:.4g} in all studies at delta = {delta:g}")
    memory.put_note(_PRIVACY, {"account": json.dumps(account.to_json()), "last": key})


def _read_account(memory: Memory) -> tuple[Account, str]:
    """Return the account and the key of the last task."""
    note = memory.note(_PRIVACY)
    try:
        account = Account.from_json(json.loads(str(note["account"]))) if note else Account()
        return account, str(note.get("last", ""))
    except (KeyError, ValueError, TypeError, ConfigError) as error:
        raise JournalError(
            f"privacy account: expected one that this version wrote, got {error}; restore the journal from a "
            "copy. The agent sends no noisy report until then"
        ) from error


def _refusal(budget: float, got: str) -> WireError:
    return WireError(
        f"epsilon: expected at most {budget:g}, the max_epsilon in node_config, got {got}; the agent does "
        "not run this task",
        "epsilon",
    )


def consented(algorithm: Algorithm[Any], report: Report, disclose: str) -> Report:
    """Return the report without the arrays that the operator's setting `disclose` keeps at the agent."""
    consent = algorithm.inner.consent
    if not consent:
        return report
    kept = {n: a for n, a in report.arrays.items() if disclose in consent.get(n, (disclose,))}
    return replace(report, arrays=kept)


def disclosure_of(
    disclose: str, algorithm: Algorithm[Any], task: Task, result: TaskResult, times: Times
) -> wire.Disclosure:
    """Return what leaves the agent besides its report.

    Parameters
    ----------
    disclose : the operator's setting
    """
    if disclose == "none":
        return wire.Disclosure()
    outcome = result.outcome
    best = algorithm.incumbent(result.agent_state)
    if task.phase in (Phase.EVALUATE, Phase.REVEAL):  # Flower returns no arrays in these half-rounds
        return wire.Disclosure(incumbent=best)
    all_trials = disclose == "trials" and outcome.num_trials == task.num_trials > 0
    point = algorithm.recommend(result.agent_state) if algorithm.finishes else None
    if not all_trials:
        return wire.Disclosure(None, best, point)
    believed = algorithm.best_mean(result.agent_state)
    point, expected = believed or (point, None)
    aims = result.agent_state.aims
    return wire.Disclosure(
        outcome, best, point, expected, disclosed_times(times, outcome.trials),
        feasible=aims.feasible(outcome.outputs) if aims.limits and outcome.outputs is not None else None,
    )  # fmt: skip
