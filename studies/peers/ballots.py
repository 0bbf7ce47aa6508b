"""The list of configurations that agents vote on, and an agent's votes."""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.records import Array, History, IntArray
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import SearchSpace


def listed_points(space: SearchSpace, num_configs: int, seed: int) -> Array:
    """Return the points `(P, D)` of the list, spread over the space; a small discrete space repeats some."""
    return space.snap(sobol(num_configs, space.dimension, generator(seed, "listed configurations")))


def first_places(points: Array) -> IntArray:
    """Return for each point `(P, D)` the first place in the list where it stands, `(P,)`.

    >>> first_places(np.array([[0.5], [0.1], [0.5]])).tolist()
    [0, 1, 0]
    """
    _, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.reshape(-1)], dtype=np.int64)


def votes(history: History, points: Array, num_votes: int) -> Array:
    """Return an agent's votes `(P,)`: 1 for each of its best `num_votes` configurations, else 0.

    A trial's place in the list is its id. A configuration that was evaluated more than once counts with the
    mean of its values, at its first place. Failed evaluations get no vote; in a tie the earlier place wins.
    """
    places = first_places(points)
    total, count = np.zeros(len(points)), np.zeros(len(points))
    rows = (history.trials >= 0) & (history.trials < len(points)) & np.isfinite(history.values)
    at = places[history.trials[rows]]
    # values near the largest float would overflow in a sum
    scale = max(float(np.abs(history.values[rows]).max(initial=0.0)), 1e-300)
    np.add.at(total, at, history.values[rows] / scale)
    np.add.at(count, at, 1.0)
    known = np.flatnonzero(count)
    means = total[known] / count[known]
    chosen = known[np.argsort(-means, kind="stable")[:num_votes]]
    ballot = np.zeros(len(points))
    ballot[chosen] = 1.0
    return ballot
