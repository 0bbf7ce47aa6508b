"""What an agent has written into tables of slots: each item enters at most one sum that it has signed.

An algorithm with `sends_rows_once` offers its items in their order: numbers that are sent once in a study
come first, then a row for each observation. What a report holds is offered; when the agent has signed the
report's sum, it is spent, with all that was offered before. Nobody can open a sum that this agent has not
signed, so its items come again in the next report. Nobody can know that a signed sum stayed closed, so its
items never do. A row that is withheld never enters a sum; its entries are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Task, floats
from fbo_flower.algorithms.secure_member import digest_of
from fbo_flower.errors import WireError
from fbo_flower.numerics import slots
from fbo_flower.space.space import SearchSpace


def num_columns(algorithm: Any, space: SearchSpace) -> int:
    """Return the length of a row: a point and a value."""
    return space.dimension + 1


def num_slots(task: Task) -> int:
    """Return the number of slots of the table that a task asks for; 0 for none.

    Raises
    ------
    WireError
        If there cannot be such a table, or too few slots for the members of the sum.
    """
    size, members = int(task.values.get("slots", 0)), 1 + len(task.arrays.get("secure.members", ()))
    if size and (not slots.is_size(size) or size < slots.LOAD * members):
        raise WireError(
            f"slots: expected a power of two from {slots.FEWEST} on, {slots.LOAD} for each of {members} "
            f"members, got {size}",
            "values",
        )
    return size


@dataclass(frozen=True)
class Written:
    """The agent's items.

    Parameters
    ----------
    rows : `(k, C)`, as they were written or will be
    spent, offered : how many items are in signed sums, and in these or in the last report; the first item is
        what is sent once in a study, the others are rows
    since, content : the first trial of the agent under what tasks now tell it, and the digest of this
    """

    rows: Array
    spent: int = 0
    offered: int = 0
    since: int = 0
    content: bytes = bytes(32)

    @staticmethod
    def of(agent_state: AgentState) -> Written:
        """Return what `write` stored."""
        rows = floats(agent_state.arrays.get("written.rows", np.empty((0, agent_state.space.dimension + 1))))
        items = np.asarray(agent_state.arrays.get("written.items", np.zeros(3)), dtype=np.int64)
        content = agent_state.arrays.get("written.content", np.zeros(32, dtype=np.uint8)).tobytes()
        return Written(rows, int(items[0]), int(items[1]), int(items[2]), content)

    def write(self, agent_state: AgentState) -> AgentState:
        """Return the agent's state with this."""
        items = np.array([self.spent, self.offered, self.since], dtype=np.int64)
        content: AnyArray = np.frombuffer(self.content, dtype=np.uint8)
        return agent_state.write(
            **{"written.rows": self.rows, "written.items": items, "written.content": content}
        )

    def told(self, content: Mapping[str, AnyArray], trial: int) -> Written:
        """Return this with what a task tells the agent, whose next trial is `trial`."""
        digest = digest_of(content)
        return self if digest == self.content else replace(self, since=trial, content=digest)

    @property
    def offers_first(self) -> bool:
        """Whether the report holds the first item."""
        return self.spent == 0 < self.offered

    @property
    def new_rows(self) -> Array:
        """The rows `(r, C)` of the report."""
        new = self.rows[max(self.spent - 1, 0) : max(self.offered - 1, 0)]
        return new[~np.isnan(new[:, -1])]

    @property
    def own_rows(self) -> Array:
        """All rows `(k, C)` that may be in a sum."""
        return self.rows[~np.isnan(self.rows[:, -1])]

    def offer(self, rows: Array, withheld: npt.NDArray[np.bool_], most: int) -> Written:
        """Return this with rows offered in their order; those that are spent stay as they are.

        Parameters
        ----------
        rows : `(k, C)`, of all observations
        withheld : `(k,)`, which of them must not enter a sum from now on
        most : the largest number of rows in a report
        """
        kept = self.rows[: max(self.spent - 1, 0)]
        held = withheld[len(kept) :]
        new = np.where(held[:, None], np.nan, rows[len(kept) :])
        end = int(np.searchsorted(np.cumsum(~held), most, side="right"))
        every = np.concatenate([kept, new[:end]])
        return replace(self, rows=every, offered=max(self.offered, 1 + len(every)))

    def signed(self) -> Written:
        """Return this after the agent has signed the sum that its last report is in."""
        return replace(self, spent=self.offered)
