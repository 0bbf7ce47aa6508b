"""A table of slots: rows of several agents in one array of which only the sum over agents is ever seen.

The table has `K` slots of `C` numbers. An agent writes each of its rows into a slot that it draws at random,
and zeros into all others. In the sum over the agents, a slot that was written once holds that row: everybody
reads the rows, and of each only that an agent of the sum wrote it. Where several rows fell into one slot
their sum is lost.

The last number of a slot also tells how often it was written: the row's last entry is stored plus `MARK`.
Entries are rounded to `2^-40`, so a sum in fixed point and one in floating point have the same bits.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray

LIMIT = 4.0  # largest absolute value of an entry
MARK = 4 * LIMIT  # one row leaves 3 to 5 LIMIT in the last entry, two leave 6 to 10
BOUND = MARK + LIMIT  # largest absolute value that an agent writes into a table
LOAD = 8  # slots for each row that is expected: 12 % of the rows are lost
FEWEST, MOST = 64, 2**20
RESOLUTION = 2.0**-40


def num_slots(num_rows: int) -> int:
    """Return `K` for a number of rows: a power of two, `LOAD` times the rows or more."""
    return int(min(max(FEWEST, 2 ** int(np.ceil(np.log2(max(LOAD * num_rows, 1))))), MOST))


def is_size(number: int) -> bool:
    """Return whether a table may have this many slots."""
    return FEWEST <= number <= MOST and number & (number - 1) == 0


def rounded(rows: Array) -> Array:
    """Return rows with entries that are multiples of `RESOLUTION`, as a table holds them."""
    return np.asarray(np.rint(rows / RESOLUTION) * RESOLUTION, dtype=np.float64)


def write(rows: Array, slots: IntArray, size: int) -> Array:
    """Return the table `(K, C)` with `rows (r, C)` in `slots (r,)`; rows in one slot are added up."""
    if not (np.abs(rows) <= LIMIT).all():
        raise ConfigError(f"slots: expected entries between -{LIMIT:g} and {LIMIT:g}, got {rows.tolist()}")
    table = np.zeros((size, rows.shape[1]))
    np.add.at(table, slots, rounded(rows) + _mark(rows))
    return table


def read(total: Array, low: Array, high: Array) -> tuple[Array, int]:
    """Return the rows `(m, C)` of a sum of tables, in the order of the slots, and how many slots are lost.

    Parameters
    ----------
    total : `(K, C)`
    low, high : `(C,)`, inclusive bounds of a row; a slot whose sum is no such row is lost
    """
    rows = total - _mark(total)
    good = within(rows, low, high)
    written = (total != 0.0).any(axis=1)
    return rows[good], int(np.count_nonzero(written & ~good))


def within(rows: Array, low: Array, high: Array) -> BoolArray:
    """Return which of `rows (m, C)` have all entries within inclusive bounds `(C,)`; NaN is in none."""
    return np.asarray(((rows >= low) & (rows <= high)).all(axis=1), dtype=np.bool_)


def others(rows: Array, own: Array) -> IntArray:
    """Return which of `rows (m, C)` are not among an agent's `own (k, C)`."""
    if not len(own):
        return np.arange(len(rows))
    apart = np.abs(rows[:, None, :] - own[None, :, :]).max(axis=2, initial=0.0)
    return np.flatnonzero(apart.min(axis=1, initial=np.inf) > 2 * RESOLUTION)


def _mark(rows: Array) -> Array:
    """Return what a row of a table has more than the row itself, `(C,)`."""
    return np.append(np.zeros(rows.shape[1] - 1), MARK)
