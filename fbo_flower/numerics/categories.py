"""Categories among the features of points: which columns hold them, and how far apart they are.

A feature is a number of the unit cube, or a category: an integer from `FIRST_CATEGORY` on, in a column
without numbers (`space.SearchSpace.features`). Two categories that differ are at distance 1. So a categorical
parameter has one column and one lengthscale, and no array grows with the number of its choices.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.numerics.arrays import Array, IntArray

AS_NUMBERS = 3  # that a category counts as, where lengthscales grow with the number of features
FIRST_CATEGORY = 2**20  # no coordinate is as large, and float32 tells integers apart up to 2^24


def category_columns(x: Array) -> IntArray:
    """Return which columns of points `(..., F)` hold categories; none if there is no point."""
    return np.flatnonzero(x[(0,) * (x.ndim - 1)] >= FIRST_CATEGORY) if x.size else np.empty(0, dtype=np.int64)


def breadth(num_features: int, num_categories: int) -> int:
    """Return how many features of numbers are as broad as these, of which some are categories.

    The mean squared distance of two numbers in the unit interval is 1/6, that of two categories at least 1/2.
    """
    return num_features + (AS_NUMBERS - 1) * num_categories


def without(x: Array, columns: IntArray) -> Array:
    """Return the points `(..., F)` with zeros in these columns."""
    if len(columns):
        x = x.copy()
        x[..., columns] = 0.0
    return x


def unit_differences(differences: Array, columns: IntArray) -> Array:
    """Turn the differences `(..., F)` of categories in these columns into 0 or 1, in place."""
    for column in columns:
        differences[..., column] = differences[..., column] != 0.0
    return differences


def add_squared_distances(r2: Array, x1: Array, x2: Array, columns: IntArray, weights: Array) -> None:
    """Add those of categories to squared distances `(..., n, m)`, in place.

    Parameters
    ----------
    x1, x2 : `(..., n, F)` and `(..., m, F)`
    weights : `(..., F)`, `l^-2`
    """
    for column in columns:
        differ = x1[..., :, None, column] != x2[..., None, :, column]
        r2 += differ * weights[..., None, None, column]
