"""The knowledge gradient on a finite set: exact for every point, and of a batch (q-KG) by common draws.

One noisy observation at `x` turns the posterior mean into `mu(z) + s(x, z) xi`, `xi ~ N(0, 1)`,
`s(x, z) = K(z, x) / sqrt(K(x, x) + sigma^2)`: a line in `xi` for every `z`. The knowledge gradient
`KG(x) = E max_z [mu(z) + s(x, z) xi] - max_z mu(z)` follows from the upper envelope of the lines: its slopes
`b_0 < b_1 < ..` change at `c_1 < c_2 < ..`, and `KG = sum_i (b_i - b_(i-1)) h(-|c_i|)`, `h(z) = phi(z) +
z Phi(z)` [Frazier2009, eq. 14].

Here all `x` go together. Right of `xi = 0` the envelope starts from the line with the largest mean, and a
line can only be on it if it is steeper than all lines with larger means, which leaves few of them (they are
compared with the maxima of whole groups: a few too many do no harm). Over these the envelope is walked, one
breakpoint of every `x` at a time. The left half is the right half of `-s`.

A batch: noisy observations at `x = (x_1, .., x_N)` turn the central mean into `mu(z) + s(x, z) xi`, `xi ~
N(0, I)`, `s(x, z) = K(z, x) D^-T`, `D D^T = K(x, x) + sigma^2 I`, `D` lower triangular [Zhan2025, Eqs. 7 and
9]. Column by column, with `K_j` the covariance given observations at the first `j` points:

    s_j(z) = K_j(z, x_j) / sqrt(K_j(x_j, x_j) + sigma^2),    K_(j+1) = K_j - s_j s_j^T.

The value of a batch is `mean_m max_z [mu(z) + s(x, z) xi_m] - max_z mu(z)` over `M` draws that all batches
share. `D`, and with it the effect of a draw, depends on the order of the points; batches are in the agents'
order. All values are invariant to a shift of the mean, so its maximum is subtracted first.

[Frazier2009] Frazier, Powell, Dayanik. The knowledge-gradient policy for correlated normal beliefs. INFORMS
Journal on Computing 21 (2009) 599-613.
[Zhan2025] Zhan et al. Collaborative Bayesian optimization via Wasserstein barycenters. 2025.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.batch import BatchAcquisition
from fbo_flower.numerics.acquisition.expected_improvement import excess
from fbo_flower.numerics.arrays import Array, IntArray

BLOCK = 2**17  # entries of `s` held at a time
GROUP = 16  # lines whose slopes share one maximum
FARTHEST = 38.5  # h(-38.5) is 0 in float64
FANTASIES = 2**16  # values of fantasies processed at a time, so that they stay in the processor's cache
GUESSED = 256  # points per block in `guess`, for the same reason
LATER = 8  # agents after the one that moves, up to which the columns are updated one by one
SHARED = 6  # most frequent maximisers that `guess` tries for all fantasies


def knowledge_gradient_from_factor(mean: Array, factor: Array, noise_variance: float) -> Array:
    """Return the expected gain in the largest posterior mean by one observation, for every point: `(S,)`.

    In units of the mean, not negative; 0 where an observation carries no information.

    Parameters
    ----------
    mean : `(S,)`
    factor : `(S, r)`, the covariance is `factor factor^T`, of which only blocks are formed
    noise_variance : of the observation; 0 is allowed
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
    # walk along the envelope of each column, from the line (0, 0) to the steepest
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
                at, here_gap, here_slope = at[go], here_gap[go], here_slope[go]
                gap, slope = gap.take(go, axis=1), slope.take(go, axis=1)
    # sum_i (b_i - b_(i-1)) h(-c_i) [Frazier2009, Eq. 14]
    parts = np.concatenate(rises) * excess(-np.concatenate(crossings))
    total = np.bincount(np.concatenate(columns), weights=parts, minlength=num_columns)
    return np.asarray(total, dtype=np.float64)


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


class BatchKnowledgeGradient(BatchAcquisition):
    """q-KG on a finite set.

    Let `z'` have the largest mean. Observations explain at most the whole variance of `f(z) - f(z')`. So if
    `mu(z') - mu(z) >= |xi| stddev(f(z) - f(z'))`, then `z` cannot be the maximiser after any batch, and it is
    left out of the maximum. Internally, possible maximisers come first. Rows of the covariance are computed
    when they are first needed.
    """

    def __init__(self, mean: Array, factor: Array, noise_variance: float, draws: Array) -> None:
        super().__init__(mean, factor, int(draws.shape[1]))
        if not noise_variance >= 0:
            raise ConfigError(f"noise variance: expected a number >= 0, got {noise_variance}")
        top = mean.argmax()
        from_top = np.sqrt(np.square(factor - factor[top]).sum(axis=1))
        longest = np.sqrt(np.square(draws).sum(axis=1).max())
        hopeless = mean[top] - mean > longest * from_top
        self._order = np.argsort(hopeless, kind="stable")
        self._inside = np.argsort(self._order, kind="stable")
        self._num_tops = len(mean) - int(np.count_nonzero(hopeless))
        self._mean = (mean - mean[top])[self._order]
        self._factor, self._noise_variance, self._draws = factor[self._order], noise_variance, draws
        self._variance = np.einsum("sr,sr->s", self._factor, self._factor)
        self._with_one = np.concatenate([np.ones((len(draws), 1)), draws], axis=1)  # (M, 1 + N)
        self._rows = np.empty((0, len(mean)))
        self._place = np.full(len(mean), -1)  # of a point's row in `_rows`
        self._num_rows = 0

    def guess(self, design: IntArray, agent: int) -> Array:
        """Return a lower bound of the value at every point, with the agent's observation taken last.

        The maximum over `z` is taken only over the fantasy's maximiser without the agent, the most frequent
        such maximisers, and the point itself.
        """
        others = np.delete(np.arange(len(design)), agent)
        columns = self._columns(self._inside[design[others]])  # (N - 1, S)
        base = self._mean + self._draws[:, others] @ columns  # (M, S)
        first = base[:, : self._num_tops].argmax(axis=1)
        tops, which, count = np.unique(first, return_inverse=True, return_counts=True)
        variance = self._variance - np.einsum("js,js->s", columns, columns)
        scale = self._scale(variance)
        slopes = (self._covariance(tops) - columns[:, tops].T @ columns) * scale  # (Z, S)
        own = self._draws[:, agent, np.newaxis]
        base_first = base.max(axis=1, keepdims=True)
        shared = np.argsort(-count, kind="stable")[:SHARED]
        guessed = np.empty(self.num_points)
        for start in range(0, self.num_points, GUESSED):
            block = slice(start, start + GUESSED)
            best = base[:, block] + own * (variance * scale)[block]  # z = x
            fantasy = slopes[which, block]
            fantasy *= own
            fantasy += base_first
            np.maximum(best, fantasy, out=best)
            for z in shared:
                np.multiply(own, slopes[z, block], out=fantasy)
                fantasy += base[:, tops[z], np.newaxis]
                np.maximum(best, fantasy, out=best)
            guessed[block] = best.mean(axis=0)
        return guessed[self._inside]

    def values(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        if len(design) - agent > LATER:
            found = self._values_of_many(self._inside[design], agent, self._inside[candidates])
            if found is not None:
                return found
        stacked = self._stacked(self._inside[design], agent, self._inside[candidates])
        with_one = self._with_one[:, : stacked.shape[1]]
        value = np.empty(len(candidates))
        width = max(1, FANTASIES // (len(with_one) * self._num_tops))
        fantasies = np.empty((min(width, len(candidates)), len(with_one), self._num_tops))
        for start in range(0, len(candidates), width):
            part = stacked[start : start + width, :, : self._num_tops]
            out = np.matmul(with_one, part, out=fantasies[: len(part)])
            value[start : start + width] = out.max(axis=2).mean(axis=1)
        return value

    def _values_of_many(self, design: IntArray, agent: int, candidates: IntArray) -> Array | None:
        """Return `values` from one Cholesky factor per candidate, None if `K(x, x) + sigma^2 I` is singular.

        The fantasies are `mu(z) + K(z, x) D^-T xi`, so no column has to be computed.
        """
        top, size = slice(self._num_tops), len(design)
        rows = self._covariance(design)
        cross, inner = rows[:, top], rows[:, design]
        inner.flat[:: size + 1] += self._noise_variance
        draws = self._draws[:, :size].T
        value = np.empty(len(candidates))
        for i, row in enumerate(self._covariance(candidates)):
            cross[agent] = row[top]
            inner[agent] = inner[:, agent] = row[design]
            inner[agent, agent] = self._variance[candidates[i]] + self._noise_variance
            try:
                lower = np.linalg.cholesky(inner)  # D
            except np.linalg.LinAlgError:
                return None
            value[i] = (self._mean[top] + np.linalg.solve(lower.T, draws).T @ cross).max(axis=1).mean()
        return value

    def _stacked(self, design: IntArray, agent: int, candidates: IntArray) -> Array:
        """Return `[mu, s_1, .., s_N]` at the possible maximisers and the design, for each candidate.

        `(C, 1 + N, Z + N)`; the last `N` entries are at the points of the design.
        """
        num_tops = self._num_tops
        where = np.concatenate([np.arange(num_tops), design])
        before = self._columns(design[:agent])
        stacked = np.empty((len(candidates), 1 + len(design), len(where)))
        stacked[:, 0] = self._mean[where]
        stacked[:, 1 : 1 + agent] = before[:, where]
        first = stacked[:, 1 + agent]
        rows = self._covariance(candidates)
        first[:, :num_tops], first[:, num_tops:] = rows[:, :num_tops], rows[:, design]
        first -= before[:, candidates].T @ before[:, where]
        variance = self._variance[candidates] - np.square(before[:, candidates]).sum(axis=0)
        first *= self._scale(variance)[:, np.newaxis]
        for j in range(agent + 1, len(design)):
            column = stacked[:, 1 + j]
            column[:] = (self._covariance(design[j : j + 1])[0] - before[:, design[j]] @ before)[where]
            for k in range(agent, j):
                earlier = stacked[:, 1 + k]
                column -= earlier[:, num_tops + j, np.newaxis] * earlier
            column *= self._scale(column[:, num_tops + j])[:, np.newaxis]
        return stacked

    def _columns(self, design: IntArray) -> Array:
        """Return the columns `s_1, .., s_n` of a batch, `(n, S)`."""
        columns = np.empty((len(design), self.num_points))
        rows = self._covariance(design)
        for j, point in enumerate(design):
            row = rows[j] - columns[:j, point] @ columns[:j]  # K_j(., x_j)
            columns[j] = row * self._scale(row[point : point + 1])
        return columns

    def _scale(self, variance: Array) -> Array:
        """Return `1 / sqrt(variance + sigma^2)`, and 0 where that sum is 0."""
        total = np.maximum(variance, 0.0) + self._noise_variance
        scale = np.zeros_like(total)
        np.divide(1.0, np.sqrt(total), out=scale, where=total > 0)
        return scale

    def _covariance(self, points: IntArray) -> Array:
        """Return the rows `K(points, .)`, `(n, S)`, computing those not yet stored."""
        new = points[self._place[points] < 0]
        if new.size:
            new = np.unique(new)
            end = self._num_rows + len(new)
            if end > len(self._rows):
                grown = np.empty((min(self.num_points, 2 * end), self.num_points))
                grown[: self._num_rows] = self._rows[: self._num_rows]
                self._rows = grown
            self._rows[self._num_rows : end] = self._factor[new] @ self._factor.T
            self._place[new] = np.arange(self._num_rows, end)
            self._num_rows = end
        return np.asarray(self._rows[self._place[points]])
