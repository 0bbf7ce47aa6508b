"""What an agent has seen of the points, cells or arms that it pulled, as tables with a row for each.

[Chan1983] Chan, Golub, LeVeque. Algorithms for computing the sample variance. American Statistician 37, 1983.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.bandits import partition


@dataclass(frozen=True)
class Columns:
    """Columns `(n,)`, which subclasses name."""

    @classmethod
    @functools.cache
    def columns(cls) -> dict[str, type[np.generic]]:
        """Return the type of each column, by name."""
        return {f.name: np.int64 if f.type == "IntArray" else np.float64 for f in fields(cls)}

    @classmethod
    def read(cls, arrays: Mapping[str, npt.NDArray[Any]], prefix: str, size: int = 0) -> Self:
        """Return the table that `arrays` wrote; without it, `size` rows of zeros."""
        zeros = np.zeros(size)
        return cls(*(np.asarray(arrays.get(prefix + n, zeros), kind) for n, kind in cls.columns().items()))

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Return the columns under their names in a message or in an agent's state."""
        return {prefix + name: getattr(self, name) for name in self.columns()}

    def rows(self, chosen: slice | BoolArray | IntArray) -> Self:
        """Return some of the rows."""
        return type(self)(*(getattr(self, name)[chosen] for name in self.columns()))

    def joined(self, other: Self) -> Self:
        """Return these rows, then those of another table."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.columns())
        return type(self)(*map(np.concatenate, pairs))


@dataclass(frozen=True)
class Pulls(Columns):
    """Pulls: how many gave a value, sum and squared deviations of the values, and how many failed."""

    count: IntArray
    total: Array
    within: Array
    failed: IntArray

    def add(
        self,
        rows: IntArray | list[int],
        count: npt.ArrayLike,
        total: npt.ArrayLike,
        within: npt.ArrayLike,
        failed: npt.ArrayLike,
    ) -> Self:
        """Return the table with more pulls of some rows, which are different ones."""
        sums = {name: getattr(self, name).copy() for name in ("count", "total", "within", "failed")}
        with np.errstate(over="ignore", invalid="ignore"):  # huge values
            before = self.count[rows], self.total[rows], self.within[rows]
            known = np.asarray(count) > 0
            sums["within"][rows] = np.where(
                known, joint_deviations(before, (count, total, within)), self.within[rows]
            )
            sums["total"][rows] += total
        sums["count"][rows] += count
        sums["failed"][rows] += failed
        return replace(self, **sums)

    def means(self, unknown: float = 0.0) -> Array:
        """Return the mean of each row, `unknown` without a success."""
        mean = self.total / np.maximum(self.count, 1)
        return np.asarray(np.where(self.count > 0, mean, unknown), dtype=np.float64)

    @property
    def in_vain(self) -> IntArray:
        """The failed pulls of rows without a success; in other rows a failed pull is missing."""
        return np.where(self.count > 0, 0, self.failed)


@dataclass(frozen=True)
class CellTable(Columns):
    """Cells by their numbers (`partition.number`), which ascend."""

    cell: IntArray

    def of(self, cells: IntArray) -> Self:
        """Return the rows of some cells, zeros for cells that have none."""
        known = np.isin(cells, self.cell)
        place = np.searchsorted(self.cell, cells[known])
        found = {name: np.zeros(len(cells), kind) for name, kind in self.columns().items()}
        for name, column in found.items():
            column[known] = getattr(self, name)[place]
        return type(self)(**found | {"cell": cells})

    def updated(self, other: Self) -> Self:
        """Return the table with the rows of `other` in place of its own on the same cells, or added."""
        joined = self.rows(~np.isin(self.cell, other.cell)).joined(other)
        return joined.rows(np.argsort(joined.cell))


@dataclass(frozen=True)
class CellPulls(Pulls, CellTable):
    """Pulls of cells."""


@dataclass(frozen=True)
class Survivors(CellTable):
    """Cells that stage 1 has kept, depth after depth, with their merged means and confidence radii."""

    mean: Array
    radius: Array

    def at(self, depth: int, arity: int) -> Survivors:
        """Return the cells of one depth."""
        first, last = np.searchsorted(self.cell, [arity**depth, arity ** (depth + 1)])
        return self.rows(slice(first, last))

    def are_sound(self, arity: int, last: int) -> bool:
        """Return whether all are different cells down to depth `last`, in order, with finite means."""
        if self.cell.ndim != 1 or (np.diff(self.cell) <= 0).any():
            return False
        depth, index = partition.place(self.cell, arity)
        sound = (depth >= 0) & (depth <= last) & np.isfinite(self.mean) & (self.radius >= 0)
        return bool((sound & (index < float(arity) ** depth)).all())


Sums = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]


def joint_deviations(one: Sums, other: Sums) -> Array:
    """Return the sum of squared deviations from the common mean of two sets of values [Chan1983, Eq. 2.1].

    Unlike the sum of squares minus `total^2 / count`, it loses no digits if the values have a large offset.

    Parameters
    ----------
    one, other : number of values (0 or more), their sum, and the sum of squared deviations from their mean

    >>> joint_deviations((2, 2.0, 2.0), (1, 4.0, 0.0))  # of 0, 2 and 4
    array(8.)
    """
    (n, n_total, n_within), (m, m_total, m_within) = (
        tuple(np.asarray(part, dtype=np.float64) for part in sums) for sums in (one, other)
    )
    gap = n_total / np.maximum(1.0, n) - m_total / np.maximum(1.0, m)
    both = n * m / np.maximum(1.0, n + m)
    return np.asarray(n_within + m_within + both * gap * gap, dtype=np.float64)
