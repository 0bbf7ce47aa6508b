"""Advice for the steps of a task: the coin of `p_t` and the draw of a message belong to each step [Dai2020].

A task of one trial carries the advice of its step as it is. With several trials per round a task carries a
row for each step that follows advice, and `steps`, which steps these are, counted from 0. The others use the
agent's own surrogate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fbo_flower.algorithms.records import AnyArray, IntArray, Task, floats
from fbo_flower.algorithms.schema import ArraySpec
from fbo_flower.errors import WireError

STEPS = "steps"
ROWS = ("weights", "point")  # arrays of a task that have a row per advised step


def pack(advice: Sequence[Mapping[str, AnyArray]]) -> dict[str, AnyArray]:
    """Return the arrays of a task from the advice for each of its steps; empty advice: own surrogate."""
    steps = [step for step, arrays in enumerate(advice) if arrays]
    if not steps:
        return {}
    rows = {name: np.array([advice[step][name] for step in steps]) for name in advice[steps[0]]}
    return {**rows, STEPS: np.array(steps, dtype=np.int64)}


def advice_of(task: Task, trial: int, trials_per_round: int) -> Mapping[str, AnyArray]:
    """Return the arrays of a task as one step finds them, without those for other steps.

    Raises
    ------
    WireError
        If the rows of the advice do not belong to steps.
    """
    if trials_per_round == 1:
        return task.arrays
    steps, names = _steps(task), [name for name in ROWS if name in task.arrays]
    for name in names:
        if len(task.arrays[name]) != len(steps):
            raise WireError(
                f"{name}: expected a row for each of {len(steps)} {STEPS}, got {len(task.arrays[name])}",
                "shape",
            )
    found = np.flatnonzero(steps == trial - task.trial)
    rest = {name: array for name, array in task.arrays.items() if name not in ROWS}
    # copies: an array that was read from bytes may be unaligned, and its products rounded otherwise
    return rest | {name: np.array(floats(task.arrays[name])[row]) for row in found for name in names}


def is_advised(task: Task, trial: int, trials_per_round: int) -> bool:
    """Return whether a step follows the advice in its task, which is the same for all steps."""
    return trials_per_round == 1 or bool((_steps(task) == trial - task.trial).any())


def which_steps(trials_per_round: int) -> dict[str, ArraySpec]:
    """Return the specification of `steps`; none with one trial per round."""
    if trials_per_round == 1:
        return {}
    return {STEPS: ArraySpec((None,), "int64", 0, trials_per_round - 1, trials_per_round)}


def step_specs(one: Mapping[str, ArraySpec], trials_per_round: int) -> dict[str, ArraySpec]:
    """Return the specifications of advice for all steps, from those for one step."""
    if trials_per_round == 1:
        return dict(one)
    rows = {
        name: replace(spec, shape=(None, *spec.shape), max_length=trials_per_round)
        for name, spec in one.items()
    }
    return {**rows, **which_steps(trials_per_round)}


def _steps(task: Task) -> IntArray:
    """Return which steps follow the advice in a task; WireError unless they ascend."""
    steps = np.asarray(task.arrays.get(STEPS, ()), dtype=np.int64)
    if (np.diff(steps) <= 0).any():
        raise WireError(f"{STEPS}: expected numbers that ascend, got {steps.tolist()}", "content")
    return steps
