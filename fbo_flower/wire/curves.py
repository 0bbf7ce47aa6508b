"""Summaries of learning curves on the wire: an agent's own with a report, the pooled ones with a task.

A summary `(k, 3)` has a row per step: the step, the number of curves, their median; see
`numerics.curves`. Neither side trusts the other's. A summary comes with a task only if the server pools
curves, and an agent answers with its own only then, and only if its operator allows it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fbo_flower.algorithms.messages import ArraySpec
from fbo_flower.algorithms.records import AnyArray, Array
from fbo_flower.errors import WireError

OWN, POOLED = "disclosed.curves", "pooled.curves"  # names of the arrays in reports and tasks
MAX_STEPS = 256  # rows of a summary
LEAST_CURVES = 3  # curves behind each median that leaves an agent
LEAST_AGENTS = 3  # agents behind each pooled median
LATEST_STEP = 2.0**53
LARGEST = 1e300  # a median may be any number that is not close to overflow
SPEC = ArraySpec((None, 3), low=-LARGEST, high=LARGEST, max_length=MAX_STEPS)


def checked_summary(name: str, array: AnyArray, most_curves: float = LATEST_STEP) -> Array:
    """Return a received summary.

    Parameters
    ----------
    most_curves : largest number of curves that a row may claim

    Raises
    ------
    WireError
        If it is not `(k, 3)` finite float64 numbers with at most `MAX_STEPS` ascending steps, or a row claims
        too few or too many curves.
    """
    if array.dtype != np.float64:
        raise WireError(f"{name}: expected float64, got {array.dtype}", "dtype")
    if array.ndim != 2 or array.shape[1] != 3 or len(array) > MAX_STEPS:
        raise WireError(f"{name}: expected at most {MAX_STEPS} rows of 3, got {array.shape}", "shape")
    summary = np.asarray(array, dtype=np.float64)
    if not np.isfinite(summary).all():
        raise WireError(f"{name}: expected finite numbers", "not-finite")
    steps, curves, medians = summary.T
    whole = (steps == np.floor(steps)).all() and (curves == np.floor(curves)).all()
    if not whole or (steps < 0).any() or (steps > LATEST_STEP).any() or (np.diff(steps) <= 0).any():
        raise WireError(f"{name}: expected ascending steps from 0 and whole numbers of curves", "bounds")
    if (curves < LEAST_CURVES).any() or (curves > most_curves).any() or (np.abs(medians) > LARGEST).any():
        raise WireError(
            f"{name}: expected {LEAST_CURVES} to {most_curves:g} curves at each step, and medians between "
            f"-{LARGEST:g} and {LARGEST:g}",
            "bounds",
        )
    return summary


def split_pooled(arrays: Mapping[str, AnyArray]) -> tuple[Mapping[str, AnyArray], Array | None]:
    """Return the arrays of a task without the pooled summary, and that summary; None: the task has none.

    Raises
    ------
    WireError
        If the summary is malformed.
    """
    if POOLED not in arrays:
        return arrays, None
    summary = checked_summary(POOLED, arrays[POOLED])
    return {name: array for name, array in arrays.items() if name != POOLED}, summary
