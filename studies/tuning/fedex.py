"""FedEx: tune the clients' hyperparameters while the model trains [Khodak2021, Alg. 2].

In every round `FedEx` draws a configuration for each client from one distribution, and after the round moves
the distribution toward configurations with which clients reached a small validation loss. The model is shared
by all of them, so one training run tunes.

    strategy = FedEx(FedAvg(), space, center={"learning-rate": 0.1, "local-epochs": 2}, loss="val-loss")
    strategy.start(grid, arrays, num_rounds=50)
    strategy.best_config

What we chose where the paper leaves a choice is in `docs/papers/fedex.md`.

`theta (k,)` is the distribution over `k` configurations. In a round, client `i` draws `c_i ~ theta`, trains
with it, and reports its validation loss `L_i` and the number `n_i` of rows that it has judged with. Then

    g_j = sum_i n_i (L_i - lambda) 1[c_i = j] / (theta_j sum_i n_i)      (Alg. 2: the gradient's estimate)
    theta_j <- theta_j exp(-eta g_j) / sum_l theta_l exp(-eta g_l)       (Alg. 2: exponentiated update)

`lambda` is a baseline that lowers the variance of `g` without moving its mean: a discounted mean of the
losses of earlier rounds. The step size is `eta = sqrt(2 log k) / d` with, by the schedule's name,

    "aggressive"  d = |g|_inf                      "adaptive"  d = sqrt(sum over rounds of |g|_inf^2)
    "sqrt"        d = sqrt(number of the round)    "constant"  d = 1

All is computed with logarithms of `theta`. No probability falls below `LEAST`, so that `g` stays finite.

[Khodak2021] Khodak, Tu, Li, Li, Balcan, Smith, Talwalkar. Federated hyperparameter tuning: challenges,
baselines, and connections to weight-sharing. NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from logging import INFO
from typing import Any

import numpy as np
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms import check_integer, check_number
from fbo_flower.algorithms.options import check_choice
from fbo_flower.algorithms.records import natural_key
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import Config, SearchSpace
from studies.tuning.per_client import PerClient

LEAST = 1e-12  # probability below which a choice does not fall
STEP_SIZES = ("aggressive", "adaptive", "sqrt", "constant")


@dataclass(frozen=True)
class Distribution:
    """A distribution over choices, and what its step size depends on.

    Attributes
    ----------
    log_theta : `(k,)`, logarithms of the probabilities
    losses : `(t,)`, weighted mean loss of every round so far
    squares : sum of `|g|_inf^2` over the rounds so far
    """

    log_theta: Array
    losses: Array
    squares: float = 0.0

    @staticmethod
    def uniform(num_choices: int) -> Distribution:
        """Return the uniform distribution."""
        return Distribution(np.full(num_choices, -math.log(num_choices)), np.empty(0))

    @property
    def theta(self) -> Array:
        """Probabilities `(k,)`."""
        return np.asarray(np.exp(self.log_theta) / np.exp(self.log_theta).sum())

    @property
    def entropy(self) -> float:
        """Entropy in nats; `log k` at first, 0 when a single choice is left."""
        return float(-(self.theta * self.log_theta).sum())

    def update(
        self, choices: IntArray, losses: Array, weights: Array, step_size: str, discount: float
    ) -> Distribution:
        """Return the distribution after a round.

        Parameters
        ----------
        choices, losses, weights : `(n,)`, of the clients that answered
        """
        past = np.power(discount, np.arange(len(self.losses))[::-1])
        baseline = float(past @ self.losses / past.sum()) if len(past) else 0.0  # lambda
        shares = weights / weights.sum()
        parts = shares * (losses - baseline) / self.theta[choices]
        g = np.asarray(np.bincount(choices, parts, minlength=len(self.log_theta)), dtype=np.float64)
        largest = float(np.abs(g).max())
        squares = self.squares + largest**2
        divisor = {
            "aggressive": largest, "adaptive": math.sqrt(squares),
            "sqrt": math.sqrt(len(self.losses) + 1), "constant": 1.0,
        }[step_size]  # fmt: skip
        eta = math.sqrt(2.0 * math.log(len(g))) / divisor if divisor > 0.0 else 0.0
        z = self.log_theta - eta * g
        z -= z.max()
        z = np.maximum(z - math.log(np.exp(z).sum()), math.log(LEAST))
        return Distribution(z, np.append(self.losses, shares @ losses), squares)


class FedEx(PerClient):
    """Exponentiated gradient over configurations of the clients; `PerClient` describes the other settings.

    Parameters
    ----------
    configs : the configurations to choose from; None: `num_configs` of them, drawn around `center` or,
        without a center, from the whole space
    center : a configuration; it is always among those that are drawn
    num_configs : `k`
    radius : a drawn configuration differs from the center by at most this in every coordinate of the unit
        cube
    step_size : "aggressive", "adaptive", "sqrt" or "constant"
    discount : of the baseline: 0: the last round's loss, 1: the mean over all rounds
    cutoff : entropy in nats at which the distribution is fixed at its best configuration
    """

    def __init__(
        self, strategy: Strategy, space: SearchSpace, *, configs: Sequence[Config] | None = None,
        center: Config | None = None, num_configs: int = 27, radius: float = 0.1,
        step_size: str = "adaptive", discount: float = 0.0, cutoff: float = 1e-4, **others: Any,
    ) -> None:  # fmt: skip
        check_integer("num_configs", num_configs, 1)
        check_number("radius", radius, 0.0, 1.0)
        check_number("discount", discount, 0.0, 1.0)
        check_number("cutoff", cutoff, 0.0)
        check_choice("step_size", step_size, STEP_SIZES)
        super().__init__(strategy, space, **others)
        self.step_size, self.discount, self.cutoff = step_size, discount, cutoff
        if configs is not None:
            points = np.array([space.encode(config) for config in configs])
        else:
            rng, size = generator(self.seed, "fedex", "configs"), (num_configs, space.dimension)
            if center is None:
                points = rng.random(size)
            else:
                shifts = rng.uniform(-radius, radius, size)
                shifts[0] = 0.0
                points = np.clip(space.encode(center) + shifts, 0.0, 1.0)
            points = np.unique(space.snap(points), axis=0)
        if not len(points):
            raise ConfigError("configs: expected at least one configuration, got none")
        self.points = points
        self.state = Distribution.uniform(len(self.points))
        self.applied: dict[str, int] = {}  # node -> configuration of the round that is under way

    @property
    def configs(self) -> list[Config]:
        """The configurations to choose from."""
        return [self._space.decode(point) for point in self.points]

    @property
    def best_config(self) -> Config:
        """The most probable configuration."""
        return self._space.decode(self.points[int(np.argmax(self.state.log_theta))])

    def choose(self, server_round: int, nodes: Sequence[str]) -> Sequence[Config]:
        """Return a configuration for each client, drawn from the distribution until it is fixed."""
        chosen = np.full(len(nodes), np.argmax(self.state.log_theta))
        if self.state.entropy >= self.cutoff:
            rng = generator(self.seed, "fedex", "draw", server_round)
            chosen = rng.choice(len(self.points), len(nodes), p=self.state.theta)
        # by name, because strategies list their clients in an order of chance
        self.applied = dict(zip(sorted(nodes, key=natural_key), chosen.tolist(), strict=True))
        return [self._space.decode(self.points[self.applied[node]]) for node in nodes]

    def learn(self, server_round: int, nodes: Sequence[str], losses: Array, weights: Array) -> None:
        """Move the distribution toward configurations with small losses, until it is fixed."""
        if self.state.entropy < self.cutoff:
            return
        chosen = np.array([self.applied[node] for node in nodes], dtype=np.int64)
        self.state = self.state.update(chosen, losses, weights, self.step_size, self.discount)
        log(INFO, "[round %d] FedEx: entropy %.3f, best %s with probability %.2f", server_round,
            self.state.entropy, self.best_config, self.state.theta.max())  # fmt: skip
