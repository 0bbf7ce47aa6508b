"""Maximise smooth functions over the unit cube: score candidates, then polish the best few together.

Stage 1 evaluates all candidates at once and picks starts that are good and apart from each other. Stage 2
runs a quasi-Newton method from each start; all starts share each evaluation, because a batch of four points
costs little more than one. (A single L-BFGS-B run on the sum of the values is as fast, but it may lower one
start's value if the others gain more. Here no start ends lower than it began.)

The functions of many agents are maximised side by side. Every function is treated by itself (`functions` has
the rule), so its maximum does not depend on the others.
Notation: `B` functions, `S` candidates, `s` starts, `F` columns, `c` of them polished, `k` points to avoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.arrays import Array, BoolArray, IntArray
from fbo_flower.numerics.categories import category_columns
from fbo_flower.numerics.linalg import bfgs_update
from fbo_flower.numerics.optim.functions import Differentiable, Stack, stack_of

FIRST_STEP, LONGEST_STEP, SHORTEST_STEP = 0.03, 0.3, 1e-6  # the last is relative to the first trial step
GRADIENT_TOLERANCE = 1e-4
ARMIJO = 1e-4
TINY = 1e-300
NUM_STARTS = 4  # candidates of a function that are polished
SEPARATION = 0.1  # least distance of two starts, divided by sqrt(number of polished columns)
REJECTIONS = 4  # candidates that are too close to a point to avoid, before all of a function are examined
WORTH_A_COPY = 0.7  # the polish drops finished functions when fewer than this share is left


@dataclass(frozen=True)
class Maximum:
    """The best point found.

    Attributes
    ----------
    x : `(F,)`
    value : the function there
    start : index of the candidate it was polished from
    avoided : whether it keeps its distance from `avoid`; False if no candidate does
    """

    x: Array
    value: float
    start: int
    avoided: bool


def maximise(
    functions: Sequence[Differentiable],
    candidates: Array,
    columns: npt.NDArray[np.intp],
    *,
    avoid: Array | None = None,
    min_distance: float = 0.0,
    max_iterations: int = 30,
    movable: BoolArray | None = None,
) -> list[Maximum]:
    """Return the best point of every function among its candidates and the polished starts.

    Parameters
    ----------
    functions : `B` functions of one `shape_of`, to maximise
    candidates : `(B, S, F)`, in `[0, 1]` in the columns to polish
    columns : `(c,)`, the columns to polish within `[0, 1]`; the others keep the candidate's values; `c` may
        be 0
    avoid : `(B, k, F)`, points to keep away from, e.g. those already evaluated
    min_distance : least Euclidean distance, over all columns, from every row of `avoid`; ignored if no
        candidate satisfies it
    max_iterations : number of polishing steps, each of which evaluates a batch of `NUM_STARTS` points
    movable : `(B, S, c)`, whether a column may move from this candidate, e.g. not that of an inactive
        parameter; None: all may

    Raises
    ------
    NumericalError
        If a function is not finite at a candidate.
    """
    if candidates.ndim != 3 or candidates.shape[1] == 0:
        raise ConfigError(f"maximise: expected candidates (B, S, F), S > 0, got {candidates.shape}")
    stack = stack_of(functions)
    scores = stack.scores(candidates)
    if not np.isfinite(scores).all():
        b, i = (int(index) for index in np.argwhere(~np.isfinite(scores))[0])
        raise NumericalError(
            f"maximise: expected finite values, got {scores[b, i]} at {candidates[b, i].tolist()}"
        )
    separation = SEPARATION * max(len(columns), 1) ** 0.5
    starts, avoided = pick_starts(scores, candidates, avoid, min_distance, NUM_STARTS, separation)
    points = np.take_along_axis(candidates, starts[:, :, None], axis=1)
    values = np.take_along_axis(scores, starts, axis=1) if stack.exact_scores else stack.values(points)
    if len(columns):
        moves = np.ones((*starts.shape, len(columns)), dtype=np.bool_)
        if movable is not None:
            moves = np.take_along_axis(movable, starts[:, :, None], axis=1)
        polished = _polish(stack, points, columns, moves, max_iterations)
        keeps = keeps_distance(polished, avoid, min_distance) | ~avoided[:, None]
        starts = np.concatenate([starts, starts], axis=1)
        points = np.concatenate([points, polished], axis=1)
        values = np.concatenate([values, np.where(keeps, stack.values(polished), -np.inf)], axis=1)
    best = np.argmax(values, axis=1)
    return [
        Maximum(points[b, i].copy(), float(values[b, i]), int(starts[b, i]), bool(avoided[b]))
        for b, i in enumerate(best)
    ]


def _polish(
    stack: Stack, points: Array, columns: npt.NDArray[np.intp], moves: BoolArray, max_iterations: int
) -> Array:
    """Return local maxima `(B, s, F)` found from each row of `points (B, s, F)`, in `[0, 1]` in `columns`.

    Projected BFGS [Bertsekas 1982, Projected Newton methods] with Armijo's rule, for each row by itself; the
    rows share only the evaluations. A row whose trial step fails shortens its step while the others proceed.
    """
    found, z = points.copy(), points.copy()
    which = np.arange(len(points))  # functions with an active row; the arrays below hold only these
    shape, num_columns = points.shape, len(columns)
    values, gradients = (a.reshape(-1, *a.shape[2:]) for a in stack.value_and_gradient(z))
    x, g = z[:, :, columns].reshape(-1, num_columns), gradients[:, columns]  # (B s, c)
    identity = np.eye(num_columns)
    h = np.tile(identity, (len(x), 1, 1))  # inverse of minus the Hessian, (B s, c, c)
    fresh, active = np.ones((2, len(x)), dtype=np.bool_)  # fresh: h has not been scaled yet
    step = np.ones(len(x))
    moves = moves.reshape(-1, num_columns)
    for _ in range(max_iterations):
        free = moves & ~(((x <= 0.0) & (g < 0.0)) | ((x >= 1.0) & (g > 0.0)))
        free_g = np.where(free, g, 0.0)
        active &= np.abs(free_g).max(axis=1) > GRADIENT_TOLERANCE
        working = active.reshape(-1, shape[1]).any(axis=1)
        if not working.any():
            break
        if np.count_nonzero(working) < WORTH_A_COPY * len(which):
            _write_columns(found, which, x, columns)
            rows: IntArray = np.flatnonzero(working)
            each = (rows[:, None] * shape[1] + np.arange(shape[1])).ravel()
            which, stack, z = which[rows], stack.take(rows), z[rows]
            x, g, h, fresh, step, active, values, free, free_g, moves = (
                a[each] for a in (x, g, h, fresh, step, active, values, free, free_g, moves)
            )
        direction = np.where(free, (h @ free_g[:, :, None])[:, :, 0], 0.0)
        length = np.sqrt((direction * direction).sum(axis=1))
        longest = np.where(fresh, FIRST_STEP, LONGEST_STEP)
        scale = np.where(fresh, longest, np.minimum(longest, length)) / np.maximum(length, TINY)
        trial = np.minimum(np.maximum(x + (step * scale * active)[:, None] * direction, 0.0), 1.0)
        z[:, :, columns] = trial.reshape(len(z), -1, num_columns)
        trial_values, trial_gradients = (a.reshape(-1, *a.shape[2:]) for a in stack.value_and_gradient(z))
        moved = trial - x
        gain, predicted = trial_values - values, (g * moved).sum(axis=1)
        # Armijo's rule: the gain is at least 1e-4 of what the slope predicts.
        accepted = active & (gain >= ARMIJO * np.maximum(predicted, 0.0))
        # Shorten a failed step to the maximum of the parabola through both values and the slope, but to
        # between .1 and .5 of its length.
        shorter = np.minimum(np.maximum(0.5 * predicted / np.maximum(predicted - gain, TINY), 0.1), 0.5)
        step = np.where(accepted, 1.0, step * shorter)
        # a step that gains less, or promises to, is within rounding
        little = np.where(accepted, gain, predicted) <= stack.value_tolerance
        active &= ~little & (step > SHORTEST_STEP)

        new_g = np.where(accepted[:, None], trial_gradients[:, columns], g)
        bend = np.where(free, g - new_g, 0.0)  # change of the gradient of -f
        curvature = (moved * bend).sum(axis=1)
        update = accepted & (curvature > 1e-10 * (bend * bend).sum(axis=1))
        if update.any():
            first = update & fresh
            h[first] = (curvature[first] / (bend[first] ** 2).sum(axis=1))[:, None, None] * identity
            updated = bfgs_update(h, moved, bend, np.where(update, curvature, 1.0))
            h = np.where(update[:, None, None], updated, h)
            fresh &= ~update
        x, g = np.where(accepted[:, None], trial, x), new_g
        values = np.where(accepted, trial_values, values)
    _write_columns(found, which, x, columns)
    return found


def _write_columns(found: Array, which: IntArray, x: Array, columns: npt.NDArray[np.intp]) -> None:
    """Write the rows `x (b s, c)` of the functions `which (b,)` into `found (B, s, F)`."""
    part = found[which]
    part[:, :, columns] = x.reshape(len(which), -1, len(columns))
    found[which] = part


# -- the starts: good, allowed, and apart from each other ----------------------------------------------


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
        apart[_squares(candidates, candidates[best]) < separation**2] = -np.inf
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
    categories, squares = {*category_columns(second).tolist()}, np.zeros(())
    for column in range(first.shape[-1]):
        difference = first[..., column] - second[..., column]
        if column in categories:
            difference = (difference != 0.0).astype(np.float64)
        else:
            difference *= difference
        squares = np.add(squares, difference, out=difference)
    return squares
