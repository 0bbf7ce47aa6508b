"""Maximise an acquisition over a search space: candidates, then climbing, then changes of discrete values.

The candidates are points spread over the space (half of them with coordinates on the bounds, where good
hyperparameters often are) and variations of a few centres, such as the incumbent. The best candidates climb
in the continuous coordinates, within the bounds. Then single discrete parameters of the winner change as long
as that improves it.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.requests import Evaluate, Steps, alone
from fbo_flower.algorithms.search import climbed
from fbo_flower.numerics.aggregation.portfolio import cube_points
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.space.parameters import Categorical, Float
from fbo_flower.space.space import SearchSpace

MAX_STEPS = 20  # of climbing
NEAR, FAR = 0.02, 0.1  # standard deviations of variations, in the unit cube
NUM_VARIATIONS = 64
LEAST_CHANGED = 0.2  # least probability that a variation changes a coordinate
MAX_EXCHANGES = 4  # rounds of changing one discrete parameter
INTEGER_STEPS = (-8, -4, -2, -1, 1, 2, 4, 8)


def best_point(
    function: Differentiable,
    space: SearchSpace,
    seen: Array,
    centres: Array,
    num_candidates: int,
    min_distance: float,
    rng: np.random.Generator,
) -> Array:
    """Return the best point found, at a distance from all points seen if any candidate is.

    Parameters
    ----------
    function : of features `(F,)`, with its gradient
    seen : `(n, D)`, evaluated points in the unit cube
    centres : `(k, D)`, points that are varied and added to the candidates; `k` may be 0
    num_candidates : number of points spread over the space
    min_distance : smallest distance to a point seen, in the unit cube of features; 0 allows repeats

    Returns
    -------
    `(1, D)`, snapped to the space
    """
    return alone(searching(function, space, seen, centres, num_candidates, min_distance, rng))


def searching(
    function: Differentiable,
    space: SearchSpace,
    seen: Array,
    centres: Array,
    num_candidates: int,
    min_distance: float,
    rng: np.random.Generator,
) -> Steps[Array]:
    """Return `best_point` as steps."""
    spread = cube_points(num_candidates, space.dimension, rng)
    candidates = space.snap(np.concatenate([spread, centres, variations(space, centres, rng)]))
    avoid = space.features(seen)
    point, found, apart = yield from climbed(function, space, candidates, avoid, min_distance, MAX_STEPS)
    value = found if apart else -np.inf
    exchanged, best = point, value
    for _ in range(MAX_EXCHANGES):
        near = neighbours(space, exchanged)
        if len(near) == 0:
            break
        values = yield from _values(function, space, near, avoid, min_distance)
        if values.max() <= best:
            break
        exchanged, best = near[int(np.argmax(values))], float(values.max())
    if best > value:
        start = exchanged[None, :]
        point, _, _ = yield from climbed(function, space, start, avoid, min_distance, MAX_STEPS)
    return point[None, :]


def variations(space: SearchSpace, centres: Array, rng: np.random.Generator) -> Array:
    """Return about `NUM_VARIATIONS` points `(v, D)` around the centres `(k, D)`, in the unit cube.

    A changed continuous coordinate moves by a normal step. A changed discrete one moves by a normal step of
    one bin's width, or is drawn anew.
    """
    if len(centres) == 0:
        return centres
    each = -(-NUM_VARIATIONS // len(centres))
    around = np.repeat(centres, each, axis=0)
    count, dimension = around.shape
    width = np.where(rng.random((count, 1)) < 0.5, NEAR, FAR)
    step = np.broadcast_to(width, around.shape).copy()
    anew = np.zeros(around.shape, dtype=np.bool_)
    for axis, parameter in enumerate(space.parameters.values()):
        if not isinstance(parameter, Float):
            step[:, axis] = 1.0 / parameter.num_values
            anew[:, axis] = rng.random(count) < 0.5
    moved = np.where(anew, rng.random(around.shape), around + step * rng.standard_normal(around.shape))
    changes = rng.random(around.shape) < max(LEAST_CHANGED, min(1.0, 3.0 / dimension))
    return np.asarray(np.clip(np.where(changes, moved, around), 0.0, 1.0), dtype=np.float64)


def neighbours(space: SearchSpace, point: Array) -> Array:
    """Return the points `(v, D)` that differ from `point (D,)` in one active discrete parameter."""
    active = space.active(point[None, :])[0]
    found = []
    for axis, parameter in enumerate(space.parameters.values()):
        if isinstance(parameter, Float) or not active[axis]:
            continue
        index, count = int(parameter.bin_of(point[axis : axis + 1])[0]), parameter.num_values
        steps = range(-index, count - index) if isinstance(parameter, Categorical) else INTEGER_STEPS
        others = np.array([index + s for s in steps if s != 0 and 0 <= index + s < count], dtype=np.int64)
        changed = np.repeat(point[None, :], len(others), axis=0)
        if len(others):
            changed[:, axis] = parameter.centre_of(others)
            found.append(changed)
    return space.snap(np.concatenate(found)) if found else np.empty((0, space.dimension))


def _values(
    function: Differentiable, space: SearchSpace, points: Array, avoid: Array, min_distance: float
) -> Steps[Array]:
    """Return the function at snapped points `(v, D)`, `-inf` at those that are too close to points seen."""
    features = space.features(points)
    squares = ((features[:, None, :] - avoid[None, :, :]) ** 2).sum(axis=2)
    close = squares.min(axis=1, initial=np.inf) < min_distance**2
    values: Array = yield Evaluate(function, features)
    return np.where(close, -np.inf, values)
