"""Encode tasks and reports as arrays and scalars; decode and check those that arrive.

A task or a report becomes NumPy arrays by name and a flat dictionary of scalars. `flower_records` puts them
into Flower messages, or into the lists of `NumPyClient`. An incoming message is not trusted until
`decode_task` or `decode_report` has checked its version, study, agent, search space, names, dtypes, shapes,
bounds and sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fbo_flower.algorithms.messages import Schema
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AnyArray, Phase, Report, Scalar, Task
from fbo_flower.errors import WireError
from fbo_flower.wire.checks import checked_arrays, checked_values, count_at, show, text_at
from fbo_flower.wire.disclosure import Disclosure, decode_disclosure, disclosed_arrays, encode_disclosure

SCHEMA_VERSION = 1
MAX_TASK = 10**7  # trials that one task may ask for

_HEADER = frozenset({"schema", "study", "agent", "space", "phase", "round", "trial", "num-trials", "values"})
_IN_TASKS = _HEADER | {"algorithm", "options"}
_IN_REPORTS = _HEADER | {
    "num-failed", "spent", "disclosed.failures", "disclosed.incumbent", "disclosed.expected",
}  # fmt: skip
_IN_REFUSALS = frozenset({"schema", "study", "agent", "declined", "spent"})

_PHASES = {str(phase): phase for phase in Phase}


class Packed(NamedTuple):
    """A message as arrays by name, and scalars."""

    arrays: Mapping[str, AnyArray]
    config: dict[str, Scalar]


@dataclass(frozen=True)
class Envelope:
    """The header of a message.

    Parameters
    ----------
    study : id of the study, drawn by the server
    agent : the agent that receives the task or sends the report
    space : digest of the search space
    algorithm, options : the algorithm's name, and its options as JSON; only in tasks
    """

    study: str
    agent: str
    space: str
    algorithm: str = ""
    options: str = "{}"


# -- tasks -------------------------------------------------------------------------------------


def encode_task(task: Task, envelope: Envelope) -> Packed:
    """Return a task as arrays and scalars."""
    config = _header(envelope, task)
    config |= {
        "values": canonical_json(dict(task.values)) if task.values else "{}",
        "algorithm": envelope.algorithm,
        "options": envelope.options,
    }
    return Packed(task.arrays, config)


def decode_envelope(config: Mapping[str, Scalar]) -> Envelope:
    """Return the header of a task; WireError if its version is another one or an entry is not a text."""
    _check_version(config)
    return Envelope(*(text_at(config, key) for key in ("study", "agent", "space", "algorithm", "options")))


def decode_task(packed: Packed, schema: Schema) -> Task:
    """Return the task; WireError if its version is another one or it does not fit `schema`."""
    config = packed.config
    decode_envelope(config)
    _check_names(config, _IN_TASKS)
    phase = _PHASES.get(text_at(config, "phase"))
    if phase is None:
        raise WireError(f"phase: expected one of {', '.join(Phase)}, got {show(config['phase'])}", "phase")
    num_trials = count_at(config, "num-trials")
    if num_trials > MAX_TASK:
        raise WireError(f"num-trials: expected at most {MAX_TASK}, got {num_trials}", "num-trials")
    return Task(
        phase,
        count_at(config, "round"),
        count_at(config, "trial"),
        num_trials,
        checked_arrays(packed.arrays, schema.arrays),
        checked_values(config, schema),
    )


# -- reports -----------------------------------------------------------------------------------


def encode_report(report: Report, task: Task, envelope: Envelope, disclosure: Disclosure) -> Packed:
    """Return a report and the agent's disclosure as arrays and scalars."""
    config = _header(envelope, task)
    config |= {
        "values": canonical_json(dict(report.values)) if report.values else "{}",
        "num-failed": report.num_failed,
    }
    arrays, scalars = encode_disclosure(disclosure)
    config |= scalars
    return Packed({**report.arrays, **arrays}, config)


def readdress(packed: Packed, task: Task) -> Packed:
    """Return an encoded report with the round of `task`, for a task that was sent again in a later round."""
    return Packed(packed.arrays, packed.config | {"round": task.round})


def mark_spent(packed: Packed) -> Packed:
    """Return an encoded report that says that the agent's budget of evaluations is used up."""
    return Packed(packed.arrays, packed.config | {"spent": True})


def says_spent(packed: Packed) -> bool:
    """Return whether an encoded report or a refusal says that the agent's budget is used up."""
    return packed.config.get("spent") is True


def decline(task: Packed) -> Packed:
    """Return the answer to a task that an agent's budget does not allow."""
    header = {key: task.config[key] for key in ("schema", "study", "agent")}
    return Packed({}, header | {"declined": True, "spent": True})


def declines(packed: Packed, envelope: Envelope) -> bool:
    """Return whether a reply says that the agent's budget does not allow the task."""
    config = packed.config
    header = config.get("schema"), config.get("study"), config.get("agent")
    expected = SCHEMA_VERSION, envelope.study, envelope.agent
    plain = not packed.arrays and config.keys() == _IN_REFUSALS
    return plain and config["declined"] is True and header == expected and says_spent(packed)


def decode_report(
    packed: Packed,
    task: Task,
    envelope: Envelope,
    schema: Schema,
    dimension: int,
) -> tuple[Report, Disclosure]:
    """Return the report and the disclosure; WireError if it does not answer exactly this task.

    Parameters
    ----------
    task, envelope : the task and header that were sent
    schema : the algorithm's schema of reports
    dimension : `D` of the search space
    """
    config = packed.config
    _check_version(config)
    _check_names(config, _IN_REPORTS)
    for key, expected in _header(envelope, task).items():
        got = config.get(key)
        if type(got) is not type(expected) or got != expected:
            raise WireError(f"{key}: expected {show(expected)}, got {show(got)}", key)
    num_failed = count_at(config, "num-failed")
    if num_failed > task.num_trials:
        raise WireError(f"num-failed: expected at most {task.num_trials}, got {num_failed}", "num-failed")
    allowed = {**schema.arrays, **disclosed_arrays(dimension, task.num_trials)}
    named = checked_arrays(packed.arrays, allowed)
    values = checked_values(config, schema)
    disclosure = decode_disclosure(named, config, task, num_failed)
    kept = {name: array for name, array in named.items() if not name.startswith("disclosed.")}
    return Report(task.trial, task.num_trials, num_failed, kept, values), disclosure


def _header(envelope: Envelope, task: Task) -> dict[str, Scalar]:
    return {
        "schema": SCHEMA_VERSION,
        "study": envelope.study,
        "agent": envelope.agent,
        "space": envelope.space,
        "phase": str(task.phase),
        "round": task.round,
        "trial": task.trial,
        "num-trials": task.num_trials,
    }


def _check_names(config: Mapping[str, Scalar], known: frozenset[str]) -> None:
    """Raise WireError if a message has scalars that it should not have."""
    if not known.issuperset(config):
        got = show(sorted(set(config) - known))
        raise WireError(f"config: expected only {', '.join(sorted(known))}, got {got}", "names")


def _check_version(config: Mapping[str, Scalar]) -> None:
    version = config.get("schema")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise WireError(f"schema: expected version {SCHEMA_VERSION}, got {show(version)}", "schema")
