"""Random arms: the server draws a seed, from which the server and all agents generate the same arms.

Arm `k` of `K` is a point of the unit cube, see `numerics.bandits.ucb.random_arms`. An agent stores its pulls
of each arm; messages carry the seed instead of `K D` coordinates.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import AgentState, Array
from fbo_flower.errors import WireError
from fbo_flower.numerics.bandits import ucb
from fbo_flower.numerics.bandits.pulls import Pulls

MAX_SEED = 2**53  # largest integer that every JSON reader represents exactly


def check_seed(seed: object) -> None:
    """Raise ConfigError unless `arms_seed` is None or an integer between 0 and `MAX_SEED`."""
    if seed is not None:
        check_number("arms_seed", seed, 0, MAX_SEED, integer=True)


def drawn_seed(seed: int | None, rng: np.random.Generator) -> int:
    """Return `seed`, or a random one if it is None."""
    return int(rng.integers(MAX_SEED)) if seed is None else seed


def checked_seed(seed: int) -> int:
    """Return the seed of the arms in a task; WireError if it is missing (-1) or out of range."""
    if not 0 <= seed <= MAX_SEED:
        raise WireError(f"arms_seed: expected an integer between 0 and {MAX_SEED}, got {seed!r}")
    return seed


def points(seed: int, dim: int) -> Array:
    """Return the points of all arms, `(K, D)`."""
    return ucb.random_arms(dim, np.random.default_rng([seed, 3]))


def num_arms(dim: int) -> int:
    """Return `K`, the number of arms."""
    return ucb.ARMS_ABOVE if dim > 2 else ucb.ARMS_PER_DIMENSION**dim


def read_pulls(agent_state: AgentState) -> Pulls:
    """Return the agent's pulls of the arms, `(K,)`, which it stores under "arms."."""
    return Pulls.read(agent_state.arrays, "arms.", num_arms(agent_state.space.dimension))


def recommended(agent_state: AgentState, pulls: Pulls, arm: int) -> tuple[Array, float]:
    """Return point `(D,)` and mean of an arm; the agent's state has the seed."""
    seed = int(np.sum(agent_state.arrays["seed"]))
    point: Array = points(seed, agent_state.space.dimension)[arm]
    return point, float(pulls.means()[arm])
