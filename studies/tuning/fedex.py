"""FedEx: tune the clients' hyperparameters while the model trains [Khodak2021, Alg. 2].

`FedEx` stands around any strategy of Flower's message API. In every round it draws a configuration for each
client from one distribution, puts it into the `config` record of the client's training message, and after the
round moves the distribution toward configurations with which clients reached a small validation loss. The
model is shared by all of them, so one training run tunes. The clients need no change if they report, in the
metrics of `@app.train()`, the loss on held-out rows after training.

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

import numpy as np
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms import check_integer, check_number
from fbo_flower.algorithms.options import check_choice
from fbo_flower.errors import ConfigError
from fbo_flower.federated import Bounds
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
        probabilities: Array = np.exp(self.log_theta)
        return np.asarray(probabilities / probabilities.sum())

    @property
    def entropy(self) -> float:
        """Entropy in nats; `log k` at first, 0 when a single choice is left."""
        return float(-(self.theta * self.log_theta).sum())

    def draw(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw `(size,)` choices."""
        return rng.choice(len(self.log_theta), size, p=self.theta).astype(np.int64)

    def baseline(self, discount: float) -> float:
        """Return `lambda`: the mean of earlier rounds' losses with weights `discount^age`; 0 before any."""
        if not len(self.losses):
            return 0.0
        weights = np.power(discount, np.arange(len(self.losses))[::-1])
        return float(weights @ self.losses / weights.sum())

    def gradient(self, choices: IntArray, losses: Array, weights: Array, baseline: float) -> Array:
        """Return the estimate `g` `(k,)`.

        Parameters
        ----------
        choices, losses, weights : `(n,)`, of the clients that answered
        baseline : `lambda`
        """
        shares = weights / weights.sum()
        parts = shares * (losses - baseline) / self.theta[choices]
        found: Array = np.bincount(choices, parts, minlength=len(self.log_theta)).astype(np.float64)
        return found

    def update(
        self, choices: IntArray, losses: Array, weights: Array, step_size: str, discount: float
    ) -> Distribution:
        """Return the distribution after a round; without any answer it stays as it is."""
        if not len(choices):
            return self
        g = self.gradient(choices, losses, weights, self.baseline(discount))
        largest = float(np.abs(g).max())
        squares = self.squares + largest**2
        divisors = {
            "aggressive": largest,
            "adaptive": math.sqrt(squares),
            "sqrt": math.sqrt(len(self.losses) + 1),
            "constant": 1.0,
        }
        divisor = divisors[step_size]
        eta = math.sqrt(2.0 * math.log(len(g))) / divisor if divisor > 0.0 else 0.0
        z = self.log_theta - eta * g
        z -= z.max()
        z = np.maximum(z - math.log(np.exp(z).sum()), math.log(LEAST))
        mean = float(weights @ losses / weights.sum())
        return Distribution(z, np.append(self.losses, mean), squares)


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
        self,
        strategy: Strategy,
        space: SearchSpace,
        *,
        configs: Sequence[Config] | None = None,
        center: Config | None = None,
        num_configs: int = 27,
        radius: float = 0.1,
        loss: str = "val-loss",
        maximize: bool = False,
        step_size: str = "adaptive",
        discount: float = 0.0,
        cutoff: float = 1e-4,
        bounds: Bounds | None = None,
        seed: int = 0,
    ) -> None:
        check_integer("num_configs", num_configs, 1)
        check_number("radius", radius, 0.0, 1.0)
        check_number("discount", discount, 0.0, 1.0)
        check_number("cutoff", cutoff, 0.0)
        check_choice("step_size", step_size, STEP_SIZES)
        super().__init__(strategy, space, loss, maximize, bounds, seed)
        self.step_size, self.discount, self.cutoff = step_size, discount, cutoff
        if configs is not None:
            points = np.array([space.encode(config) for config in configs])
        else:
            points = drawn_points(space, center, num_configs, radius, seed)
        if not len(points):
            raise ConfigError("configs: expected at least one configuration, got none")
        self.points = points
        self.state = Distribution.uniform(len(points))
        self.applied: dict[str, int] = {}  # node -> configuration of the round that is under way

    @property
    def distribution(self) -> Array:
        """Probabilities `(k,)` of `configs`."""
        return self.state.theta

    @property
    def configs(self) -> list[Config]:
        """The configurations to choose from."""
        return [self._space.decode(point) for point in self.points]

    @property
    def best_config(self) -> Config:
        """The most probable configuration."""
        return self._space.decode(self.points[int(np.argmax(self.state.log_theta))])

    @property
    def learns(self) -> bool:
        """Return whether the distribution still moves."""
        return self.state.entropy >= self.cutoff

    def choices(self, server_round: int, size: int) -> Sequence[int]:
        """Return which configuration each message of a round gets, `(size,)`."""
        if not self.learns:
            return [int(np.argmax(self.state.log_theta))] * size
        rng = generator(self.seed, "fedex", "draw", server_round)
        found: list[int] = self.state.draw(size, rng).tolist()
        return found

    def choose(self, server_round: int, nodes: Sequence[str]) -> Sequence[Config]:
        """Return a configuration for each client, drawn from the distribution."""
        chosen = self.choices(server_round, len(nodes))
        self.applied = dict(zip(nodes, chosen, strict=True))
        return [self._space.decode(self.points[choice]) for choice in chosen]

    def learn(self, server_round: int, nodes: Sequence[str], losses: Array, weights: Array) -> None:
        """Move the distribution toward configurations with small losses."""
        if not nodes:
            return
        chosen = np.array([self.applied[node] for node in nodes], dtype=np.int64)
        self.state = self.state.update(chosen, losses, weights, self.step_size, self.discount)
        log(INFO, "[round %d] FedEx: entropy %.3f, best %s with probability %.2f", server_round,
            self.state.entropy, self.best_config, self.state.theta.max())  # fmt: skip

    def summary(self) -> None:
        """Log the settings."""
        log(INFO, "\t├──> FedEx over %d configurations, by %r", len(self.points), self.loss)
        super().summary()


def drawn_points(
    space: SearchSpace, center: Config | None, num_configs: int, radius: float, seed: int
) -> Array:
    """Return distinct points `(k, D)`: the center and others around it, or points of the whole space."""
    rng = generator(seed, "fedex", "configs")
    if center is None:
        points = rng.random((num_configs, space.dimension))
    else:
        middle = space.encode(center)
        shifts = rng.uniform(-radius, radius, (num_configs, space.dimension))
        shifts[0] = 0.0
        points = np.clip(middle + shifts, 0.0, 1.0)
    found: Array = np.unique(space.snap(points), axis=0)
    return found
