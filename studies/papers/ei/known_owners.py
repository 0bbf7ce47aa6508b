"""The upper bound of `fed-ei`: a multi-task Gaussian process on all observations, with known owners.

All agents' points, values and names are in one place. The covariance of two values is
`(rho + (1 - rho) [same agent]) k(x, x') + s2 [same value]`, with values in the units of `fed-ei`.
Lengthscales are fitted to all rows, `rho` and `s2` are the best of a grid by likelihood. Each agent maximises
expected improvement over its own values, from the candidates and with the climb of `ei`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.algorithms.search import search
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.acquisition.expected_improvement import excess_ratios
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.linalg import cholesky
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp, trend
from fbo_flower.numerics.surrogates.transforms import winsorise
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import Problem

KERNEL = "matern52"
SHARES, NOISES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97), (1e-3, 3e-2, 0.2)
NUM_INITIAL, NUM_CANDIDATES, MIN_DISTANCE = 2, 256, 1e-3


@dataclass(frozen=True)
class Improvement:
    """`log EI` of one agent, a `Differentiable`; its covariances with the rows are `weights k + levels`."""

    x: Array
    lengthscales: Array
    weights: Array
    levels: Array
    alpha: Array
    inverse: Array
    best: float
    variance: float

    def __call__(self, z: Array, /) -> Array:
        return self.value_and_gradient(z)[0]

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)`."""
        k, slope = gp.profile_and_slope(KERNEL, gp.squared_distances(z, self.x, self.lengthscales))
        k, slope = k * self.weights + self.levels, slope * self.weights
        projected = k @ self.inverse
        stddev = np.sqrt(np.maximum(self.variance - (k * projected).sum(axis=1), 1e-10))
        log_h, density, probability = excess_ratios((k @ self.alpha - self.best) / stddev)
        pull = slope * (
            (probability / stddev)[:, None] * self.alpha - (density / stddev**2)[:, None] * projected
        )
        gradient = (pull @ self.x - z * pull.sum(axis=1)[:, None]) / self.lengthscales**2
        return np.log(stddev) + log_h, gradient


def best_points(problem: Problem, seed: int, budget: int) -> tuple[list[Array], list[Array]]:
    """Return every agent's points `(budget, D)` and values `(budget,)`."""
    space, agents = problem.space, range(problem.num_agents)
    points: list[list[Array]] = [[] for _ in agents]
    values: list[list[float]] = [[] for _ in agents]
    theta: Array | None = None
    with single_thread():
        for trial in range(budget):
            proposals: list[Array] = []
            if trial >= NUM_INITIAL:
                proposals, theta = _proposals(problem, points, values, theta, seed, trial)
            for agent in agents:
                if trial < NUM_INITIAL:  # the points that all algorithms of the package begin with
                    rng = generator(seed, "agent", str(agent), "propose", "train", trial)
                    point = space.snap(rng.random((1, space.dimension)))[0]
                else:
                    point = proposals[agent]
                draws = generator(seed, "agent", str(agent), "objective", trial)
                context = ObjectiveContext(str(agent), agent, trial, trial, draws)
                points[agent].append(point)
                values[agent].append(float(problem(space.decode(point), context)))
    return [np.array(p) for p in points], [np.array(v) for v in values]


def _proposals(
    problem: Problem,
    points: list[list[Array]],
    values: list[list[float]],
    theta: Array | None,
    seed: int,
    trial: int,
) -> tuple[list[Array], Array]:
    space, agents = problem.space, range(problem.num_agents)
    draws = generator(seed, "known owners", "level")
    firsts = [trend.level_sums(np.array(v[:NUM_INITIAL]), draws) for v in values]
    level = trend.Level.of(np.sum(firsts, axis=0), NUM_INITIAL)
    x = [space.features(np.array(p)) for p in points]
    scales = np.full(space.dimension, 0.3 * space.breadth**0.5) if theta is None else np.exp(theta[:-2])
    units = [level.standardise(x[a], winsorise(np.array(values[a])), scales) for a in agents]
    y, tau = [z for z, _ in units], units[0][1]
    rows, z = np.concatenate(x), np.concatenate(y)
    owners = np.repeat(list(agents), trial)
    theta = trend.fitted_lengthscales(rows, z, theta)
    scales = np.exp(theta[:-2])
    k = gp.kernel(KERNEL, rows, rows, scales)
    same = owners[:, None] == owners[None, :]
    best: tuple[float, float, Any] | None = None
    for share in SHARES:
        for noise in NOISES:
            covariance = np.where(same, k + tau, share * k)
            covariance.flat[:: len(z) + 1] += noise
            factor = cholesky(covariance)
            fit = -0.5 * (float(z @ factor.solve(z)) + factor.log_determinant())
            if best is None or fit > best[0]:
                best = fit, share, factor
    assert best is not None
    _, share, factor = best
    alpha, inverse = factor.solve(z), factor.inverse()
    found = []
    for agent in agents:
        weights = np.where(owners == agent, 1.0, share)
        means = (np.where(same, k + tau, share * k) @ alpha)[owners == agent]
        top = int(np.argmax(means))
        others = np.argsort(-np.where(owners == agent, -np.inf, z))[: min(16, problem.num_agents)]
        every = np.concatenate([np.array(p) for p in points])
        centres = np.concatenate([np.array(points[agent])[[top]], every[others]])
        levels = np.where(owners == agent, tau, 0.0)
        function = Improvement(rows, scales, weights, levels, alpha, inverse, float(means[top]), 1.0 + tau)
        rng = generator(seed, "known owners", agent, trial)
        seen = np.array(points[agent])
        found.append(search(function, space, seen, centres, NUM_CANDIDATES, MIN_DISTANCE, rng)[0])
    return found, theta
