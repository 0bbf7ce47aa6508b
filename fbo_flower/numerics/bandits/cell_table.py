"""Tables with a row for each cell of a partition, in which cells are found by depth and index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.bandits.elimination import contains, positions

_COLUMNS: dict[type, dict[str, type[np.generic]]] = {}


def _columns(table: type[CellTable]) -> dict[str, type[np.generic]]:
    if table not in _COLUMNS:
        _COLUMNS[table] = {f.name: np.int64 if f.type == "IntArray" else np.float64 for f in fields(table)}
    return _COLUMNS[table]


@dataclass(frozen=True)
class CellTable:
    """Cells; all columns are `(n,)`, and subclasses have more of them."""

    depth: IntArray
    index: IntArray

    @classmethod
    def read(cls, arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Self:
        """Return the table that `arrays` wrote, without rows if there is none."""
        return cls(*(np.asarray(arrays.get(prefix + n, ()), kind) for n, kind in _columns(cls).items()))

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Return the columns under their names in a message or in an agent's state."""
        return {prefix + name: getattr(self, name) for name in _columns(type(self))}

    def rows(self, chosen: slice | BoolArray | IntArray) -> Self:
        """Return some of the rows."""
        return type(self)(*(getattr(self, name)[chosen] for name in _columns(type(self))))

    def at(self, depth: int) -> Self:
        """Return the rows of one depth."""
        return self.rows(self.depth == depth)

    def joined(self, other: Self) -> Self:
        """Return these rows, then those of another table."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in _columns(type(self)))
        return type(self)(*map(np.concatenate, pairs))

    def of(self, depth: int, index: IntArray) -> Self:
        """Return the rows of cells `(n,)` of one depth, zeros for cells that have none."""
        rows = np.flatnonzero(self.depth == depth)
        known = contains(self.index[rows], index)
        place = rows[positions(self.index[rows], index[known])]
        found = {name: np.zeros(len(index), kind) for name, kind in _columns(type(self)).items()}
        for name, column in found.items():
            column[known] = getattr(self, name)[place]
        return type(self)(**found | {"depth": np.full(len(index), depth), "index": index})


@dataclass(frozen=True)
class Survivors(CellTable):
    """Cells that stage 1 has kept, depth after depth, with their merged means and confidence radii."""

    mean: Array
    radius: Array

    def received(self, other: Survivors) -> Survivors:
        """Return these survivors with the depths of `other` that they have not."""
        return self.joined(other.rows(~np.isin(other.depth, self.depth)))

    def are_sound(self, arity: int, last: int) -> bool:
        """Return whether all are cells down to depth `last`, with finite means."""
        sound = (self.depth >= 0) & (self.depth <= last) & np.isfinite(self.mean) & (self.radius >= 0)
        cells = float(arity) ** self.depth
        return self.depth.ndim == 1 and bool((sound & (self.index >= 0) & (self.index < cells)).all())


@dataclass(frozen=True)
class CellPulls(CellTable):
    """Pulls of cells, ordered by depth and index: those with a value, their sum, and failed ones."""

    count: IntArray
    total: Array
    failed: IntArray

    def add(self, depth: int, index: IntArray, count: IntArray, total: Array, failed: IntArray) -> CellPulls:
        """Return the table with more pulls of cells of one depth; `index (n,)` ascends."""
        found = self.of(depth, index)
        more = replace(
            found, count=found.count + count, total=found.total + total, failed=found.failed + failed
        )
        joined = self.rows(~((self.depth == depth) & contains(index, self.index))).joined(more)
        return joined.rows(np.lexsort((joined.index, joined.depth)))

    def mean(self) -> Array:
        """Return the mean of each cell, 0 without a success."""
        return np.asarray(self.total / np.maximum(self.count, 1), dtype=np.float64)
