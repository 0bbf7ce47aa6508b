"""Maximise a function of features over a search space with categories, integers and conditions."""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.requests import Maximise, Steps, alone
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.optim.maximise import Maximum
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.space.parameters import Int, Ordinal
from fbo_flower.space.space import SearchSpace

MAX_MOVES = 50  # of integers, for one maximisation


def maximiser(
    function: Differentiable,
    space: SearchSpace,
    seen: Array,
    num_candidates: int,
    min_distance: float,
    rng: np.random.Generator,
    *,
    integer_moves: bool = False,
) -> Array:
    """Return the point that maximises a function of the features, at a distance from all points seen.

    Parameters
    ----------
    function : of features `(F,)`, with its gradient
    seen : `(n, D)`, evaluated points in the unit cube
    num_candidates : Sobol points from which the maximisation starts
    min_distance : smallest distance to a point seen, in the unit cube of features; 0 allows repeats
    integer_moves : whether Int and Ordinal parameters are improved step by step from the best candidate.
        Floats follow the gradient anyway, and a category keeps the candidate's value

    Returns
    -------
    `(1, D)`, snapped to the space
    """
    return alone(
        maximising(function, space, seen, num_candidates, min_distance, rng, integer_moves=integer_moves)
    )


def maximising(
    function: Differentiable,
    space: SearchSpace,
    seen: Array,
    num_candidates: int,
    min_distance: float,
    rng: np.random.Generator,
    *,
    integer_moves: bool = False,
) -> Steps[Array]:
    """Return `maximiser` as steps."""
    candidates = space.snap(sobol(num_candidates, space.dimension, rng))
    avoid = space.features(seen)
    point, value, keeps_distance = yield from climbed(function, space, candidates, avoid, min_distance)
    if integer_moves:
        avoid = avoid if keeps_distance else avoid[:0]
        for _ in range(MAX_MOVES):
            neighbours = _neighbours(space, point)
            if not len(neighbours):
                break
            moved, better, apart = yield from climbed(function, space, neighbours, avoid, min_distance)
            if not apart or better <= value:
                break
            point, value = moved, better
    return point[None, :]


def climbed(
    function: Differentiable,
    space: SearchSpace,
    candidates: Array,
    avoid: Array,
    min_distance: float,
    max_steps: int = Maximise.max_iterations,
) -> Steps[tuple[Array, float, bool]]:
    """Return the best point `(D,)` that gradients find from snapped candidates `(S, D)`, and its value.

    Returns
    -------
    The point, snapped; its value; whether it keeps its distance from `avoid`, which no candidate may.
    """
    axes, columns = space.continuous
    # Inactive parameters do not move: snapping would undo their moves and change the value.
    active = space.active(candidates)[:, axes]
    movable = None if active.all() else active
    best: Maximum = yield Maximise(
        function, space.features(candidates), columns, avoid, min_distance, movable, max_steps
    )
    point = candidates[best.start].copy()
    point[axes] = best.x[columns]
    return space.snap(point[None, :])[0], best.value, best.avoided


def _neighbours(space: SearchSpace, point: Array) -> Array:
    """Return the points `(k, D)` that differ from a point by 1, 2, 4, ... values of one Int or Ordinal."""
    rows = []
    for axis, parameter in enumerate(space.parameters.values()):
        if not isinstance(parameter, Int | Ordinal):
            continue
        index = int(parameter.bin_of(point[axis : axis + 1])[0])
        steps = 2 ** np.arange(max(1, (parameter.num_values - 1).bit_length()))
        moved = index + np.concatenate([-steps, steps])
        moved = moved[(moved >= 0) & (moved < parameter.num_values)]
        block = np.repeat(point[None, :], len(moved), axis=0)
        block[:, axis] = parameter.centre_of(moved)
        rows.append(block)
    return space.snap(np.concatenate(rows)) if rows else np.empty((0, space.dimension))
