"""The hierarchical partition of the unit cube: cells as pure functions of `(depth, index)`.

There is no tree object, so none has to be sent: all agents derive the same cells. A cell `(h, i)` has `k`
children `(h + 1, k i + j)`, `j = 0 .. k - 1`; the root is `(0, 0)`.

- binary, `k = 2`: depth `h` halves dimension `h mod D`, `j = 0` is the lower half;
- full, `k = 2^D`, `D <= 3`: every dimension is halved, the highest bit of `j` belongs to dimension 0. A full
  cell `(h, i)` is the binary cell `(h D, i)`.

So the bits of an index, highest first, are the halves taken in dimensions 0, 1, .., D - 1, 0, .. Indices are
int64 below `2^62` and no dimension is halved more than 52 times, so that bounds and centres are exact in
float64. Cells below `max_depth` raise ConfigError.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray

MAX_INDEX_BITS = 62
MAX_HALVINGS = 52  # per dimension; the centre needs one more bit
MAX_FULL_DIMENSION = 3


def max_depth(dim: int, arity: int = 2) -> int:
    """Return the depth of the smallest exact cells: 52 for `D = 1`, 62 for larger `D` and binary cells."""
    digit = _digit_bits(dim, arity)
    return min(MAX_INDEX_BITS, MAX_HALVINGS * dim) // digit


def num_cells(depth: int, dim: int, arity: int = 2) -> int:
    """Return `k^depth`, the number of cells of one depth."""
    return 1 << _num_bits(depth, dim, arity)


def cell(depth: int, index: npt.ArrayLike, dim: int, arity: int = 2) -> tuple[Array, Array]:
    """Return the bounds of cells of one depth, `low (n, D)` and `high (n, D)`; `(D,)` for a single integer.

    Parameters
    ----------
    depth : `0 <= depth <= max_depth(dim, arity)`
    index : `(n,)` integers in `[0, arity^depth)`, or one integer
    dim : `D`
    arity : 2, or `2^D` for `D <= 3`

    >>> low, high = cell(3, [5], dim=2)  # 5 = 0b101: upper half of axis 0, lower of 1, upper of 0
    >>> low.tolist(), high.tolist()
    ([[0.75, 0.0]], [[1.0, 0.5]])
    """
    corner, width = _corner_and_width(depth, index, dim, arity)
    return corner, corner + width


def centre(depth: int, index: npt.ArrayLike, dim: int, arity: int = 2) -> Array:
    """Return the centres of cells, `(n, D)`, at which cells are evaluated; `(D,)` for a single integer."""
    corner, width = _corner_and_width(depth, index, dim, arity)
    return corner + 0.5 * width


def children(index: npt.ArrayLike, arity: int = 2) -> IntArray:
    """Return the indices of all children, `(n * arity,)`, in the order of their parents.

    If the parents are ascending, the children are too.

    >>> children([1, 3]).tolist()
    [2, 3, 6, 7]
    """
    parents = np.atleast_1d(np.asarray(index, dtype=np.int64))
    if parents.size and (parents.min() < 0 or parents.max() >= (1 << MAX_INDEX_BITS) // arity):
        raise ConfigError(f"index: expected children below 2**{MAX_INDEX_BITS}, got parents {parents.max()}")
    return (arity * parents[:, np.newaxis] + np.arange(arity)).ravel()


def number(depth: npt.ArrayLike, index: npt.ArrayLike, arity: int = 2) -> IntArray:
    """Return `k^h + i`, one number for each cell `(h, i)`: those of a depth follow those of the depth before.

    >>> number([0, 1, 1, 2], [0, 0, 1, 3]).tolist()
    [1, 2, 3, 7]
    """
    depth, last = np.asarray(depth), MAX_INDEX_BITS // (arity.bit_length() - 1)
    if depth.size and not 0 <= depth.min() <= depth.max() <= last:
        raise ConfigError(f"depth: expected 0 to {last} (arity {arity}), got {depth}")
    return np.asarray(np.int64(arity) ** depth + np.asarray(index), dtype=np.int64)


def place(cells: IntArray, arity: int = 2) -> tuple[IntArray, IntArray]:
    """Return depth and index of cells by their numbers; depth -1 for a number that is not positive."""
    powers = np.int64(arity) ** np.arange(1 + MAX_INDEX_BITS // (arity.bit_length() - 1))
    depth = np.searchsorted(powers, cells, side="right") - 1
    return depth, cells - powers[depth]


def _corner_and_width(depth: int, index: npt.ArrayLike, dim: int, arity: int) -> tuple[Array, Array]:
    """Return the lower corners `(..., D)` and the widths `(D,)`."""
    bits = _num_bits(depth, dim, arity)
    index = np.asarray(index)
    if index.dtype.kind not in "iu" and index.size:
        raise ConfigError(f"index: expected integers, got {index.dtype}")
    index = index.astype(np.int64)
    if index.size and (index.min() < 0 or index.max() >= 1 << bits):
        raise ConfigError(f"index: expected 0 <= index < 2**{bits} at depth {depth}, got {index}")
    shifts, values, width = _digits(bits, dim)
    return ((index[..., None] >> shifts) & 1) @ values * width, width


@lru_cache(maxsize=256)
def _digits(bits: int, dim: int) -> tuple[IntArray, IntArray, Array]:
    """Return the shift of each binary digit of an index, `(bits,)`, its value in each coordinate of the lower
    corner, in units of the width, `(bits, D)`, and the widths `(D,)`; read-only.
    """
    level = np.arange(bits)
    halvings = bits // dim + (np.arange(dim) < bits % dim)  # of each dimension, (D,)
    values = np.zeros((bits, dim), dtype=np.int64)
    values[level, level % dim] = 1 << (halvings[level % dim] - 1 - level // dim)
    found = bits - 1 - level, values, np.asarray(2.0**-halvings, dtype=np.float64)
    for array in found:
        array.setflags(write=False)
    return found


def _num_bits(depth: int, dim: int, arity: int) -> int:
    deepest = max_depth(dim, arity)
    if not 0 <= depth <= deepest:
        raise ConfigError(f"depth: expected 0 to {deepest} (D = {dim}, arity {arity}), got {depth}")
    return depth * _digit_bits(dim, arity)


def _digit_bits(dim: int, arity: int) -> int:
    """Return the number of halvings per level of the tree."""
    if dim < 1:
        raise ConfigError(f"dim: expected a positive integer, got {dim}")
    if arity == 2:
        return 1
    if dim <= MAX_FULL_DIMENSION and arity == 2**dim:
        return dim
    raise ConfigError(f"arity: expected 2, or 2**D for D <= {MAX_FULL_DIMENSION}; got {arity} for D = {dim}")
