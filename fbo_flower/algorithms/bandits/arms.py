"""Random arms: the server draws a seed, from which the server and all agents generate the same arms.

Arm `k` of `K` is a point of the unit cube, see `numerics.bandits.ucb.random_arms`. An agent stores pulls and
sums per arm; messages carry the seed instead of `K D` coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.records import AgentState, Array, IntArray, Outcome
from fbo_flower.errors import WireError
from fbo_flower.numerics.bandits import ucb

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


@dataclass(frozen=True)
class ArmStatistics:
    """An agent's pulls of the arms.

    Parameters
    ----------
    count, total : `(K,)`, pulls that gave a value, and their sum
    """

    count: IntArray
    total: Array

    @staticmethod
    def read(agent_state: AgentState) -> ArmStatistics:
        """Return the statistics in the agent's state; zeros before the first pull."""
        zeros, arrays = np.zeros(num_arms(agent_state.space.dimension)), agent_state.arrays
        count = np.asarray(arrays.get("arms.count", zeros), dtype=np.int64)
        return ArmStatistics(count, np.asarray(arrays.get("arms.total", zeros), dtype=np.float64))

    def write(self, agent_state: AgentState) -> AgentState:
        """Return the agent's state with these statistics stored."""
        return agent_state.write(**{"arms.count": self.count, "arms.total": self.total})

    def add(self, arms: IntArray, outcome: Outcome) -> ArmStatistics:
        """Return the statistics with an outcome added whose rows are pulls of `arms (n,)`."""
        assert outcome.counts is not None
        count, total = self.count.copy(), self.total.copy()
        count[arms] += outcome.counts
        total[arms] += np.where(outcome.counts > 0, outcome.values * outcome.counts, 0.0)
        return ArmStatistics(count, total)

    def means(self) -> Array:
        """Return the mean of each arm, `(K,)`; 0 for an arm without a successful pull."""
        return np.asarray(self.total / np.maximum(1, self.count), dtype=np.float64)

    def best(self) -> int | None:
        """Return the arm with the best mean; None before the first success."""
        if not self.count.any():
            return None
        return int(np.argmax(np.where(self.count > 0, self.means(), -np.inf)))


def recommended(agent_state: AgentState, statistics: ArmStatistics, arm: int) -> tuple[Array, float]:
    """Return point `(D,)` and mean of an arm; the agent's state has the seed."""
    seed = int(np.sum(agent_state.arrays["seed"]))
    point: Array = points(seed, agent_state.space.dimension)[arm]
    return point, float(statistics.means()[arm])
