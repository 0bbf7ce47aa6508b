"""What `fed-ei` sends: the pool of rows down, moments and new rows up.

A row is a point of the cube and one standardised value of each shared output. There are four kinds of tasks:

| kind | it has | the report adds to a sum |
|---|---|---|
| initial | trials, no level | moments of the values of these trials |
| opening | level, slots, no trials | a row of the best initial trial |
| advice | level, trials, no slots | nothing: a trial repeats a row of the pool |
| search | level, slots, trials | a row of each of these trials |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from fbo_flower.algorithms.messages import MEMBERS, Content, real, summable, whole
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, IntArray, Phase, Task, floats
from fbo_flower.errors import WireError
from fbo_flower.numerics import slots
from fbo_flower.numerics.surrogates import trend
from fbo_flower.space.space import SearchSpace

MOST_ROWS = 128  # that a model uses: the best half, and the newest others


def num_columns(algorithm: Any, space: SearchSpace) -> int:
    """Return the length of a row: a point and its values."""
    return int(space.dimension + algorithm.num_values)


def num_sums(algorithm: Any, space: SearchSpace) -> int:
    """Return the number of moments: some of each value of a row."""
    return int(algorithm.num_values * trend.NUM_SUMS)


def num_scales(algorithm: Any, space: SearchSpace) -> int:
    """Return the number of lengthscales."""
    return int(algorithm.num_values * space.dimension)


_ONCE = {"repeats": False, "needed": False}  # each row is in one sum; without sums agents tune alone
_TABLE = summable("value(slots)", num_columns, bound=slots.BOUND, only_if=lambda algorithm: False, **_ONCE)
_ROWS = real(None, num_columns, low=-slots.LIMIT, high=slots.LIMIT, most=MOST_ROWS)
_SENT = replace(_ROWS, only_if=lambda algorithm: not algorithm.secure_sums, is_trials=True)
_SLOTS = whole(None, high=slots.MOST - 1, most=MOST_ROWS, only_if=_SENT.only_if)


@dataclass(frozen=True, kw_only=True)
class Pool(Content):
    """A task, the same for all members of a sum.

    Of `S` values of a row, `lengthscales (S D,)` and `level` hold those of one after the other.
    """

    rows: Annotated[Array | None, _ROWS] = None
    lengthscales: Annotated[Array | None, real(num_scales, low=1e-3, high=1e3)] = None
    level: Annotated[Array | None, real(num_sums, low=-1e24, high=1e24)] = None
    slots: int = 0  # of the table; 0: the agent sends no rows


@dataclass(frozen=True, kw_only=True)
class Part(Content):
    """A report: moments of the first values, and new rows, in a table or with their slots."""

    level: Annotated[Array | None, summable(num_sums, bound=trend.SUM_BOUND, **_ONCE)] = None
    table: Annotated[Array | None, _TABLE] = None  # only in secure sums
    rows: Annotated[Array | None, _SENT] = None  # only without
    slots: Annotated[IntArray | None, _SLOTS] = None

    @classmethod
    def asks_for_sum(cls, task: Task) -> bool:
        return task.phase is Phase.TRAIN and (num_slots(task) > 0 or asks_for_level(task))

    @classmethod
    def sum_name(cls, task: Task, agent_state: AgentState) -> str:
        what = "rows" if num_slots(task) else "level"
        return f"{what} {super().sum_name(task, agent_state)}"

    @classmethod
    def sum_content(cls, task: Task) -> Mapping[str, AnyArray]:
        """Return all that the task holds: what one agent alone is told would mark its rows."""
        return {**Pool.of(task).arrays, "numbers": np.array([num_slots(task), task.num_trials])}


def most_agents(level: Array) -> float:
    """Return how many agents have added moments, of the output for which the most have."""
    return float(level[:: trend.NUM_SUMS].max())


def bounds_of_rows(columns: int, num_values: int) -> tuple[Array, Array]:
    """Return inclusive bounds `(D + S,)` of a row."""
    low, high = np.zeros(columns), np.ones(columns)
    low[columns - num_values :], high[columns - num_values :] = -trend.LARGEST, trend.LARGEST
    return low, high


def num_slots(task: Task) -> int:
    """Return the number of slots of the table that a task asks for; 0 for none."""
    return int(task.values.get("slots", 0))


def asks_for_level(task: Task) -> bool:
    """Return whether a task asks for the moments of the values of its trials."""
    return "level" not in task.arrays


def check_task(task: Task, num_values: int = 1) -> None:
    """Raise WireError if a task lacks what goes with what it has, or a row or the table cannot be."""
    held = [name for name in ("rows", "lengthscales") if name in task.arrays]
    if held and (len(held) < 2 or "level" not in task.arrays):
        raise WireError(f"task: expected rows, lengthscales, level together, got {held}", "names")
    rows = floats(task.arrays.get("rows", np.empty((0, num_values))))
    if not slots.within(rows, *bounds_of_rows(rows.shape[1], num_values)).all():
        raise WireError("rows: expected points of the cube and standardised values, got others", "content")
    size, members = num_slots(task), 1 + len(task.arrays.get(MEMBERS, ()))
    if size and "level" not in task.arrays:
        raise WireError("task: expected the level of values with slots, got none", "names")
    if size and (not slots.is_size(size) or size < slots.LOAD * members):
        raise WireError(
            f"slots: expected a power of two from {slots.FEWEST} on, {slots.LOAD} for each of {members} "
            f"members, got {size}",
            "values",
        )
