"""Sums of `fed-ei` with differential privacy for each agent: what an agent adds, and how a noisy sum is read.

With noise an agent sends `M + 2` numbers in place of the large sums, divided by its number of observations
`t` and clipped to norm 1,

    u = clip_1([Phi^T y / t, clip_(1/2)([sum m y, sum m^2] / t)]).

Two agents' `u` differ by at most 2. Each agent adds discrete Gaussian noise of standard deviation
`2 z / sqrt(k)` to every number, where `k` is the smallest number of agents in a sum. So the noise on a sum is
at least `2 z`: a Gaussian mechanism with multiplier `z` for one agent with all its observations, if all
agents of the sum add their noise. If only the agent itself does, the multiplier is `z / sqrt(k)`.

`Phi^T Phi` is not sent: it would need noise on `M^2 / 2` numbers. Its mean over the search space takes its
place (`numerics.surrogates.trend.filtered_weights`).
"""

from __future__ import annotations

import math

import numpy as np

from fbo_flower.algorithms.records import Array, Task, floats
from fbo_flower.numerics.discrete_noise import Uniform
from fbo_flower.numerics.noise_grid import add_noise, grid_step, to_steps
from fbo_flower.numerics.privacy import clip_norm
from fbo_flower.numerics.surrogates.trend import noisy_federation_weight

BOUND = 1.0  # largest norm of what an agent adds
TESTED_BOUND = 0.5  # of the two numbers in it, so that a trend that overshoots does not shrink the others
SENSITIVITY = 2 * BOUND  # another agent's part in place of this one


def contribution(moment: Array, tested: Array, num_observations: int) -> Array:
    """Return `u (M + 2,)` without noise: `moment (M,)` and `tested (2,)` per observation, clipped."""
    count = max(num_observations, 1)
    return clip_norm(np.concatenate([moment / count, clip_norm(tested / count, TESTED_BOUND)]), BOUND)


def own_stddev(noise_multiplier: float, least: int) -> float:
    """Return the standard deviation of an agent's noise; `least` agents together reach the multiplier."""
    return SENSITIVITY * noise_multiplier / math.sqrt(max(least, 1))


def with_noise(part: Array, noise_multiplier: float, least: int, uniform: Uniform) -> Array:
    """Return an agent's part on the fixed-point grid, with its noise."""
    step = grid_step(BOUND, noise_multiplier)
    return add_noise(to_steps(part, step), own_stddev(noise_multiplier, least), step, uniform)


def federation_weight_of(task: Task, noise_multiplier: float, least: int) -> float:
    """Return `a_0` from noisy sums of `agreement` per observation."""
    num_agents, num_observations = sizes(task)
    scale = num_observations / num_agents
    stddev = own_stddev(noise_multiplier, least) * math.sqrt(num_agents)
    return noisy_federation_weight(floats(task.arrays["agreement"]) * scale, stddev * scale)


def sizes(task: Task) -> tuple[int, int]:
    """Return the numbers of agents and of observations in the sums, at least 1."""
    num_agents = max(int(task.values["summed"]), 1)
    return num_agents, max(int(task.values["observed"]), num_agents)
