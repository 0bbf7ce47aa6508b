"""Pick the candidates from which a maximisation starts: good, allowed, and apart from each other.

Notation: as in `maximise`.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.numerics.arrays import Array, BoolArray, IntArray

REJECTIONS = 4  # candidates that are too close to a point to avoid, before all of a function are examined


def pick_starts(
    scores: Array,
    candidates: Array,
    avoid: Array | None,
    min_distance: float,
    num_starts: int,
    separation: float,
) -> tuple[IntArray, BoolArray]:
    """Return the starts of every function, chosen greedily by score and `separation` apart if possible.

    Only candidates that would be chosen are compared with the points to avoid. Most functions need no more.

    Parameters
    ----------
    scores : `(B, S)`
    candidates : `(B, S, F)`
    avoid : `(B, k, F)`, points to keep `min_distance` away from, unless no candidate does

    Returns
    -------
    Indices of candidates `(B, s)` with `s = min(num_starts, S)`, where the best one is repeated if fewer are
    allowed; and whether the candidates chosen keep the distance, `(B,)`.
    """
    num_picks = min(num_starts, scores.shape[1])
    avoided = np.ones(len(scores), dtype=np.bool_)
    picked = np.empty((len(scores), num_picks), dtype=np.int64)
    apart = scores.copy()  # -inf: not allowed, or too close to another start
    rows = np.arange(len(scores))
    found = np.ones(len(scores), dtype=np.bool_)
    for pick in range(num_picks):
        picked[:, pick] = best = _best_allowed(apart, candidates, avoid, min_distance)
        found &= apart[rows, best] > -np.inf
        if pick + 1 < num_picks:
            apart[_squares(candidates, candidates[rows, best][:, None, :]) < separation**2] = -np.inf
            apart[rows, best] = -np.inf
    for b in np.flatnonzero(~found):  # too few are allowed and apart
        own = None if avoid is None else avoid[b : b + 1]
        free = keeps_distance(candidates[b : b + 1], own, min_distance)[0]
        avoided[b] = free.any()
        free = free if avoided[b] else np.ones_like(free)
        some = pick_from_all(scores[b], candidates[b], free, num_picks, separation)
        picked[b] = np.resize(some, num_picks) if len(some) < num_picks else some
    return picked, avoided


def _best_allowed(apart: Array, candidates: Array, avoid: Array | None, min_distance: float) -> IntArray:
    """Return the best candidate of every function, `(B,)`; those found too close are set to -inf."""
    best: IntArray = np.argmax(apart, axis=1)
    if avoid is None or avoid.shape[1] == 0 or min_distance <= 0.0:
        return best
    rows = np.arange(len(apart))
    for _ in range(REJECTIONS):
        close = ~keeps_distance(candidates[rows, best[rows]][:, None, :], avoid[rows], min_distance)[:, 0]
        rows = rows[close & (apart[rows, best[rows]] > -np.inf)]
        if len(rows) == 0:
            return best
        apart[rows, best[rows]] = -np.inf
        best[rows] = np.argmax(apart[rows], axis=1)
    apart[rows] = np.where(keeps_distance(candidates[rows], avoid[rows], min_distance), apart[rows], -np.inf)
    best[rows] = np.argmax(apart[rows], axis=1)
    return best


def pick_from_all(
    scores: Array, candidates: Array, allowed: BoolArray, num_starts: int, separation: float
) -> IntArray:
    """Return the best allowed candidates of one function, chosen greedily and apart if possible."""
    picked: list[int] = []
    apart = np.where(allowed, scores, -np.inf)
    remaining = apart.copy()
    for _ in range(min(num_starts, int(allowed.sum()))):
        best = int(np.argmax(apart))
        if apart[best] == -np.inf:
            best = int(np.argmax(remaining))
        picked.append(best)
        difference = candidates - candidates[best]
        apart[(difference * difference).sum(axis=1) < separation**2] = -np.inf
        apart[best] = remaining[best] = -np.inf
    return np.array(picked, dtype=np.int64)


def keeps_distance(points: Array, avoid: Array | None, min_distance: float) -> BoolArray:
    """Return which `points (B, m, F)` are at least `min_distance` from every row of `avoid (B, k, F)`."""
    if avoid is None or avoid.shape[1] == 0 or min_distance <= 0.0:
        return np.ones(points.shape[:2], dtype=np.bool_)
    squares = _squares(points[:, :, None, :], avoid[:, None, :, :])
    return np.asarray(np.sqrt(squares.min(axis=2)) >= min_distance, dtype=np.bool_)


def _squares(first: Array, second: Array) -> Array:
    """Return the squared distances of rows, column by column: NumPy's sums over few columns are slow."""
    squares: Array = np.square(first[..., 0] - second[..., 0])
    for column in range(1, first.shape[-1]):
        difference = first[..., column] - second[..., column]
        difference *= difference
        squares += difference
    return squares
