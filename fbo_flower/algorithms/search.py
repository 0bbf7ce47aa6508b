"""Maximise a function of features over a search space with categories, integers and conditions."""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.numerics.optim.functions import ActiveOnly, Differentiable
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.space.space import SearchSpace


def maximiser(
    function: Differentiable,
    space: SearchSpace,
    seen: Array,
    num_candidates: int,
    min_distance: float,
    rng: np.random.Generator,
) -> Array:
    """Return the point that maximises a function of the features, at a distance from all points seen.

    Parameters
    ----------
    function : of features `(F,)`, with its gradient
    seen : `(n, D)`, evaluated points in the unit cube
    num_candidates : Sobol points from which the maximisation starts
    min_distance : smallest distance to a point seen, in the unit cube of features; 0 allows repeats

    Returns
    -------
    `(1, D)`, snapped to the space
    """
    candidates = space.snap(sobol(num_candidates, space.dimension, rng))
    axes, columns = space.continuous
    features = space.features(candidates)
    active = space.active(candidates)[:, axes]
    if not active.all():
        function = ActiveOnly(function, columns, features, active)
    avoid = space.features(seen)
    best = maximise(function, features, columns, avoid=avoid, min_distance=min_distance)
    point = candidates[best.start].copy()
    point[axes] = best.x[columns]
    return space.snap(point[None, :])
