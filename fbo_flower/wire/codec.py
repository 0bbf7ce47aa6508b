"""Encode tasks and reports as arrays and scalars; decode and check those that arrive.

A task or a report becomes NumPy arrays by name and a flat dictionary of scalars. `flower_records` puts them
into Flower messages, or into the lists of `NumPyClient`. An incoming message is not trusted until
`decode_task` or `decode_report` has checked its version, study, agent, search space, names, dtypes, shapes,
bounds and sizes.

What an agent discloses beside its report has names that begin with "disclosed."; the operator's setting
`disclose` decides which of them are sent. A summary of learning curves `(k, 3)` has a row per step: the step,
the number of curves, their median; see `numerics.curves`. It comes with a task only if the server pools
curves, and an agent answers with its own only then, and only if its operator allows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AnyArray, Array, Phase, Report, Scalar, Task, Trials
from fbo_flower.errors import WireError
from fbo_flower.wire.checks import (
    MAX_NAME,
    check_names,
    checked_arrays,
    checked_values,
    count_at,
    json_object,
    show,
    text_at,
)

SCHEMA_VERSION = 1
MAX_TASK = 10**7  # trials that one task may ask for

_HEADER = frozenset({"schema", "study", "agent", "space", "phase", "round", "trial", "num-trials", "values"})
_IN_TASKS = _HEADER | {"algorithm", "options"}
_IN_REPORTS = _HEADER | {
    "num-failed", "spent", "disclosed.failures", "disclosed.incumbent", "disclosed.expected",
}  # fmt: skip
_TEXTS = ("study", "agent", "space", "algorithm")
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
    study, agent, space, name = (text_at(config, key, MAX_NAME) for key in _TEXTS)
    return Envelope(study, agent, space, name, text_at(config, "options"))


def decode_task(packed: Packed, schema: Schema) -> Task:
    """Return the task after its header, see `decode_envelope`; WireError if it does not fit `schema`."""
    config = packed.config
    check_names(config, _IN_TASKS, "config")
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
    return Packed({**report.arrays, **arrays}, config | scalars)


def decline(task: Packed) -> Packed:
    """Return the answer to a task that an agent's budget does not allow."""
    header = {key: task.config[key] for key in ("schema", "study", "agent")}
    return Packed({}, header | {"declined": True, "spent": True})


def declines(packed: Packed, envelope: Envelope) -> bool:
    """Return whether a reply says that the agent's budget does not allow the task."""
    header: dict[str, Scalar] = {"schema": SCHEMA_VERSION, "study": envelope.study, "agent": envelope.agent}
    refusal = decline(Packed({}, header)).config
    if packed.arrays or len(packed.config) != len(refusal):
        return False
    got, expected = ({k: (type(v), v) for k, v in config.items()} for config in (packed.config, refusal))
    return got == expected


def decode_report(
    packed: Packed, task: Task, envelope: Envelope, schema: Schema, dimension: int, aims: Aims = NUMBER
) -> tuple[Report, Disclosure]:
    """Return the report and the disclosure; WireError if it does not answer exactly this task.

    Parameters
    ----------
    task, envelope : the task and header that were sent
    schema : the algorithm's schema of reports
    dimension : `D` of the search space
    aims : the agents' objectives and limits; without bounds
    """
    config = packed.config
    _check_version(config)
    check_names(config, _IN_REPORTS, "config")
    for key, expected in _header(envelope, task).items():
        got = config.get(key)
        if type(got) is not type(expected) or got != expected:
            raise WireError(f"{key}: expected {show(expected)}, got {show(got)}", key)
    num_failed = count_at(config, "num-failed")
    if num_failed > task.num_trials:
        raise WireError(f"num-failed: expected at most {task.num_trials}, got {num_failed}", "num-failed")
    allowed = {**schema.arrays, **disclosed_arrays(dimension, task.num_trials, aims)}
    named = checked_arrays(packed.arrays, allowed)
    values = checked_values(config, schema)
    disclosure = decode_disclosure(named, config, task, num_failed, aims)
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


def _check_version(config: Mapping[str, Scalar]) -> None:
    version = config.get("schema")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise WireError(f"schema: expected version {SCHEMA_VERSION}, got {show(version)}", "schema")


# -- what an agent discloses ------------------------------------------------------------------------

LATEST_TIME = 9e9  # seconds since 1970 that a clock may show, the year 2255
# the columns of trials that may leave an agent
_COLUMNS = ("points", "values", "pulls", "outputs", "feasible", "times", "stopped")


@dataclass(frozen=True)
class Disclosure:
    """What the agent's operator allows to leave the agent besides the report.

    Parameters
    ----------
    trials : the evaluations of this task, with `disclose = "trials"`
    incumbent : value of the agent's best (`algorithms.records.Best`), with `disclose = "incumbent"` or
        "trials"; NaN before the first success
    recommendation : `(D,)`, the point of the agent's best, if it was not chosen by its value alone
    expected : the mean there, where values are noisy; None: they are not
    curves : `(k, 3)`, medians of the agent's learning curves, see `checked_summary`; None: it sends none
    """

    trials: Trials | None = None
    incumbent: float | None = None
    recommendation: Array | None = None
    expected: float | None = None
    curves: Array | None = None


def encode_disclosure(disclosure: Disclosure) -> tuple[dict[str, AnyArray], dict[str, Scalar]]:
    """Return a disclosure as arrays and scalars."""
    arrays: dict[str, AnyArray | None] = {}
    scalars: dict[str, Scalar] = {}
    if disclosure.trials is not None:
        arrays |= {name: getattr(disclosure.trials, name) for name in _COLUMNS}
        scalars["disclosed.failures"] = json.dumps(disclosure.trials.reasons, separators=(",", ":"))
    arrays |= {"recommendation": disclosure.recommendation, "curves": disclosure.curves}
    for name, number in (("incumbent", disclosure.incumbent), ("expected", disclosure.expected)):
        if number is not None:
            scalars[f"disclosed.{name}"] = float(number)
    return {f"disclosed.{name}": array for name, array in arrays.items() if array is not None}, scalars


def decode_disclosure(
    named: Mapping[str, AnyArray],
    config: Mapping[str, Scalar],
    task: Task,
    num_failed: int,
    aims: Aims = NUMBER,
) -> Disclosure:
    """Return the disclosure; WireError if it contradicts the task or the report.

    `named` holds arrays that fit `disclosed_arrays`, `num_failed` is that of the report.
    """
    rows = {name: named[f"disclosed.{name}"] for name in _COLUMNS if f"disclosed.{name}" in named}
    trials = _disclosed_trials(rows, config, task, aims) if rows else None
    if (
        trials is not None
        and trials.pulls is None
        and (failed := np.isnan(trials.values).sum()) != num_failed
    ):
        raise WireError(f"num-failed: expected {failed} as disclosed, got {num_failed}", "num-failed")
    incumbent = config.get("disclosed.incumbent")
    if incumbent is not None and (not isinstance(incumbent, float) or np.isinf(incumbent)):
        raise _refusal(f"incumbent: expected a number, got {show(incumbent)}")
    recommendation = cast("Array | None", named.get("disclosed.recommendation"))
    expected = config.get("disclosed.expected")
    if expected is not None and not (
        recommendation is not None and isinstance(expected, float) and np.isfinite(expected)
    ):
        raise _refusal(f"expected: expected a finite number beside a recommendation, got {show(expected)}")
    own = named.get(OWN)
    if own is not None:  # an agent has no more curves than trials
        own = checked_summary(OWN, own, float(task.end))
    return Disclosure(trials, incumbent, recommendation, expected, own)


def _refusal(text: str) -> WireError:
    return WireError(f"disclosed.{text}", "disclosed")


@lru_cache(maxsize=256)
def disclosed_arrays(dimension: int, num_trials: int, aims: Aims = NUMBER) -> Mapping[str, ArraySpec]:
    """Return the arrays that an agent may disclose after a task of `num_trials` trials."""
    further: dict[str, ArraySpec] = {}
    if aims.has_outputs:
        shape = (None, len(aims.names))
        further["disclosed.outputs"] = ArraySpec(shape, low=-np.inf, high=np.inf, max_length=num_trials)
    if aims.limits:
        further["disclosed.feasible"] = ArraySpec((None,), "bool", 0, 1, num_trials)
    return further | {
        "disclosed.points": ArraySpec((None, dimension), low=0.0, high=1.0, max_length=num_trials),
        "disclosed.values": ArraySpec((None,), low=-np.inf, high=np.inf, max_length=num_trials),
        "disclosed.pulls": ArraySpec((None,), "int64", 1, num_trials, num_trials),
        "disclosed.recommendation": ArraySpec((dimension,), low=0.0, high=1.0),
        "disclosed.times": ArraySpec((None, 2), low=0.0, high=LATEST_TIME, max_length=num_trials),
        "disclosed.stopped": ArraySpec((None,), "int64", -1, LATEST_STEP, num_trials),
        OWN: SPEC,
    }


def _disclosed_trials(
    rows: Mapping[str, Any], config: Mapping[str, Scalar], task: Task, aims: Aims
) -> Trials:
    """Return the trials in arrays of `_COLUMNS`, which may be there only together."""
    needed = {"points", "values"} | ({"outputs"} if aims.has_outputs else set())
    needed |= {"feasible"} if aims.limits else set()
    if not needed <= set(rows):
        raise _refusal(f"points: expected {', '.join(sorted(needed))} together, got {', '.join(rows)}")
    values, missing = rows["values"], np.isnan(rows["values"])
    spans = rows.get("pulls", np.ones(len(values), dtype=np.int64))
    if {len(array) for array in rows.values()} != {len(spans)} or spans.sum() != task.num_trials:
        raise _refusal(f"points: expected rows of {task.num_trials} trials, got {len(values)} rows")
    first = task.trial + np.cumsum(spans) - spans
    plain = config.get("disclosed.failures") == "{}"
    failures = {} if plain else json_object(config, "disclosed.failures")
    failed = {str(trial) for trial in first[missing]}
    # a row of several trials has a value and a reason when some of them failed
    known = {str(trial) for trial in first} if "pulls" in rows and failures else failed
    if np.isinf(values).any() or not failed <= set(failures) <= known:
        raise _refusal("values: expected finite numbers, and NaN with a reason where a trial failed")
    if not all(isinstance(reason, str) and len(reason) <= 1000 for reason in failures.values()):
        raise _refusal("failures: expected texts of at most 1000 characters")
    outputs = rows.get("outputs")
    if outputs is not None and not (
        np.array_equal(outputs[:, 0], values, equal_nan=True)
        and np.isfinite(outputs[~missing]).all()
        and np.isnan(outputs[missing]).all()
    ):
        raise _refusal(
            "outputs: expected finite numbers, the first of which is the trial's value, and NaN where a "
            "trial failed"
        )
    steps, times, holds = (rows.get(name) for name in ("stopped", "times", "feasible"))
    for name, wrong, expected in (
        ("stopped", steps is not None and steps[missing] >= 0, "-1 where a trial failed"),
        ("times", times is not None and times[:, 1] < times[:, 0], "no end before its start"),
        ("feasible", holds is not None and holds[missing], "0 where a trial failed"),
    ):
        if np.any(wrong):
            raise _refusal(f"{name}: expected {expected}")
    reasons = np.array([failures.get(str(trial), "") for trial in first], dtype=object) if failures else None
    return Trials(**rows, trials=first, failures=reasons)


# -- summaries of learning curves -------------------------------------------------------------------

OWN, POOLED = "disclosed.curves", "pooled.curves"  # names of the arrays in reports and tasks
MAX_STEPS = 256  # rows of a summary
LEAST_CURVES = 3  # curves behind each median that leaves an agent
LEAST_AGENTS = 3  # agents behind each pooled median
LATEST_STEP = 2.0**53
LARGEST = 1e300  # a median may be any number that is not close to overflow
SPEC = ArraySpec((None, 3), low=-LARGEST, high=LARGEST, max_length=MAX_STEPS)


def checked_summary(name: str, array: AnyArray, most_curves: float = LATEST_STEP) -> Array:
    """Return a received summary.

    WireError if it is not `(k, 3)` finite float64 numbers with at most `MAX_STEPS` ascending steps, or a row
    claims too few curves, or more than `most_curves`.
    """
    summary = np.asarray(checked_arrays({name: array}, {name: SPEC})[name], dtype=np.float64)
    steps, curves, _ = summary.T
    whole = (steps == np.floor(steps)).all() and (curves == np.floor(curves)).all()
    if not whole or (steps < 0).any() or (steps > LATEST_STEP).any() or (np.diff(steps) <= 0).any():
        raise WireError(f"{name}: expected ascending steps from 0 and whole numbers of curves", "bounds")
    if (curves < LEAST_CURVES).any() or (curves > most_curves).any():
        raise WireError(f"{name}: expected {LEAST_CURVES} to {most_curves:g} curves at each step", "bounds")
    return summary


def split_pooled(arrays: Mapping[str, AnyArray]) -> tuple[Mapping[str, AnyArray], Array | None]:
    """Return the arrays of a task without the pooled summary, and that; WireError if it is malformed."""
    if POOLED not in arrays:
        return arrays, None
    summary = checked_summary(POOLED, arrays[POOLED])
    return {name: array for name, array in arrays.items() if name != POOLED}, summary
