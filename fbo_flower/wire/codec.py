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
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, cast

import numpy as np

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AnyArray, Array, Phase, Report, Scalar, Task, Trials
from fbo_flower.errors import WireError
from fbo_flower.wire.checks import (
    MAX_NAME,
    MAX_TEXT,
    check_names,
    check_scalars,
    checked_arrays,
    checked_values,
    json_object,
    show,
)

SCHEMA_VERSION = 1
MAX_TASK = 10**7  # trials that one task may ask for

_HEADER = frozenset({"schema", "study", "agent", "space", "phase", "round", "trial", "num-trials", "values"})
_IN_TASKS = _HEADER | {"algorithm", "options"}
_IN_REPORTS = _HEADER | {
    "num-failed", "spent", "disclosed.failures", "disclosed.incumbent", "disclosed.expected",
}  # fmt: skip
_TEXTS = {"study": MAX_NAME, "agent": MAX_NAME, "space": MAX_NAME, "algorithm": MAX_NAME, "options": MAX_TEXT}
_texts_of: Callable[[Any], tuple[str, ...]] = itemgetter(*_TEXTS)  # in the order of the fields of `Envelope`
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
    version = config.get("schema")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise WireError(f"schema: expected version {SCHEMA_VERSION}, got {show(version)}", "schema")
    check_scalars(config, _TEXTS)
    return Envelope(*_texts_of(config))


def decode_task(packed: Packed, schema: Schema) -> Task:
    """Return the task after its header, see `decode_envelope`; WireError if it does not fit `schema`."""
    config = cast(dict[str, Any], packed.config)
    check_names(config, _IN_TASKS, "config")
    check_scalars(config, {"phase": MAX_NAME}, ("num-trials", "round", "trial"))
    phase, num_trials = _PHASES.get(config["phase"]), config["num-trials"]
    if phase is None:
        raise WireError(f"phase: expected one of {', '.join(Phase)}, got {show(config['phase'])}", "phase")
    if num_trials > MAX_TASK:
        raise WireError(f"num-trials: expected at most {MAX_TASK}, got {num_trials}", "num-trials")
    arrays, values = checked_arrays(packed.arrays, schema.arrays), checked_values(config, schema)
    return Task(phase, config["round"], config["trial"], num_trials, arrays, values)


# -- reports -----------------------------------------------------------------------------------


def encode_report(report: Report, task: Task, envelope: Envelope, disclosure: Disclosure) -> Packed:
    """Return a report and the agent's disclosure as arrays and scalars."""
    config = _header(envelope, task)
    config |= {
        "values": canonical_json(dict(report.values)) if report.values else "{}",
        "num-failed": report.num_failed,
    }
    columns = {"recommendation": disclosure.recommendation, "curves": disclosure.curves}
    if (trials := disclosure.trials) is not None:
        columns = {**dict(zip(_COLUMNS, _columns_of(trials), strict=True)), **columns}
        reasons = {} if trials.failures is None else trials.reasons
        config["disclosed.failures"] = json.dumps(reasons, separators=(",", ":"))
    arrays = dict(report.arrays)
    for name, column in columns.items():
        if column is not None:
            arrays[f"disclosed.{name}"] = column
    for name, number in (("incumbent", disclosure.incumbent), ("expected", disclosure.expected)):
        if number is not None:
            config[f"disclosed.{name}"] = float(number)
    return Packed(arrays, config)


def decline(task: Packed) -> Packed:
    """Return the answer to a task that an agent's budget does not allow."""
    header = {key: task.config[key] for key in ("schema", "study", "agent")}
    return Packed({}, header | {"declined": True, "spent": True})


def declines(got: Packed | None, envelope: Envelope) -> bool:
    """Return whether a reply says that the agent's budget does not allow the task."""
    header: dict[str, Scalar] = {"schema": SCHEMA_VERSION, "study": envelope.study, "agent": envelope.agent}
    expected = decline(Packed({}, header)).config
    if got is None or got.arrays or got.config != expected:
        return False
    return all(type(got.config[key]) is type(value) for key, value in expected.items())  # 1 is not True


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
    for key, wanted in _header(envelope, task).items():
        got = config.get(key)
        if type(got) is not type(wanted) or got != wanted:
            raise WireError(f"{key}: expected {show(wanted)}, got {show(got)}", key)
    check_names(config, _IN_REPORTS, "config")
    check_scalars(config, {}, ("num-failed",))
    num_failed = cast(int, config["num-failed"])
    if num_failed > task.num_trials:
        raise WireError(f"num-failed: expected at most {task.num_trials}, got {num_failed}", "num-failed")
    allowed = {**schema.arrays, **disclosed_arrays(dimension, task.num_trials, aims)}
    arrays, rows = dict[str, AnyArray](), dict[str, Any]()
    for name, array in checked_arrays(packed.arrays, allowed).items():
        if name.startswith("disclosed."):
            rows[name.removeprefix("disclosed.")] = array
        else:
            arrays[name] = array
    report = Report(task.trial, task.num_trials, num_failed, arrays, checked_values(config, schema))
    recommendation, curves = rows.pop("recommendation", None), rows.pop("curves", None)
    trials = _disclosed_trials(rows, config, task, num_failed, aims) if rows else None
    incumbent, expected = config.get("disclosed.incumbent"), config.get("disclosed.expected")
    if incumbent is not None and (type(incumbent) is not float or math.isinf(incumbent)):
        raise _refusal(f"incumbent: expected a number, got {show(incumbent)}")
    if expected is not None and (
        recommendation is None or type(expected) is not float or not math.isfinite(expected)
    ):
        raise _refusal(f"expected: expected a finite number beside a recommendation, got {show(expected)}")
    if curves is not None:  # an agent has no more curves than trials
        curves = checked_summary(OWN, curves, float(task.end))
    return report, Disclosure(trials, incumbent, recommendation, expected, curves)


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


# -- what an agent discloses ------------------------------------------------------------------------

LATEST_TIME = 9e9  # seconds since 1970 that a clock may show, the year 2255
# the columns of trials that may leave an agent
_COLUMNS = ("points", "values", "pulls", "outputs", "feasible", "times", "stopped")
_columns_of = attrgetter(*_COLUMNS)


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
    rows: Mapping[str, Any], config: Mapping[str, Scalar], task: Task, num_failed: int, aims: Aims
) -> Trials:
    """Return the trials in arrays of `_COLUMNS`, which may be there only together."""
    needed = {"points", "values"} | ({"outputs"} if aims.has_outputs else set())
    needed |= {"feasible"} if aims.limits else set()
    if not needed <= rows.keys():
        raise _refusal(f"points: expected {', '.join(sorted(needed))} together, got {', '.join(rows)}")
    values, pulls = rows["values"], rows.get("pulls")
    num_trials, first = len(values), np.arange(task.trial, task.trial + len(values), dtype=np.int64)
    if pulls is not None and len(pulls) == len(values):
        num_trials, first = pulls.sum(), task.trial + np.cumsum(pulls) - pulls
    if set(map(len, rows.values())) != {len(values)} or num_trials != task.num_trials:
        raise _refusal(f"points: expected rows of {task.num_trials} trials, got {len(values)} rows")
    missing = np.isnan(values)
    failures, reasons = dict[str, Any](), None
    if config.get("disclosed.failures") != "{}":
        failures = json_object(config, "disclosed.failures")
    failed = {*map(str, first[missing].tolist())}
    # a row of several trials has a value and a reason when some of them failed
    known = {*map(str, first.tolist())} if pulls is not None and failures else failed
    if np.count_nonzero(np.isinf(values)) or not failed <= failures.keys() <= known:
        raise _refusal("values: expected finite numbers, and NaN with a reason where a trial failed")
    if failures:
        if not all(isinstance(reason, str) and len(reason) <= 1000 for reason in failures.values()):
            raise _refusal("failures: expected texts of at most 1000 characters")
        reasons = np.array([failures.get(str(trial), "") for trial in first], dtype=object)
    outputs, steps = rows.get("outputs"), rows.get("stopped")
    times, holds = rows.get("times"), rows.get("feasible")
    if outputs is not None and not (
        np.array_equal(outputs[:, 0], values, equal_nan=True)
        and np.isfinite(outputs[~missing]).all()
        and np.isnan(outputs[missing]).all()
    ):
        raise _refusal(
            "outputs: expected finite numbers, the first of which is the trial's value, and NaN where a "
            "trial failed"
        )
    if steps is not None and np.count_nonzero(steps[missing] >= 0):
        raise _refusal("stopped: expected -1 where a trial failed")
    if times is not None and np.count_nonzero(times[:, 1] < times[:, 0]):
        raise _refusal("times: expected no end before its start")
    if holds is not None and np.count_nonzero(holds[missing]):
        raise _refusal("feasible: expected 0 where a trial failed")
    if pulls is None and len(failed) != num_failed:
        raise WireError(f"num-failed: expected {len(failed)} as disclosed, got {num_failed}", "num-failed")
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
