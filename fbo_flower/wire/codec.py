"""Encode tasks and reports as arrays and scalars; decode and check those that arrive.

A task or a report becomes NumPy arrays by name and a flat dictionary of scalars. `flower_records` puts them
into Flower messages, `numpy_client` into the lists of `NumPyClient`. An incoming message is not trusted until
`decode_task` or `decode_report` has checked its version, study, agent, search space, names, dtypes, shapes,
bounds and sizes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AnyArray, Array, Outcome, Phase, Report, Scalar, Task
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.errors import WireError
from fbo_flower.wire import curves

SCHEMA_VERSION = 1
MAX_TEXT = 2**20  # characters of one text
MAX_TRIALS = 2**53
MAX_TASK = 10**7  # trials that one task may ask for
MAX_KEPT = 2**16  # bytes of an array whose range is kept
LATEST_TIME = 9e9  # seconds since 1970 that a clock may show, the year 2255

_PHASES = {str(phase): phase for phase in Phase}
_SHORT_TEXT = 1000  # characters of JSON values that are kept, because the tasks of a round repeat them
_least, _largest = np.minimum.reduce, np.maximum.reduce  # NaN if there is one

# By name, the array of the last message that nobody can change, its specification, and its range.
_LAST_CHECKED: dict[str, tuple[AnyArray, ArraySpec, float, float]] = {}


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


@dataclass(frozen=True)
class Disclosure:
    """What the agent's operator allows to leave the agent besides the report.

    Parameters
    ----------
    trials : the evaluations of this task, with `disclose = "trials"`
    incumbent : best value so far, with `disclose = "incumbent"` or "trials"; NaN before the first success
    recommendation : `(D,)`, the point that the agent would use, if that is not its best trial
    times : `(k, 2)`, start and end of the evaluation of every row of `trials`, in seconds since 1970; None:
        unknown. Earlier versions do not send it
    curves : `(k, 3)`, medians of the agent's learning curves, see `wire.curves`; None: it sends none
    """

    trials: Outcome | None = None
    incumbent: float | None = None
    recommendation: Array | None = None
    times: Array | None = None
    curves: Array | None = None


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
    return Envelope(*(_text(config, key) for key in ("study", "agent", "space", "algorithm", "options")))


def decode_task(packed: Packed, schema: Schema) -> Task:
    """Return the task; WireError if its version is another one or it does not fit `schema`."""
    config = packed.config
    decode_envelope(config)
    phase = _PHASES.get(_text(config, "phase"))
    if phase is None:
        raise WireError(f"phase: expected one of {', '.join(Phase)}, got {show(config['phase'])}", "phase")
    num_trials = _count(config, "num-trials")
    if num_trials > MAX_TASK:
        raise WireError(f"num-trials: expected at most {MAX_TASK}, got {num_trials}", "num-trials")
    return Task(
        phase,
        _count(config, "round"),
        _count(config, "trial"),
        num_trials,
        _checked_arrays(packed.arrays, schema.arrays),
        _checked_values(config, schema),
    )


# -- reports -----------------------------------------------------------------------------------


def encode_report(report: Report, task: Task, envelope: Envelope, disclosure: Disclosure) -> Packed:
    """Return a report and the agent's disclosure as arrays and scalars."""
    config = _header(envelope, task)
    config |= {
        "values": canonical_json(dict(report.values)) if report.values else "{}",
        "num-failed": report.num_failed,
    }
    extra: dict[str, AnyArray] = {}
    if disclosure.trials is not None:
        extra["disclosed.points"] = disclosure.trials.points
        extra["disclosed.values"] = disclosure.trials.values
        if disclosure.trials.spans is not None:
            extra["disclosed.pulls"] = disclosure.trials.spans
        failures = {str(trial): reason for trial, reason in disclosure.trials.failures.items()}
        if disclosure.times is not None:
            extra["disclosed.times"] = disclosure.times
        if disclosure.trials.stopped:
            extra["disclosed.stopped"] = _stopped_column(disclosure.trials)
        config["disclosed.failures"] = json.dumps(failures, separators=(",", ":"))
    if disclosure.recommendation is not None:
        extra["disclosed.recommendation"] = disclosure.recommendation
    if disclosure.incumbent is not None:
        config["disclosed.incumbent"] = float(disclosure.incumbent)
    if disclosure.curves is not None:
        extra[curves.OWN] = disclosure.curves
    return Packed({**report.arrays, **extra}, config)


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
    return config.get("declined") is True and header == expected and says_spent(packed)


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
    for key, expected in _header(envelope, task).items():
        got = config.get(key)
        if type(got) is not type(expected) or got != expected:
            raise WireError(f"{key}: expected {show(expected)}, got {show(got)}", key)
    num_failed = _count(config, "num-failed")
    if num_failed > task.num_trials:
        raise WireError(f"num-failed: expected at most {task.num_trials}, got {num_failed}", "num-failed")
    allowed = {**schema.arrays, **_disclosed_arrays(dimension, task.num_trials)}
    named = _checked_arrays(packed.arrays, allowed)
    values = _checked_values(config, schema)
    trials = _disclosed_trials(named, config, task)
    if trials is not None and trials.spans is None and len(trials.failures) != num_failed:
        raise WireError(
            f"num-failed: expected {len(trials.failures)} as disclosed, got {num_failed}", "num-failed"
        )
    times = _disclosed_times(named, trials)
    incumbent = config.get("disclosed.incumbent")
    if incumbent is not None and (not isinstance(incumbent, float) or np.isinf(incumbent)):
        raise WireError(f"disclosed.incumbent: expected a number, got {show(incumbent)}", "disclosed")
    kept = {name: array for name, array in named.items() if not name.startswith("disclosed.")}
    report = Report(task.trial, task.num_trials, num_failed, kept, values)
    point = named.get("disclosed.recommendation")
    recommendation = None if point is None else np.asarray(point, dtype=np.float64)
    own = named.get(curves.OWN)
    if own is not None:  # an agent has no more curves than trials
        own = curves.checked_summary(curves.OWN, own, float(task.end))
    return report, Disclosure(trials, incumbent, recommendation, times, own)


@lru_cache(maxsize=256)
def _disclosed_arrays(dimension: int, num_trials: int) -> Mapping[str, ArraySpec]:
    """Return the arrays that an agent may disclose after a task of `num_trials` trials."""
    return {
        "disclosed.points": ArraySpec((None, dimension), low=0.0, high=1.0, max_length=num_trials),
        "disclosed.values": ArraySpec((None,), low=-np.inf, high=np.inf, max_length=num_trials),
        "disclosed.pulls": ArraySpec((None,), "int64", 1, num_trials, num_trials),
        "disclosed.recommendation": ArraySpec((dimension,), low=0.0, high=1.0),
        "disclosed.times": ArraySpec((None, 2), low=0.0, high=LATEST_TIME, max_length=num_trials),
        "disclosed.stopped": ArraySpec((None,), "int64", -1, curves.LATEST_STEP, num_trials),
        curves.OWN: curves.SPEC,
    }


def _disclosed_times(named: Mapping[str, AnyArray], trials: Outcome | None) -> Array | None:
    if "disclosed.times" not in named:
        return None
    times = np.asarray(named["disclosed.times"], dtype=np.float64)
    if trials is None or len(times) != len(trials.values) or (times[:, 1] < times[:, 0]).any():
        raise WireError(
            "disclosed.times: expected a start and a later end for every disclosed trial", "disclosed"
        )
    return times


def _disclosed_trials(
    named: Mapping[str, AnyArray], config: Mapping[str, Scalar], task: Task
) -> Outcome | None:
    if "disclosed.points" not in named and "disclosed.values" not in named:
        return None
    if "disclosed.points" not in named or "disclosed.values" not in named:
        raise WireError("disclosed trials: expected points and values, got only one of them", "disclosed")
    points = np.asarray(named["disclosed.points"], dtype=np.float64)
    values = np.asarray(named["disclosed.values"], dtype=np.float64)
    pulls = named.get("disclosed.pulls")
    spans = None if pulls is None else np.asarray(pulls, dtype=np.int64)
    num_rows, num_trials = (len(values),) * 2 if spans is None else (len(spans), int(np.sum(spans)))
    if not len(points) == len(values) == num_rows or num_trials != task.num_trials:
        raise WireError(
            f"disclosed trials: expected rows of {task.num_trials} trials, got {len(values)} rows",
            "disclosed",
        )
    first = np.arange(num_rows) if spans is None else np.cumsum(spans) - spans
    first += task.trial
    plain = config.get("disclosed.failures") == "{}"
    failures = {} if plain else _json_object(config, "disclosed.failures")
    finite = np.isfinite(values)
    failed = set() if finite.all() else {str(trial) for trial in first[np.isnan(values)]}
    # a row of several trials has a value and a reason when some of them failed
    known = failed if spans is None or not failures else {str(trial) for trial in first}
    if len(values) - np.count_nonzero(finite) != len(failed) or not failed <= set(failures) <= known:
        raise WireError(
            "disclosed.values: expected finite numbers, and NaN with a reason where a trial failed",
            "disclosed",
        )
    if not all(isinstance(reason, str) and len(reason) <= 1000 for reason in failures.values()):
        raise WireError("disclosed.failures: expected texts of at most 1000 characters", "disclosed")
    reasons = {int(trial): cast(str, reason) for trial, reason in failures.items()}
    return Outcome(points, values, first, reasons, spans=spans, stopped=_stopped_trials(named, first, values))


def _stopped_column(outcome: Outcome) -> AnyArray:
    """Return the last step of each trial that was stopped early, -1 for others, `(n,)`."""
    return np.array([outcome.stopped.get(trial, -1) for trial in outcome.trials.tolist()], dtype=np.int64)


def _stopped_trials(named: Mapping[str, AnyArray], trials: AnyArray, values: Array) -> dict[int, int]:
    if "disclosed.stopped" not in named:
        return {}
    steps = np.asarray(named["disclosed.stopped"], dtype=np.int64)
    if len(steps) != len(values) or (np.isnan(values) & (steps >= 0)).any():
        raise WireError("disclosed.stopped: expected a step or -1 for every disclosed trial", "disclosed")
    return {int(trial): int(step) for trial, step in zip(trials, steps, strict=True) if step >= 0}


# -- checks ------------------------------------------------------------------------------------


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


def _checked_arrays(arrays: Mapping[str, AnyArray], allowed: Mapping[str, ArraySpec]) -> dict[str, AnyArray]:
    return {name: _checked_array(name, array, allowed) for name, array in arrays.items()}


def _checked_array(name: str, array: AnyArray, allowed: Mapping[str, ArraySpec]) -> AnyArray:
    spec = allowed.get(name)
    if spec is None:
        known = ", ".join(allowed) or "none"
        raise WireError(f"arrays: expected only {known}, got {show(name)}", "names")
    last = _LAST_CHECKED.get(name)
    if last is not None and last[0] is array and last[1] is spec:
        return array  # messages that are answered together share arrays
    fits = array.shape == spec.shape or (
        len(array.shape) == len(spec.shape)
        and all(
            length <= spec.max_length if expected is None else length == expected
            for length, expected in zip(array.shape, spec.shape, strict=True)
        )
    )
    if array.dtype != spec.dtype or not fits:
        raise WireError(
            f"{name}: expected {spec.shape} {spec.dtype}, got {show(array.shape)} {array.dtype}",
            "shape" if array.dtype == spec.dtype else "dtype",
        )
    if array.dtype == np.uint8:
        return array  # bytes of a model; every byte is allowed
    if math.isinf(spec.low) and math.isinf(spec.high):
        return array  # NaN is allowed; the code that reads the array gives it a meaning
    if not array.size:
        return array
    last_range = last[2:] if last is not None and last[0] is array else None
    least, largest = last_range or _range(array)
    if not (least >= spec.low and largest <= spec.high):
        numbers = np.asarray(array, dtype=np.float64)
        raise WireError(
            f"{name}: expected finite numbers between {spec.low:g} and {spec.high:g}",
            "bounds" if np.isfinite(numbers).all() else "not-finite",
        )
    if not array.flags.writeable and array.nbytes <= MAX_KEPT:
        _LAST_CHECKED[name] = array, spec, least, largest
    return array


def _range(array: AnyArray) -> tuple[float, float]:
    """Return the least and the largest number; NaN if there is one."""
    numbers = np.asarray(array, dtype=np.float64)
    return float(_least(numbers, axis=None)), float(_largest(numbers, axis=None))


def _checked_values(config: Mapping[str, Scalar], schema: Schema) -> dict[str, Scalar]:
    if config.get("values") == "{}":
        return {}
    text = config.get("values")
    if isinstance(text, str) and len(text) <= _SHORT_TEXT:
        values = dict(_kept_object(text))
    else:
        values = _json_object(config, "values")
    for name, value in values.items():
        kind = schema.values.get(name)
        if kind is None or type(value) is not kind:
            raise WireError(
                f"values: expected {show(sorted(schema.values))}, got {show({name: value})}", "values"
            )
        if isinstance(value, float) and not math.isfinite(value):  # `json.loads` reads 1e999 as infinity
            raise WireError(f"values: expected finite numbers, got {show({name: value})}", "not-finite")
    return cast(dict[str, Scalar], values)


@lru_cache(maxsize=64)
def _kept_object(text: str) -> Mapping[str, object]:
    """Return JSON values that other messages repeat; they are checked in every message."""
    return _json_object({"values": text}, "values")


def _json_object(config: Mapping[str, Scalar], key: str) -> dict[str, object]:
    try:
        parsed = json.loads(_text(config, key), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{key}: expected a JSON object, got {show(config.get(key))}", _word(key)) from error
    if not isinstance(parsed, dict):
        raise WireError(f"{key}: expected a JSON object, got {show(parsed)}", _word(key))
    return parsed


def _refuse_constant(text: str) -> object:
    raise ValueError(text)


def _text(config: Mapping[str, Scalar], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise WireError(
            f"{key}: expected a text of at most {MAX_TEXT} characters, got {show(value)}", _word(key)
        )
    return value


def _count(config: Mapping[str, Scalar], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TRIALS:
        raise WireError(f"{key}: expected an integer from 0 to {MAX_TRIALS}, got {show(value)}", key)
    return value


def _word(key: str) -> str:
    return "disclosed" if key.startswith("disclosed.") else key


def show(value: object) -> str:
    """Return a received value as one line of at most 80 characters, for an error message."""
    text = repr(value[:80] if isinstance(value, str | bytes | list) else value)
    return text if len(text) <= 80 else text[:77] + "..."
