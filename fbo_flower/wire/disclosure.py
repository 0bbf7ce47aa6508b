"""What an agent discloses beside its report: encode it, and check what arrives.

The operator's setting `disclose` decides what there is. In a message the names begin with "disclosed.".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from fbo_flower.algorithms.messages import ArraySpec
from fbo_flower.algorithms.records import AnyArray, Array, Outcome, Scalar, Task
from fbo_flower.errors import WireError
from fbo_flower.wire import curves
from fbo_flower.wire.checks import json_object, show

LATEST_TIME = 9e9  # seconds since 1970 that a clock may show, the year 2255


@dataclass(frozen=True)
class Disclosure:
    """What the agent's operator allows to leave the agent besides the report.

    Parameters
    ----------
    trials : the evaluations of this task, with `disclose = "trials"`
    incumbent : best value so far, with `disclose = "incumbent"` or "trials"; NaN before the first success
    recommendation : `(D,)`, the point that the agent would use, if that is not its best trial
    expected : the value that the agent's model expects at the recommendation; None: `incumbent`
    times : `(k, 2)`, start and end of the evaluation of every row of `trials`, in seconds since 1970; None:
        unknown
    curves : `(k, 3)`, medians of the agent's learning curves, see `wire.curves`; None: it sends none
    """

    trials: Outcome | None = None
    incumbent: float | None = None
    recommendation: Array | None = None
    expected: float | None = None
    times: Array | None = None
    curves: Array | None = None


def encode_disclosure(disclosure: Disclosure) -> tuple[dict[str, AnyArray], dict[str, Scalar]]:
    """Return a disclosure as arrays and scalars."""
    arrays: dict[str, AnyArray] = {}
    config: dict[str, Scalar] = {}
    if disclosure.trials is not None:
        arrays["disclosed.points"] = disclosure.trials.points
        arrays["disclosed.values"] = disclosure.trials.values
        if disclosure.trials.spans is not None:
            arrays["disclosed.pulls"] = disclosure.trials.spans
        failures = {str(trial): reason for trial, reason in disclosure.trials.failures.items()}
        if disclosure.times is not None:
            arrays["disclosed.times"] = disclosure.times
        if disclosure.trials.stopped:
            steps = [disclosure.trials.stopped.get(t, -1) for t in disclosure.trials.trials.tolist()]
            arrays["disclosed.stopped"] = np.array(steps, dtype=np.int64)
        config["disclosed.failures"] = json.dumps(failures, separators=(",", ":"))
    if disclosure.recommendation is not None:
        arrays["disclosed.recommendation"] = disclosure.recommendation
    if disclosure.incumbent is not None:
        config["disclosed.incumbent"] = float(disclosure.incumbent)
    if disclosure.expected is not None:
        config["disclosed.expected"] = float(disclosure.expected)
    if disclosure.curves is not None:
        arrays[curves.OWN] = disclosure.curves
    return arrays, config


def decode_disclosure(
    named: Mapping[str, AnyArray], config: Mapping[str, Scalar], task: Task, num_failed: int
) -> Disclosure:
    """Return the disclosure; WireError if it contradicts the task or the report.

    Parameters
    ----------
    named : arrays of the message, which fit `disclosed_arrays`
    num_failed : failed trials of the report
    """
    trials = _disclosed_trials(named, config, task)
    if trials is not None and trials.spans is None and len(trials.failures) != num_failed:
        raise WireError(
            f"num-failed: expected {len(trials.failures)} as disclosed, got {num_failed}", "num-failed"
        )
    times = _disclosed_times(named, trials)
    incumbent = config.get("disclosed.incumbent")
    if incumbent is not None and (not isinstance(incumbent, float) or np.isinf(incumbent)):
        raise WireError(f"disclosed.incumbent: expected a number, got {show(incumbent)}", "disclosed")
    point = named.get("disclosed.recommendation")
    recommendation = None if point is None else np.asarray(point, dtype=np.float64)
    expected = config.get("disclosed.expected")
    if expected is not None and not (
        recommendation is not None and isinstance(expected, float) and np.isfinite(expected)
    ):
        raise WireError(
            f"disclosed.expected: expected a finite number beside a recommendation, got {show(expected)}",
            "disclosed",
        )
    own = named.get(curves.OWN)
    if own is not None:  # an agent has no more curves than trials
        own = curves.checked_summary(curves.OWN, own, float(task.end))
    return Disclosure(trials, incumbent, recommendation, expected, times, own)


@lru_cache(maxsize=256)
def disclosed_arrays(dimension: int, num_trials: int) -> Mapping[str, ArraySpec]:
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
    failures = {} if plain else json_object(config, "disclosed.failures")
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


def _stopped_trials(named: Mapping[str, AnyArray], trials: AnyArray, values: Array) -> dict[int, int]:
    if "disclosed.stopped" not in named:
        return {}
    steps = np.asarray(named["disclosed.stopped"], dtype=np.int64)
    if len(steps) != len(values) or (np.isnan(values) & (steps >= 0)).any():
        raise WireError("disclosed.stopped: expected a step or -1 for every disclosed trial", "disclosed")
    return {int(trial): int(step) for trial, step in zip(trials, steps, strict=True) if step >= 0}
