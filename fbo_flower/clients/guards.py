"""What an agent checks before it works on a task, and what it lets out with its report.

A server that may ask the same question twice, with other options or other arrays, subtracts the answers. So
the options of a study are pinned at its first task, every trial is answered once, and so is every kind of
report about the same observations. A task that is sent again unchanged gets the first answer again.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.messages import (
    SUM,
    Schema,
    arrays_of,
    report_schema,
    schema_of,
    uses_observations,
    without_sum,
)
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Phase, Report, Task
from fbo_flower.algorithms.registry import find
from fbo_flower.algorithms.run_task import TaskResult
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.operator import BudgetSpentError
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.space.held import HeldSpace
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import StudyMemory
from fbo_flower.storage.files import task_key
from fbo_flower.wire import Envelope
from fbo_flower.wire.codec import LATEST_TIME

if TYPE_CHECKING:
    from fbo_flower.secure.member import SumGuard

LONGEST = 20_000  # characters of the options of an algorithm that is kept for the next message
_KEYS = "secure-key"  # note in the agent's memory


class Terms(NamedTuple):
    """What all tasks of a study at an agent have in common.

    Parameters
    ----------
    algorithm : it fits the search space
    pinned : its name and its options as text, which stay those of the study's first task
    tasks, reports : schemas of its tasks, those of a secure sum included, and of its reports without sums
    guard : lets reports leave under masks only; None without secure sums
    has_noise : whether each report has noise of the agent's own
    """

    algorithm: Algorithm[Any]
    pinned: str
    tasks: Schema
    reports: Schema
    guard: SumGuard | None
    has_noise: bool


def terms_of(name: str, options: str, space: SearchSpace) -> Terms:
    """Return what an agent works by if the server names an algorithm and its options, which are JSON."""
    make = _make if len(options) > LONGEST else _shared
    return make(find(name).load(), options, space)


def _make(kind: type[Algorithm[Any]], options: str, space: SearchSpace) -> Terms:
    try:
        read = json.loads(options)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise WireError(f"options: expected a JSON object, got {options[:80]!r}")
    algorithm = kind.from_options(read)
    algorithm.check(space)
    tasks, reports = task_schema(algorithm, space), report_schema(algorithm, space)
    pinned, has_noise = f"{kind.name} {options}", bool(algorithm.message_noise())
    return Terms(algorithm, pinned, tasks, reports, sum_guard(algorithm), has_noise)


def task_schema(algorithm: Algorithm[Any], space: SearchSpace) -> Schema:
    """Return the arrays and values that a task may hold, those of a secure sum included."""
    schema = schema_of(algorithm.task_content, algorithm, space)
    if guard := sum_guard(algorithm):
        schema = Schema({**schema.arrays, **guard.task_arrays()}, {**schema.values, SUM: int})
    return schema


_shared = lru_cache(maxsize=64)(_make)


class VerifiedTask(NamedTuple):
    """A verified task.

    Parameters
    ----------
    key : checksum of the task; the same task has the same key in every round
    report_key : names the report in the agent's memory
    others : `(k, 3)`, the pooled medians of learning curves that came with it; None: the server pools none
    """

    envelope: Envelope
    terms: Terms
    task: Task
    key: str
    report_key: str
    others: Array | None


def check_once(
    memory: Memory, known: StudyMemory | None, asked: VerifiedTask, agent_state: AgentState
) -> tuple[str, str]:
    """Return the name of the piece of work that a task asks for, and the checksum of what it asks.

    The name is the same for all tasks that ask about the same observations; "" if the agent may answer it any
    number of times.

    Parameters
    ----------
    known : what the memory holds of the study; None: nothing

    Raises
    ------
    BudgetSpentError
        If the agent has ended its search.
    WireError
        If the algorithm or its options are not those of the study's first task, the agent has answered
        another task about this work, the task does not begin at the agent's next trial, or it asks for a
        second noisy report about the same observations.
    """
    algorithm, guard, task = asked.terms.algorithm, asked.terms.guard, asked.task
    if known is not None and known.algorithm not in ("", asked.terms.pinned):
        raise WireError(
            f"options: expected those of the study's first task, {known.algorithm}, got "
            f"{asked.terms.pinned}; start a new study for other options",
            "options",
        )
    study, following, name = asked.envelope.study, agent_state.next_trial, ""
    lasting = algorithm.task_content.for_evaluations(task if guard is None else without_sum(task))
    key = asked.key if lasting is task else task_key(lasting)
    if task.num_trials:
        name = f"{task.phase} trial {task.trial}"
    elif guard is None or task.phase in {Phase.TRAIN, Phase.FINISH}:
        # named by the agent's own count: the server may put any trial and any phase in a task without trials.
        # Other exchanges within a secure sum have rules of their own
        kind = algorithm.task_content.report_kind(task)
        name = "" if kind is None else f"report {kind} after {following}"
    before = memory.answered(study, name) if name else None
    if before is not None and before != key:
        raise WireError(
            f"task: expected the one that this agent has answered already ({name}), got another one; "
            "an agent answers each piece of work once"
            + ("" if task.num_trials else "; the algorithm names different ones in `report_kind`"),
            "answered",
        )
    late = task.num_trials > 0 and task.trial < following and before is None
    if late or (task.trial > following and not algorithm.roles):
        raise WireError(f"trial: expected {following}, the agent's next trial, got {task.trial}")
    if task.num_trials and before is None and agent_state.has_ended:
        raise BudgetSpentError(f"num-trials: expected 0, because the search has ended, got {task.num_trials}")
    if (
        not task.num_trials
        and any(spec.with_trials for spec in arrays_of(algorithm.report_content).values())
        and uses_observations(algorithm, agent_state.space, task)
    ):
        raise WireError(
            "num-trials: expected at least one trial for a report with noise, got 0", "num-trials"
        )
    return name, key


def check_subset(algorithm: Algorithm[Any], space: SearchSpace) -> None:
    """Raise ConfigError if the agent has fixed parameters and the algorithm needs all of them."""
    reason = algorithm.needs_all_parameters
    if reason and isinstance(space, HeldSpace):
        raise ConfigError(
            f"fixed: expected agents that tune all parameters, because in {algorithm.name} {reason}, got "
            f"{', '.join(space.fixed)} fixed; this agent does not take part"
        )


# -- secure sums; their modules are imported late, because only secure sums need them --------------------


def sum_guard(algorithm: Algorithm[Any]) -> SumGuard | None:
    """Return what lets reports of an algorithm leave under masks only; None without secure sums."""
    if not algorithm.secure_sums:
        return None
    from fbo_flower.secure.member import SumGuard, check_summable

    check_summable(algorithm)
    return SumGuard(algorithm)


def own_keys(memory: Memory) -> tuple[bytes, bytes]:
    """Return the private identity key (32 bytes) and agreement key (32 bytes); the first call makes them."""
    from fbo_flower.secure import keys

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

    WireError if the memory has forgotten the study, and with it which reports were masked.
    """
    from fbo_flower.secure.member import identity_arrays

    if study in cast(list[str], memory.note("forgotten").get("studies", [])):
        raise WireError(
            f"study: expected one that this agent has not forgotten, got {study[:100]!r}; start a new study, "
            "or give the agent a `journal` in node_config, which keeps all studies"
        )
    identity, private = own_keys(memory)
    return identity_arrays(private, identity, study)


# -- what leaves -----------------------------------------------------------------------------------------


def consented(algorithm: Algorithm[Any], report: Report, disclose: str) -> Report:
    """Return the report without the arrays that the operator's setting `disclose` keeps at the agent."""
    kept = dict(report.arrays)
    for name, spec in arrays_of(algorithm.report_content).items():
        if spec.disclose is not None and disclose not in spec.disclose:
            kept.pop(name, None)
    return replace(report, arrays=kept)


def disclosure_of(
    disclose: str, algorithm: Algorithm[Any], task: Task, result: TaskResult
) -> wire.Disclosure:
    """Return what leaves the agent besides its report, as the operator's setting `disclose` allows."""
    within_sum = task.phase in (Phase.EVALUATE, Phase.REVEAL) and algorithm.secure_sums  # nothing is new
    if disclose == "none" or within_sum:
        return wire.Disclosure()
    outcome = result.outcome
    best = algorithm.best(result.agent_state)
    value = math.nan if best is None else best.value
    if task.phase is Phase.EVALUATE:  # Flower returns no arrays in this half-round
        return wire.Disclosure(incumbent=value)
    mean = best.mean if best is not None and math.isfinite(best.mean) else None
    ends = bool(algorithm.budget_option)
    named = best is not None and (mean is not None or ends)  # else it is the best of the trials
    point = best.point if best is not None and named else None
    if disclose != "trials" or not outcome.num_trials == task.num_trials > 0:
        return wire.Disclosure(None, value, point if ends else None)
    aims = result.agent_state.aims
    times = outcome.times  # a clock may be wrong by centuries
    if times is None or not ((times >= 0) & (times <= LATEST_TIME)).all():
        outcome = replace(outcome, times=None)
    if aims.limits and outcome.outputs is not None:
        outcome = replace(outcome, feasible=aims.feasible(outcome.outputs))
    return wire.Disclosure(outcome, value, point, mean)
