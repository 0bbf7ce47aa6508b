"""House values in the districts of California in 1990, whole and divided into regions.

References
----------
Pace and Barry. Sparse spatial autoregressions. Statistics and Probability Letters 33, 1997.
"""

from __future__ import annotations

import gzip
from functools import lru_cache

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray

COLUMNS = (
    "longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population",
    "households", "median_income", "median_house_value",
)  # fmt: skip


@lru_cache(maxsize=1)
def districts(path: str) -> Array:
    """Return the table of all districts, `(20640, 9)`, with the columns `COLUMNS`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        columns = tuple(next(lines).strip().split(","))
        table: Array = np.loadtxt(lines, delimiter=",", ndmin=2)
    if columns != COLUMNS or table.shape[1] != len(columns):
        raise ConfigError(f"{path}: expected the columns {', '.join(COLUMNS)}, got {', '.join(columns)}")
    return table


def features_and_values(table: Array) -> tuple[Array, Array]:
    """Return features `(n, 8)` and house values `(n,)` in 100 000 dollars.

    The file's columns are totals of a district, not averages per household; the features are the logarithms
    of rooms, bedrooms, population and households, and the other columns as they are.
    """
    x = table[:, :-1].copy()
    x[:, 3:7] = np.log1p(x[:, 3:7])
    return x, table[:, -1] / 1e5


def regions(table: Array, halvings: int) -> list[IntArray]:
    """Return the rows of `2^halvings` regions of equal size: halve the longer side of each in turn."""
    parts = [np.arange(len(table))]
    for _ in range(halvings):
        parts = [half for part in parts for half in _halves(table, part)]
    return parts


def _halves(table: Array, part: IntArray) -> tuple[IntArray, IntArray]:
    places = table[part, :2]
    axis = int(np.argmax(np.ptp(places, axis=0)))
    order = np.lexsort((part, places[:, 1 - axis], places[:, axis]))
    middle = len(part) // 2
    return part[order[:middle]], part[order[middle:]]
