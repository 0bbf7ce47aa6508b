"""Maximise a function of features over a search space with categories, integers and conditions.

Candidates are scored, the best ones climb in the continuous coordinates, and then single discrete parameters
of the winner change as long as that improves it. `maximise` takes Sobol points as candidates. `search`,
for acquisition functions whose maxima are narrow and near good points, takes points that are spread over the
space (half of them with coordinates on the bounds, where good hyperparameters often are) and variations of a
few centres, such as the incumbent. `farthest` is for an agent whose values tell nothing yet.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.requests import Evaluate, Maximise, compute
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.optim.maximise import keeps_distance
from fbo_flower.numerics.optim.sobol import cube_points, sobol
from fbo_flower.numerics.surrogates import gp
from fbo_flower.space.parameters import Categorical, is_continuous
from fbo_flower.space.space import SearchSpace

MAX_MOVES = 50  # of integers, in `maximise`
MAX_STEPS = 20  # of climbing in `search`
MAX_EXCHANGES = 4  # of one discrete parameter, in `search`
MOST_CHOICES = 256  # of a category, from which on such an exchange tries only some
FARTHEST = 8  # values by which such an exchange moves an integer
NEAR, FAR = 0.02, 0.1  # standard deviations of variations, in the unit cube
NUM_VARIATIONS = 64
NUM_UNIFORM = 512  # points of which `farthest` takes one
LEAST_CHANGED = 0.2  # least probability that a variation changes a coordinate


def maximise(
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
        Continuous ones follow the gradient anyway, and a category keeps the candidate's value

    Returns
    -------
    `(1, D)`, snapped to the space
    """
    candidates = space.snap(sobol(num_candidates, space.dimension, rng))
    avoid = space.features(seen)
    point, value, keeps_distance = climb(function, space, candidates, avoid, min_distance)
    if integer_moves:
        avoid = avoid if keeps_distance else avoid[:0]
        for _ in range(MAX_MOVES):
            near = neighbours(space, point)
            if not len(near):
                break
            moved, better, apart = climb(function, space, near, avoid, min_distance)
            if not apart or better <= value:
                break
            point, value = moved, better
    return point[None, :]


def search(
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
    function, seen, min_distance : as in `maximise`
    centres : `(k, D)`, points that are varied and added to the candidates; `k` may be 0
    num_candidates : number of points spread over the space

    Returns
    -------
    `(1, D)`, snapped to the space
    """
    spread = cube_points(num_candidates, space.dimension, rng)
    candidates = space.snap(np.concatenate([spread, centres, variations(space, centres, rng)]))
    avoid = space.features(seen)
    point, found, apart = climb(function, space, candidates, avoid, min_distance, MAX_STEPS)
    value = found if apart else -np.inf
    exchanged, best = point, value
    tried = np.concatenate([seen, candidates])
    for _ in range(MAX_EXCHANGES):
        near = neighbours(space, exchanged, FARTHEST, tried)
        if len(near) == 0:
            break
        features = space.features(near)
        values = compute(Evaluate(function, features))
        values = np.where(keeps_distance(features[None], avoid[None], min_distance)[0], values, -np.inf)
        if values.max() <= best:
            break
        exchanged, best = near[int(np.argmax(values))], float(values.max())
    if best > value:
        start = exchanged[None, :]
        point, _, _ = climb(function, space, start, avoid, min_distance, MAX_STEPS)
    return point[None, :]


def farthest(space: SearchSpace, seen: Array, rng: np.random.Generator) -> Array:
    """Return the uniform point `(1, D)` of many that is farthest from all points seen, and from the surface.

    This is where an agent learns most of a function of which it knows nothing. The distance to the surface of
    the cube counts twice; categories and fixed parameters have no surface.

    Parameters
    ----------
    seen : `(n, D)`, evaluated points
    """
    points = space.snap(rng.random((NUM_UNIFORM, space.dimension)))
    ones = np.ones(space.dimension)
    squares = gp.squared_distances(space.features(points), space.features(seen), ones)
    free = np.ptp(points, axis=0) > 0.0
    free[space.categorical] = False
    depth = np.minimum(points, 1.0 - points)[:, free].min(axis=1, initial=np.inf)
    scores = np.minimum(np.sqrt(squares.min(axis=1, initial=np.inf)), 2.0 * depth)
    return points[[int(np.argmax(scores))]]


def climb(
    function: Differentiable,
    space: SearchSpace,
    candidates: Array,
    avoid: Array,
    min_distance: float,
    max_steps: int = Maximise.max_iterations,
) -> tuple[Array, float, bool]:
    """Return the best point `(D,)` that gradients find from snapped candidates `(S, D)`, and its value.

    Returns
    -------
    The point, snapped; its value; whether it keeps its distance from `avoid`, which no candidate may.
    """
    axes = space.continuous
    # Inactive parameters do not move: snapping would undo their moves and change the value.
    active = space.active(candidates)[:, axes]
    movable = None if active.all() else active
    features = space.features(candidates)
    best = compute(Maximise(function, features, axes, avoid, min_distance, movable, max_steps))
    point = candidates[best.start].copy()
    point[axes] = best.x[axes]
    return space.snap(point[None, :])[0], best.value, best.avoided


def neighbours(
    space: SearchSpace, point: Array, farthest: int | None = None, tried: Array | None = None
) -> Array:
    """Return the points `(v, D)` that differ from `point (D,)` in one active discrete parameter.

    An Int or Ordinal moves by 1, 2, 4, ... values.

    Parameters
    ----------
    farthest : most values by which it moves; None: all
    tried : `(k, D)`, points from which a category with more than `MOST_CHOICES` takes its other choices;
        with fewer it changes to each. None: categories do not change
    """
    active = space.active(point[None, :])[0]
    found = []
    for axis, parameter in enumerate(space.parameters.values()):
        if is_continuous(parameter) or not active[axis]:
            continue
        index, count = int(parameter.bin_of(point[axis : axis + 1])[0]), parameter.num_values
        if isinstance(parameter, Categorical):
            if tried is None:
                continue
            few = count <= MOST_CHOICES
            others = np.arange(count) if few else np.unique(parameter.bin_of(tried[:, axis]))
            others = others[others != index]
        else:
            steps = 2 ** np.arange(max(1, (count - 1).bit_length()))
            steps = steps[: None if farthest is None else farthest.bit_length()]
            others = index + np.concatenate([-steps[::-1], steps])
            others = others[(others >= 0) & (others < count)]
        changed = np.repeat(point[None, :], len(others), axis=0)
        changed[:, axis] = parameter.centre_of(others)
        found.append(changed)
    return space.snap(np.concatenate(found)) if found else np.empty((0, space.dimension))


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
        if not is_continuous(parameter):
            step[:, axis] = 1.0 / parameter.num_values
            anew[:, axis] = rng.random(count) < 0.5
    moved = np.where(anew, rng.random(around.shape), around + step * rng.standard_normal(around.shape))
    changes = rng.random(around.shape) < max(LEAST_CHANGED, min(1.0, 3.0 / dimension))
    return np.asarray(np.clip(np.where(changes, moved, around), 0.0, 1.0), dtype=np.float64)
