"""Pick the candidates from which a maximisation starts: good, allowed, and apart from each other.

Notation: as in `maximise`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array, IntArray

Flags = npt.NDArray[np.bool_]

BEST = 128  # candidates that are examined at first; all are, if these do not suffice


def pick_starts(
    scores: Array,
    candidates: Array,
    avoid: Array | None,
    min_distance: float,
    num_starts: int,
    separation: float,
) -> tuple[IntArray, Flags]:
    """Return the starts of every function, chosen greedily by score and `separation` apart if possible.

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
    if scores.shape[1] <= BEST:
        top = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    else:
        top = np.sort(np.argpartition(scores, -BEST, axis=1)[:, -BEST:], axis=1)
    points = np.take_along_axis(candidates, top[:, :, None], axis=1)
    allowed = keeps_distance(points, avoid, min_distance)
    apart = np.where(allowed, np.take_along_axis(scores, top, axis=1), -np.inf)
    picked = np.empty((len(scores), num_picks), dtype=np.int64)
    found = np.ones(len(scores), dtype=np.bool_)
    rows = np.arange(len(scores))
    for pick in range(num_picks):
        best = np.argmax(apart, axis=1)
        found &= apart[rows, best] > -np.inf
        picked[:, pick] = top[rows, best]
        close = np.square(points - points[rows, best][:, None, :]).sum(axis=2) < separation**2
        apart[close] = -np.inf
        apart[rows, best] = -np.inf
    # The best allowed candidates are all among these, or there are too few of them: then look at all.
    for b in np.flatnonzero(~found):
        own = None if avoid is None else avoid[b : b + 1]
        free = keeps_distance(candidates[b : b + 1], own, min_distance)[0]
        avoided[b] = free.any()
        free = free if avoided[b] else np.ones_like(free)
        some = pick_from_all(scores[b], candidates[b], free, num_picks, separation)
        picked[b] = np.resize(some, num_picks) if len(some) < num_picks else some
    return picked, avoided


def pick_from_all(
    scores: Array, candidates: Array, allowed: Flags, num_starts: int, separation: float
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


def keeps_distance(points: Array, avoid: Array | None, min_distance: float) -> Flags:
    """Return which `points (B, m, F)` are at least `min_distance` from every row of `avoid (B, k, F)`."""
    if avoid is None or avoid.shape[1] == 0 or min_distance <= 0.0:
        return np.ones(points.shape[:2], dtype=np.bool_)
    squares = np.zeros((*points.shape[:2], avoid.shape[1]))
    for column in range(points.shape[2]):
        difference = points[:, :, None, column] - avoid[:, None, :, column]
        difference *= difference
        squares += difference
    return np.asarray(np.sqrt(squares.min(axis=2)) >= min_distance, dtype=np.bool_)
