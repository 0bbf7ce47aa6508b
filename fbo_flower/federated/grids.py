"""Grids in front of Flower's: the part of the federation that one trial sees, and clients of the legacy API.

`LegacyClients` converts messages between the tuner, whose strategies are of the message API, and clients made
by a `client_fn`. So the clients need no change: the configuration is in the `config` of `fit`. A `server_fn`
gets no grid; use the main function of a ServerApp instead:

    @app.main()
    def main(grid, context):
        tuned = tune_federation(LegacyClients(grid), build, space, ...)
        run = build(tuned.best_config)
        config = ConfigRecord(tuned.best_config)
        run.strategy.start(LegacyClients(grid), run.initial_arrays, 10, train_config=config)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common import EvaluateIns, FitIns, Parameters, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.typing import Code
from flwr.compat.common import recorddict_compat
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fbo_flower.errors import ConfigError, WireError
from fbo_flower.federated.strategy_state import to_record
from fbo_flower.strategies.forwarding_grid import ForwardingGrid

PATIENCE = 10  # times that a strategy may look for more nodes while it configures one half-round


class TrialGrid(ForwardingGrid):
    """A grid with some of another grid's nodes.

    Strategies such as FedAvg wait until a minimum of nodes is there. In a share of fixed nodes that would
    never end, so the grid raises ConfigError when it has been asked `PATIENCE` times.

    Parameters
    ----------
    grid : the whole federation
    nodes : the nodes of this share
    """

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        super().__init__(grid)
        self._nodes = list(nodes)
        self._looks = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes of the share."""
        self._looks += 1
        if self._looks > PATIENCE:
            raise ConfigError(
                f"strategy: expected one that is content with the {len(self._nodes)} clients of a trial's "
                "share, got one that waits for more; lower its min_available_nodes, min_train_nodes and "
                "min_evaluate_nodes, or num_parallel"
            )
        return list(self._nodes)

    def set_run(self, run: Run) -> None:
        """Do nothing, because the grid has its run already."""


def least_clients(strategy: object) -> int:
    """Return how many clients a strategy waits for, as far as its attributes say; at least 1."""
    names = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")
    found = [getattr(strategy, name, 1) for name in names]
    inner = getattr(strategy, "strategy", None)
    if inner is not None and inner is not strategy:
        found.append(least_clients(inner))
    return max(1, *(value for value in found if isinstance(value, int)))


class LegacyClients(ForwardingGrid):
    """A grid for clients of a `ClientApp(client_fn=...)`.

    A training reply has the metrics that `fit` returned and "num-examples"; an evaluation also "loss".

    Parameters
    ----------
    grid : Flower's grid
    """

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self._names: dict[int, list[str]] = {}  # node -> names of the arrays that it was sent

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Convert the messages to the legacy API and send them."""
        return self._grid.push_messages([self._outgoing(message) for message in messages])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived, converted to the message API."""
        return [self._incoming(message) for message in self._grid.pull_messages(message_ids)]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return their replies; both are converted."""
        sent = [self._outgoing(message) for message in messages]
        return [self._incoming(message) for message in self._grid.send_and_receive(sent, timeout=timeout)]

    def _outgoing(self, message: Message) -> Message:
        metadata, content = message.metadata, message.content
        arrays = next(iter(content.array_records.values()))
        self._names[metadata.dst_node_id] = list(arrays)
        parameters = ndarrays_to_parameters([array.numpy() for array in arrays.values()])
        config: Any = dict(next(iter(content.config_records.values()), ConfigRecord()))
        if metadata.message_type == MessageType.TRAIN:
            converted = recorddict_compat.fitins_to_recorddict(FitIns(parameters, config), False)
        else:
            converted = recorddict_compat.evaluateins_to_recorddict(EvaluateIns(parameters, config), False)
        kind, node, group = metadata.message_type, metadata.dst_node_id, metadata.group_id
        return Message(converted, node, kind, ttl=metadata.ttl, group_id=group)

    def _incoming(self, message: Message) -> Message:
        """Return a reply converted to the message API; an unreadable reply becomes an empty one."""
        if not message.has_error():
            try:
                message.content = self._read(message)
            except Exception:  # malformed content; the check of replies refuses the empty one
                message.content = RecordDict()
        return message

    def _read(self, message: Message) -> RecordDict:
        if message.metadata.message_type == MessageType.TRAIN:
            fitted = recorddict_compat.recorddict_to_fitres(message.content, keep_input=False)
            arrays = named(fitted.parameters, self._names[message.metadata.src_node_id])
            metrics = metrics_of(fitted.status.code, fitted.metrics, {"num-examples": fitted.num_examples})
            return RecordDict({"arrays": to_record(arrays), "metrics": metrics})
        evaluated = recorddict_compat.recorddict_to_evaluateres(message.content)
        own = {"num-examples": evaluated.num_examples, "loss": float(evaluated.loss)}
        return RecordDict({"metrics": metrics_of(evaluated.status.code, evaluated.metrics, own)})


def named(parameters: Parameters, names: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return legacy parameters under the names of the arrays that were sent; WireError if others came."""
    arrays = cast(list[np.ndarray[Any, Any]], parameters_to_ndarrays(parameters))
    if len(arrays) != len(names):
        raise WireError(f"parameters: expected {len(names)} arrays, got {len(arrays)}", "names")
    return dict(zip(names, arrays, strict=True))


def metrics_of(code: Code, metrics: Any, own: dict[str, float]) -> MetricRecord:
    """Return the metrics that are numbers; WireError if the client did not succeed."""
    if code != Code.OK:
        raise WireError(f"status: expected OK, got {code.name}", "content")
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return MetricRecord({**numbers, **own})
