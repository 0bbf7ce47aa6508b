"""Maximise a smooth function over the unit cube: score candidates, then polish the best few together.

Stage 1 evaluates all candidates at once and picks starts that are good and apart from each other. Stage 2
runs a quasi-Newton method from each start; all starts share each evaluation, because a batch of four points
costs little more than one. (A single L-BFGS-B run on the sum of the values is as fast, but it may lower one
start's value if the others gain more. Here no start ends lower than it began.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.linalg import Array, bfgs_update
from fbo_flower.numerics.optim.functions import Differentiable

FIRST_STEP, LONGEST_STEP, SHORTEST_STEP = 0.03, 0.3, 1e-6  # the last is relative to the first trial step
GRADIENT_TOLERANCE, VALUE_TOLERANCE = 1e-4, 1e-8
ARMIJO = 1e-4
TINY = 1e-300
SEPARATION = 0.1  # least distance of two starts, divided by sqrt(number of polished columns)


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
    function: Differentiable,
    candidates: Array,
    columns: npt.NDArray[np.intp],
    *,
    num_starts: int = 4,
    avoid: Array | None = None,
    min_distance: float = 0.0,
    max_iterations: int = 30,
) -> Maximum:
    """Return the best point among the candidates and the polished starts.

    Parameters
    ----------
    function : to maximise
    candidates : `(n, F)`, in `[0, 1]` in the columns to polish
    columns : `(c,)`, the columns to polish within `[0, 1]`; the others keep the candidate's values; `c` may
        be 0
    num_starts : number of candidates to polish
    avoid : `(k, F)`, points to keep away from, e.g. those already evaluated
    min_distance : least Euclidean distance, over all columns, from every row of `avoid`; ignored if no
        candidate satisfies it
    max_iterations : number of polishing steps, each of which evaluates a batch of `num_starts` points

    Raises
    ------
    NumericalError
        If the function is not finite at a candidate.
    """
    if candidates.ndim != 2 or len(candidates) == 0 or num_starts < 1:
        raise ConfigError(
            f"maximise: expected candidates (n, F), n > 0, a start, got {candidates.shape} and {num_starts}"
        )
    scores = function(candidates)
    if not np.isfinite(scores).all():
        index = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise NumericalError(
            f"maximise: expected finite values, got {scores[index]} at {candidates[index].tolist()}"
        )

    allowed = _keeps_distance(candidates, avoid, min_distance)
    avoided = bool(allowed.any())
    if not avoided:
        avoid, allowed = None, np.ones(len(candidates), dtype=np.bool_)
    starts = _pick_starts(scores, candidates, allowed, num_starts, SEPARATION * max(len(columns), 1) ** 0.5)
    points, values = candidates[starts], scores[starts]
    if len(columns):
        polished = _polish(function, points, columns, max_iterations)
        kept = np.flatnonzero(_keeps_distance(polished, avoid, min_distance))
        starts = np.concatenate([starts, starts[kept]])
        points = np.concatenate([points, polished[kept]])
        values = np.concatenate([values, function(polished[kept])])
    best = int(np.argmax(values))
    return Maximum(points[best], float(values[best]), int(starts[best]), avoided)


def _keeps_distance(points: Array, avoid: Array | None, min_distance: float) -> npt.NDArray[np.bool_]:
    """Return which `points (n, F)` are at least `min_distance` from every row of `avoid (k, F)`: `(n,)`."""
    keeps = np.ones(len(points), dtype=np.bool_)
    if avoid is None or len(avoid) == 0 or min_distance <= 0.0:
        return keeps
    # |a - b|^2 = |a|^2 - 2 a^T b + |b|^2 loses digits by cancellation: it only selects the rows that may be
    # too close, whose distances are then computed from differences.
    squares = (points * points).sum(axis=1)[:, None] - 2.0 * (points @ avoid.T) + (avoid * avoid).sum(axis=1)
    doubtful = np.flatnonzero(squares.min(axis=1) < min_distance**2 + 1e-9)
    differences = points[doubtful, None, :] - avoid[None, :, :]
    keeps[doubtful] = np.sqrt((differences**2).sum(axis=2)).min(axis=1) >= min_distance
    return keeps


def _pick_starts(
    scores: Array, candidates: Array, allowed: npt.NDArray[np.bool_], num_starts: int, separation: float
) -> npt.NDArray[np.intp]:
    """Return the best allowed candidates, chosen greedily and at least `separation` apart if possible."""
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
    return np.array(picked, dtype=np.intp)


def _polish(
    function: Differentiable, points: Array, columns: npt.NDArray[np.intp], max_iterations: int
) -> Array:
    """Return local maxima `(s, F)` found from each row of `points (s, F)`, in `[0, 1]` in `columns`.

    Projected BFGS [Bertsekas 1982, Projected Newton methods] with Armijo's rule, for each row by itself; the
    rows share only the evaluations. A row whose trial step fails shortens its step while the others proceed.
    """
    z = points.copy()
    values, gradients = function.value_and_gradient(z)
    x, g = z[:, columns], gradients[:, columns]  # (s, c)
    identity = np.eye(len(columns))
    h = np.tile(identity, (len(x), 1, 1))  # inverse of minus the Hessian, (s, c, c)
    fresh = np.ones(len(x), dtype=np.bool_)  # h has not been scaled yet
    step = np.ones(len(x))
    active = np.ones(len(x), dtype=np.bool_)
    for _ in range(max_iterations):
        free = ~(((x <= 0.0) & (g < 0.0)) | ((x >= 1.0) & (g > 0.0)))
        free_g = np.where(free, g, 0.0)
        active &= np.abs(free_g).max(axis=1) > GRADIENT_TOLERANCE
        if not active.any():
            break
        direction = np.where(free, (h @ free_g[:, :, None])[:, :, 0], 0.0)
        length = np.sqrt((direction * direction).sum(axis=1))
        longest = np.where(fresh, FIRST_STEP, LONGEST_STEP)
        scale = np.where(fresh, longest, np.minimum(longest, length)) / np.maximum(length, TINY)
        trial = np.clip(x + (step * scale * active)[:, None] * direction, 0.0, 1.0)
        z[:, columns] = trial
        trial_values, trial_gradients = function.value_and_gradient(z)
        moved = trial - x
        gain, predicted = trial_values - values, (g * moved).sum(axis=1)
        # Armijo's rule: the gain is at least 1e-4 of what the slope predicts.
        accepted = active & (gain >= ARMIJO * np.maximum(predicted, 0.0))
        # Shorten a failed step to the maximum of the parabola through both values and the slope, but to
        # between .1 and .5 of its length.
        shorter = np.clip(0.5 * predicted / np.maximum(predicted - gain, TINY), 0.1, 0.5)
        step = np.where(accepted, 1.0, step * shorter)
        active &= ~(accepted & (gain <= VALUE_TOLERANCE)) & (step > SHORTEST_STEP)

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
    z[:, columns] = x
    return z
