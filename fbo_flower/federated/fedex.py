"""FedEx: tune the clients' hyperparameters while the model trains [Khodak2021, Alg. 2].

`FedEx` stands around any strategy of Flower's message API. In every round it draws a configuration for each
client from one distribution, puts it into the `config` record of the client's training message, and after the
round moves the distribution toward configurations with which clients reached a small validation loss. The
model is shared by all of them, so one training run tunes. The clients need no change if they report, in the
metrics of `@app.train()`, the loss on held-out rows after training.

    strategy = FedEx(FedAvg(), space, center={"learning-rate": 0.1, "local-epochs": 2}, loss="val-loss")
    strategy.start(grid, arrays, num_rounds=50)
    strategy.best_config

The formulas are in `numerics.bandits.exponentiated_gradient`, and what we chose where the paper leaves a
choice in `docs/papers/fedex.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from logging import INFO

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.errors import ConfigError
from fbo_flower.federated.replies import check_replies, client_metrics
from fbo_flower.federated.trial_run import is_number
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits.exponentiated_gradient import STEP_SIZES, Distribution
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import Config, SearchSpace


class FedEx(Strategy):
    """Exponentiated gradient over configurations of the clients, around another strategy.

    Parameters
    ----------
    strategy : trains the model; samples clients, aggregates and evaluates as it does alone
    space : search space of the clients' hyperparameters
    configs : the configurations to choose from; None: `num_configs` of them, drawn around `center` or,
        without a center, from the whole space
    center : a configuration; it is always among those that are drawn
    num_configs : `k`
    radius : a drawn configuration differs from the center by at most this in every coordinate of the unit
        cube
    loss : name of the metric in training replies that is to become small
    maximize : whether the metric is to become large, such as an accuracy
    step_size : "aggressive", "adaptive", "sqrt" or "constant"
    discount : of the baseline: 0: the last round's loss, 1: the mean over all rounds
    cutoff : entropy in nats at which the distribution is fixed at its best configuration
    seed : of the draws

    Raises
    ------
    ConfigError
        If a setting is wrong, or no client reports the metric.
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
        seed: int = 0,
    ) -> None:
        check_number("num_configs", num_configs, 1, integer=True)
        check_number("radius", radius, 0.0, 1.0)
        check_number("discount", discount, 0.0, 1.0)
        check_number("cutoff", cutoff, 0.0)
        check_choice("step_size", step_size, STEP_SIZES)
        self.strategy = strategy
        self.loss, self.maximize, self.seed = loss, maximize, seed
        self.step_size, self.discount, self.cutoff = step_size, discount, cutoff
        if configs is not None:
            points = np.array([space.encode(config) for config in configs])
        else:
            points = drawn_points(space, center, num_configs, radius, seed)
        if not len(points):
            raise ConfigError("configs: expected at least one configuration, got none")
        self._space, self.points = space, points
        start = Distribution.uniform(len(points))
        self.log_theta, self.losses, self.squares = start.log_theta, start.losses, start.squares
        self.applied: dict[str, int] = {}  # node -> configuration of the round that is under way
        self._sent: list[Message] = []

    @property
    def distribution(self) -> Array:
        """Probabilities `(k,)` of `configs`."""
        return self._distribution.theta

    @property
    def configs(self) -> list[Config]:
        """The configurations to choose from."""
        return [self._space.decode(point) for point in self.points]

    @property
    def best_config(self) -> Config:
        """The most probable configuration."""
        return self._space.decode(self.points[int(np.argmax(self.log_theta))])

    @property
    def weighted_by_key(self) -> str:
        """Name of the metric by which replies are weighted: that of the strategy within."""
        return str(getattr(self.strategy, "weighted_by_key", "num-examples"))

    @property
    def _distribution(self) -> Distribution:
        return Distribution(self.log_theta, self.losses, self.squares)

    def choices(self, server_round: int, size: int) -> Sequence[int]:
        """Return which configuration each message of a round gets, `(size,)`."""
        if self._distribution.entropy < self.cutoff:
            return [int(np.argmax(self.log_theta))] * size
        rng = generator(self.seed, "fedex", "draw", server_round)
        found: list[int] = self._distribution.draw(size, rng).tolist()
        return found

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the strategy within, each with a configuration of its own."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        chosen = self.choices(server_round, len(messages))
        self._sent = [
            with_config(message, self._space.decode(self.points[choice]))
            for message, choice in zip(messages, chosen, strict=True)
        ]
        nodes = [str(message.metadata.dst_node_id) for message in messages]
        self.applied = dict(zip(nodes, chosen, strict=True))
        return self._sent

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Update the distribution by the clients' losses, then aggregate their models."""
        by_node = {reply.metadata.src_node_id: reply for reply in replies}
        answers = [by_node.get(message.metadata.dst_node_id) for message in self._sent]
        used = check_replies(self._sent, answers, self.weighted_by_key).used
        self._learn(server_round, used)
        return self.strategy.aggregate_train(server_round, used)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the strategy within."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate as the strategy within does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the settings."""
        log(INFO, "\t├──> FedEx over %d configurations, by %r", len(self.points), self.loss)
        self.strategy.summary()

    def _learn(self, server_round: int, used: Sequence[Message]) -> None:
        if not used or self._distribution.entropy < self.cutoff:
            return
        records = [client_metrics(reply) for reply in used]
        if not all(is_number(record.get(self.loss)) for record in records):
            there = ", ".join(sorted(records[0]))
            raise ConfigError(
                f"loss: expected {self.loss!r} in the metrics of @app.train(), got {there}; let the "
                "clients report "
                "the loss on held-out rows after training"
            )
        sign = -1.0 if self.maximize else 1.0
        losses = sign * np.array([record[self.loss] for record in records], dtype=np.float64)
        keys = [record.get(self.weighted_by_key, 1.0) for record in records]
        chosen = [self.applied[str(reply.metadata.src_node_id)] for reply in used]
        updated = self._distribution.update(
            np.array(chosen, dtype=np.int64),
            losses,
            np.array(keys, dtype=np.float64),
            self.step_size,
            self.discount,
        )
        self.log_theta, self.losses, self.squares = updated.log_theta, updated.losses, updated.squares
        log(INFO, "[round %d] FedEx: entropy %.3f, best %s with probability %.2f", server_round,
            updated.entropy, self.best_config, updated.theta.max())  # fmt: skip


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


def with_config(message: Message, config: Mapping[str, object]) -> Message:
    """Return a message of its own with entries added to its config record; the original is unchanged."""
    records = dict(message.content.items())
    name = next((n for n, record in records.items() if isinstance(record, ConfigRecord)), "config")
    own = records.get(name, ConfigRecord())
    assert isinstance(own, ConfigRecord)
    records[name] = ConfigRecord({**own, **config})  # type: ignore[dict-item]  # it checks the types itself
    metadata = message.metadata
    return Message(
        RecordDict(records),
        metadata.dst_node_id,
        metadata.message_type,
        ttl=metadata.ttl,
        group_id=metadata.group_id,
    )
