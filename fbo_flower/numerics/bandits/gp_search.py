"""GP-UCB for few evaluations: the times of exchanges, the first points, and the choice of a point.

The model is `numerics.aggregation.shared_mean`. An agent evaluates the point with the largest upper bound
`mean + 2 sd` [Srinivas2010]. All agents' first points are one Sobol sequence, so that together they cover the
cube.

[Srinivas2010] Srinivas et al. Gaussian process optimization in the bandit setting. ICML 2010.
"""

from __future__ import annotations

import math

import numpy as np

from fbo_flower.numerics.aggregation.shared_mean import Belief
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import sobol

DEVIATIONS = 2.0  # sqrt(beta)
MAX_POINTS = 256  # different points of one agent; after that it repeats the best of them
NUM_CANDIDATES, NUM_STARTS, NUM_NEAR = 512, 4, 24
STEPS = (0.4, 0.1, 0.03)  # of the points near a start, relative to the lengthscale


def design_size(dim: int, num_agents: int) -> int:
    """Return the number of an agent's first points: all agents together have at least `4 (D + 1)`."""
    return max(2, math.ceil(4 * (dim + 1) / num_agents))


def next_exchange(num_pulls: int) -> int:
    """Return the number of pulls per agent at the exchange after the one at `num_pulls`: a quarter more."""
    return num_pulls + max(1, num_pulls // 4)


def design(dim: int, num_agents: int, place: int, first: int, count: int, seed: int) -> Array:
    """Return points `first .. first + count - 1` of the agent at `place`, `(count, D)`."""
    points = sobol((first + count) * num_agents, dim, np.random.default_rng(seed))
    return np.asarray(points[first * num_agents :][place::num_agents], dtype=np.float64)


def choose(belief: Belief, rng: np.random.Generator) -> Array:
    """Return the point `(D,)` with the largest upper bound found: Sobol points, then points near the best."""
    dim, x = belief.model.dim, belief.x
    if len(x) >= MAX_POINTS:
        return np.asarray(x[int(np.argmax(_bound(belief, x)))], dtype=np.float64)
    candidates = sobol(NUM_CANDIDATES, dim, rng)
    if len(x):
        best = x[np.argsort(-belief.predict(x)[0], kind="stable")[:NUM_STARTS]]
        candidates = np.concatenate([candidates, best, _near(best, STEPS[0] * belief.model.lengthscale, rng)])
    bound = _bound(belief, candidates)
    for step in STEPS:
        starts = candidates[np.argsort(-bound, kind="stable")[:NUM_STARTS]]
        near = _near(starts, step * belief.model.lengthscale, rng)
        candidates = np.concatenate([candidates, near])
        bound = np.concatenate([bound, _bound(belief, near)])
    return np.asarray(candidates[int(np.argmax(bound))], dtype=np.float64)


def _near(points: Array, stddev: float, rng: np.random.Generator) -> Array:
    """Return `NUM_NEAR` normal draws around each point, within the cube."""
    steps = stddev * rng.standard_normal((NUM_NEAR, *points.shape))
    return np.asarray(np.clip(points + steps, 0.0, 1.0).reshape(-1, points.shape[1]), dtype=np.float64)


def _bound(belief: Belief, z: Array) -> Array:
    mean, variance = belief.predict(z)
    return np.asarray(mean + DEVIATIONS * np.sqrt(variance), dtype=np.float64)
