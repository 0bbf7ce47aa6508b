"""Exact knowledge gradient of every point of a finite set.

One noisy observation at `x` turns the posterior mean into `mu(z) + s(x, z) xi`, `xi ~ N(0, 1)`,
`s(x, z) = K(z, x) / sqrt(K(x, x) + sigma^2)`: a line in `xi` for every `z`. The knowledge gradient
`KG(x) = E max_z [mu(z) + s(x, z) xi] - max_z mu(z)` follows from the upper envelope of the lines: its slopes
`b_0 < b_1 < ..` change at `c_1 < c_2 < ..`, and `KG = sum_i (b_i - b_(i-1)) h(-|c_i|)`, `h(z) = phi(z) +
z Phi(z)` [Frazier2009, eq. 14].

Here all `x` go together. Right of `xi = 0` the envelope starts from the line with the largest mean, and a
line can only be on it if it is steeper than all lines with larger means, which leaves few of them (they are
compared with the maxima of whole groups: a few too many do no harm). Over these the envelope is walked, one
breakpoint of every `x` at a time. The left half is the right half of `-s`.

References
----------
[Frazier2009] Frazier, Powell, Dayanik. The knowledge-gradient policy for correlated normal beliefs. INFORMS
Journal on Computing 21 (2009) 599-613.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.normal import excess
from fbo_flower.numerics.arrays import Array, IntArray

BLOCK = 2**17  # entries of `s` held at a time
GROUP = 16  # lines whose slopes share one maximum
FARTHEST = 38.5  # h(-38.5) is 0 in float64


def knowledge_gradient_from_factor(mean: Array, factor: Array, noise_variance: float) -> Array:
    """Return the expected gain in the largest posterior mean by one observation, for every point.

    Parameters
    ----------
    mean : `(S,)`
    factor : `(S, r)`, the covariance is `factor factor^T`, of which only blocks are formed
    noise_variance : of the observation; 0 is allowed

    Returns
    -------
    `(S,)`, in units of the mean, not negative; 0 where an observation carries no information

    Raises
    ------
    ConfigError
        If shapes do not match or the noise variance is negative.
    """
    num_points = len(mean)
    if factor.ndim != 2 or len(factor) != num_points:
        raise ConfigError(f"factor: expected ({num_points}, r), got {factor.shape}")
    if num_points == 0 or not noise_variance >= 0:
        raise ConfigError(
            "knowledge gradient: expected points and a noise variance >= 0, "
            f"got {num_points} and {noise_variance}"
        )
    order = np.argsort(-mean, kind="stable")
    gaps = mean[order[0]] - mean[order]  # ascending from 0
    stddev = np.sqrt(np.einsum("sr,sr->s", factor, factor) + noise_variance)
    scale = np.divide(1.0, stddev, out=np.zeros(num_points), where=stddev > 0)
    gain = np.empty(num_points)
    width = min(max(1, BLOCK // num_points), num_points)
    both = np.empty((num_points, 2 * width))  # slopes of the right halves, then of the left
    for start in range(0, num_points, width):
        block = slice(start, min(start + width, num_points))
        size = block.stop - start
        right, left = both[:, :size], both[:, size : 2 * size]
        covariance = factor[order] @ factor[block].T
        np.subtract(covariance, covariance[0], out=right)  # relative to the line with the largest mean
        right *= scale[block]
        np.negative(right, out=left)
        halves = _right_half(gaps, both[:, : 2 * size])
        gain[block] = halves[:size] + halves[size:]
    return gain


def _right_half(gaps: Array, slopes: Array) -> Array:
    """Return `sum_i (b_i - b_(i-1)) h(-c_i)` over breakpoints `c_i >= 0` of `max_z [b_z xi - gap_z]`, `(B,)`.

    Parameters
    ----------
    gaps : `(S,)`, ascending from 0
    slopes : `(S, B)`, the first row 0
    """
    line, column = _steeper_than_all_above(slopes)
    num_columns = slopes.shape[1]
    count = np.bincount(column, minlength=num_columns)
    rank = np.arange(len(column)) - (np.cumsum(count) - count)[column]  # of the line in its column
    gap = np.full((count.max(), num_columns), np.inf)
    slope = np.zeros_like(gap)
    gap[rank, column], slope[rank, column] = gaps[line], slopes[line, column]
    return _walk(gap, slope)


def _steeper_than_all_above(slopes: Array) -> tuple[IntArray, IntArray]:
    """Return rows and columns of the entries above the maximum of all earlier groups of rows, by column."""
    num_lines, num_columns = slopes.shape
    num_groups = -(-num_lines // GROUP)
    whole = slopes[: (num_groups - 1) * GROUP].reshape(-1, GROUP, num_columns)
    before = np.zeros((num_groups, num_columns))  # the first line has slope 0
    np.maximum.accumulate(whole.max(axis=1), axis=0, out=before[1:])
    np.maximum(before, 0.0, out=before)
    above = np.empty((num_lines, num_columns), dtype=np.bool_)
    np.greater(whole, before[:-1, np.newaxis], out=above[: len(whole) * GROUP].reshape(whole.shape))
    np.greater(slopes[len(whole) * GROUP :], before[-1], out=above[len(whole) * GROUP :])
    line, column = np.divmod(np.flatnonzero(above), num_columns)
    small = np.int16 if num_columns < 2**15 else np.int64  # NumPy sorts 16 bits by radix
    by_column = np.argsort(column.astype(small), kind="stable")
    return line[by_column], column[by_column]


def _walk(gap: Array, slope: Array) -> Array:
    """Return the sum over each column's envelope, from the line `(0, 0)` to the steepest; inputs `(R, B)`."""
    num_columns = gap.shape[1]
    at = np.arange(num_columns)  # columns not finished, and some that are
    here_gap = here_slope = np.zeros(num_columns)
    columns, rises, crossings = [at[:0]], [here_gap[:0]], [here_gap[:0]]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        while at.size and len(gap):
            rise = slope - here_slope
            crossing = (gap - here_gap) / rise
            crossing[~(rise > 0)] = np.inf
            first = crossing.argmin(axis=0) * len(at) + np.arange(len(at))
            crossing, rise = crossing.take(first), rise.take(first)
            under_way = crossing < FARTHEST
            go = np.flatnonzero(under_way)
            columns.append(at[go])
            rises.append(rise[go])
            crossings.append(crossing[go])
            here_gap, here_slope = gap.take(first), np.where(under_way, slope.take(first), np.inf)
            if 2 * len(go) < len(at):
                at, here_gap, here_slope, gap, slope = (
                    at[go],
                    here_gap[go],
                    here_slope[go],
                    gap.take(go, axis=1),
                    slope.take(go, axis=1),
                )
    # sum_i (b_i - b_(i-1)) h(-c_i) [Frazier2009, Eq. 14]
    parts = np.concatenate(rises) * excess(-np.concatenate(crossings))
    total = np.bincount(np.concatenate(columns), weights=parts, minlength=num_columns)
    return np.asarray(total, dtype=np.float64)
