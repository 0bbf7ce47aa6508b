"""What an agent checks before it works on a task, and what it lets out with its report.

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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm, with_secure_sums
from fbo_flower.algorithms.messages import Schema
from fbo_flower.algorithms.records import AgentState, AnyArray, Phase, Report, Task
from fbo_flower.algorithms.registry import find
from fbo_flower.algorithms.run_task import TaskResult
from fbo_flower.clients.evaluator import Times, disclosed_times
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import ConfigError, JournalError, WireError
from fbo_flower.numerics.privacy import Account
from fbo_flower.space.held import HeldSpace
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import task_key
from fbo_flower.wire import Envelope

_LONGEST = 20_000  # characters of the options of an algorithm that is kept for the next message


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
    except (ValueError, RecursionError) as error:
        raise WireError(f"options: expected a JSON object, got {text[:80]!r}") from error
    if not isinstance(options, dict):
        raise WireError(f"options: expected a JSON object, got {text[:80]!r}")
    return options


@dataclass(frozen=True)
class Work:
    """A piece of work that a task asks for.

    Parameters
    ----------
    name : the same for all tasks that ask about the same observations; "" if the agent may answer it any
        number of times
    key : checksum of what the task asks for
    """

    name: str
    key: str


def work_of(algorithm: Algorithm[Any], task: Task, agent_state: AgentState, key: str = "") -> Work:
    """Return the piece of work that a task asks for.

    Parameters
    ----------
    key : `task_key(task)`, if it is known
    """
    asked = algorithm.evaluation_task(task)
    key = key if key and asked is task else task_key(asked)
    if task.num_trials:
        return Work(f"{task.phase} trial {task.trial}", key)
    if algorithm.sums_securely and task.phase not in {Phase.TRAIN, Phase.FINISH}:
        return Work("", key)  # an exchange within a secure sum, which has rules of its own
    kind = algorithm.inner.report_kind(task)
    # named by the agent's own count: the server may put any trial and any phase in a task without trials
    return Work("" if kind is None else f"report {kind} after {agent_state.next_trial}", key)


def check_new(memory: Memory, study: str, work: Work) -> None:
    """Raise WireError if the agent has answered another task about this piece of work."""
    known = memory.answered(study, work.name) if work.name else None
    if known is not None and known != work.key:
        raise WireError(
            f"task: expected the one that this agent has answered already ({work.name}), got another one; "
            "an agent answers each piece of work once",
            "answered",
        )


def check_trial(algorithm: Algorithm[Any], task: Task, agent_state: AgentState, answered: bool) -> None:
    """Raise WireError if a task does not begin at the agent's next trial.

    Parameters
    ----------
    answered : whether the agent has answered this task before
    """
    following = agent_state.next_trial
    late = task.num_trials > 0 and task.trial < following and not answered
    if late or (task.trial > following and not algorithm.roles):
        raise WireError(f"trial: expected {following}, the agent's next trial, got {task.trial}")


def check_noise(algorithm: Algorithm[Any], task: Task, agent_state: AgentState) -> None:
    """Raise WireError if a task asks for a second noisy report about the same observations."""
    if task.num_trials or not algorithm.inner.reports_with_trials:
        return
    if algorithm.uses_observations(task, agent_state.space):
        raise WireError(
            "num-trials: expected at least one trial for a report with noise, got 0", "num-trials"
        )


def pinned(envelope: Envelope) -> str:
    """Return the algorithm and its options as text, to be stored with a new study."""
    return f"{envelope.algorithm} {envelope.options}"


def check_pinned(memory: Memory, envelope: Envelope) -> None:
    """Raise WireError if a task has another algorithm or other options than the study's first task."""
    text = memory.algorithm(envelope.study)
    if text and text != pinned(envelope):
        raise WireError(
            f"options: expected those of the study's first task, {text}, got {pinned(envelope)}; "
            "start a new study for other options",
            "options",
        )


def check_subset(algorithm: Algorithm[Any], space: SearchSpace) -> None:
    """Raise ConfigError if the agent has fixed parameters and the algorithm needs all of them."""
    reason = algorithm.inner.needs_all_parameters
    if reason and isinstance(space, HeldSpace):
        raise ConfigError(
            f"fixed: expected agents that tune all parameters, because in {algorithm.name} {reason}, got "
            f"{', '.join(space.fixed)} fixed; this agent does not take part"
        )


_KEYS = "secure-key"


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
    from fbo_flower.secure.members import make_card

    return make_card(*own_keys(memory))


def public_identity(memory: Memory) -> bytes:
    """Return the agent's public identity key (32 bytes), which other operators list in `secure_peers`."""
    from fbo_flower.secure.members import identity_of

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


_PRIVACY = "privacy"


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
    return wire.Disclosure(outcome, best, point, expected, disclosed_times(times, outcome.trials))
