"""FedEx: tune the clients' hyperparameters while the model trains [Khodak2021, Alg. 2].

`FedEx` stands around any strategy of Flower's message API. In every round it draws a configuration for each
client from one distribution, puts it into the `config` record of the client's training message, and after the
round moves the distribution toward configurations with which clients reached a small validation loss. The
model is shared by all of them, so one training run tunes. The clients need no change if they report, in the
metrics of `@app.train()`, the loss on held-out rows after training.

    strategy = FedEx(FedAvg(), space, center={"learning-rate": 0.1, "local-epochs": 2}, loss="val-loss")
    strategy.start(grid, arrays, num_rounds=50)
    strategy.best_config

The formulas are in `studies.tuning.exponentiated_gradient`, and what we chose where the paper leaves a
choice in `docs/papers/fedex.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import INFO

import numpy as np
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms import check_integer, check_number
from fbo_flower.algorithms.options import check_choice
from fbo_flower.errors import ConfigError
from fbo_flower.federated import Bounds
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import Config, SearchSpace
from studies.tuning.exponentiated_gradient import STEP_SIZES, Distribution
from studies.tuning.per_client import PerClient


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
