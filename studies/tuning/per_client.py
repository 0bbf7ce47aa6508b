"""A strategy around another one that gives every client a configuration of its own in each round.

`FedEx`, `FedPop` and `Personal` are such strategies. The strategy within samples clients, aggregates and
evaluates as it does alone. The wrapper adds a configuration to the `config` record of each training message,
and learns from one metric of the replies: the loss on held-out rows after training, which the clients report
in `@app.train()`. So the clients need no change if they report it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.federated import Bounds, Judge, client_metrics, is_number
from fbo_flower.numerics.arrays import Array
from fbo_flower.space import Config, SearchSpace


class PerClient(Strategy):
    """Base of the strategies that draw a configuration for each client.

    Parameters
    ----------
    strategy : trains the model; samples clients, aggregates and evaluates as it does alone
    space : search space of the clients' hyperparameters, whose names the clients read
    loss : name of the metric in training replies that is to become small
    maximize : whether the metric is to become large, such as an accuracy
    bounds : least and largest value that the metric can have; a reply with another one is left out, model and
        all. None: any finite number is believed
    seed : of the draws

    Raises
    ------
    ConfigError
        If a setting is wrong, or no client reports the metric.
    """

    def __init__(
        self, strategy: Strategy, space: SearchSpace, *, loss: str = "val-loss", maximize: bool = False,
        bounds: Bounds | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        if not isinstance(strategy, Strategy):
            raise ConfigError(f"strategy: expected a flwr.serverapp.strategy.Strategy, got {strategy!r:.60}")
        if not isinstance(space, SearchSpace):
            raise ConfigError(f"space: expected a SearchSpace, got {kind_of(space)}")
        self.strategy, self._space, self.seed = strategy, space, seed
        self.loss, self.maximize = loss, maximize
        self.weighted_by_key = str(getattr(strategy, "weighted_by_key", "num-examples"))  # of replies
        self._judge = Judge(bounds=bounds)
        self._sent: list[Message] = []

    @abstractmethod
    def choose(self, server_round: int, nodes: Sequence[str]) -> Sequence[Config]:
        """Return the configuration of each client that trains in this round."""

    @abstractmethod
    def learn(self, server_round: int, nodes: Sequence[str], losses: Array, weights: Array) -> None:
        """Learn from the clients that answered.

        Parameters
        ----------
        nodes, losses, weights : `(n,)` each, at least one; a loss is smaller the better, also with `maximize`
        """

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the strategy within, each with a configuration of its own."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        chosen = self.choose(server_round, [str(message.metadata.dst_node_id) for message in messages])
        self._sent = []
        for message, own in zip(messages, chosen, strict=True):
            of, content = message.metadata, RecordDict(dict(message.content.items()))
            name = next(iter(content.config_records), "config")
            changed: dict[str, Any] = {**content.config_records.get(name, {}), **own}  # all share one record
            content[name] = ConfigRecord(changed)
            self._sent.append(
                Message(content, of.dst_node_id, of.message_type, ttl=of.ttl, group_id=of.group_id)
            )
        return self._sent

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Learn from the clients' losses, then aggregate their models."""
        if not (used := self._checked(replies, server_round)):
            return self.strategy.aggregate_train(server_round, used)
        records = [client_metrics(reply) for reply in used]
        if not all(is_number(record.get(self.loss)) for record in records):
            there = ", ".join(sorted(records[0]))
            raise ConfigError(
                f"loss: expected {self.loss!r} in the metrics of @app.train(), got {there}; let the clients "
                "report the loss on held-out rows after training"
            )
        sign = -1.0 if self.maximize else 1.0
        losses = sign * np.array([record[self.loss] for record in records], dtype=np.float64)
        weights = np.array([record.get(self.weighted_by_key, 1.0) for record in records], dtype=np.float64)
        self.learn(server_round, [str(reply.metadata.src_node_id) for reply in used], losses, weights)
        return self.strategy.aggregate_train(server_round, used)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the strategy within."""
        self._sent = list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        return self._sent

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate as the strategy within does."""
        return self.strategy.aggregate_evaluate(server_round, self._checked(replies, server_round))

    def summary(self) -> None:
        """Log the settings."""
        names = ", ".join(self._space.names)
        log(INFO, "\t├──> %s of %s, by %r", type(self).__name__, names, self.loss)
        self.strategy.summary()

    def _checked(self, replies: Iterable[Message], server_round: int) -> list[Message]:
        """Return the replies that can be used, in the order of the messages."""
        places = {message.metadata.message_id: place for place, message in enumerate(self._sent)}
        nodes = {message.metadata.dst_node_id: place for place, message in enumerate(self._sent)}
        answers: list[Message | None] = [None] * len(self._sent)
        for reply in replies:  # the source of an error may be the SuperLink itself
            place = places.get(reply.metadata.reply_to_message_id, nodes.get(reply.metadata.src_node_id))
            if place is not None:
                answers[place] = reply
        what = f"[round {server_round}] {type(self).__name__}"
        return self._judge.checked(self.loss, self._sent, answers, self.weighted_by_key, what).used
