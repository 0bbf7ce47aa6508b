"""Clients of the legacy API, as a grid that converts messages between them and the tuner.

The tuner's strategies are of the message API, the clients are made by a `client_fn`. They need no change: the
configuration is in the `config` of `fit`. A `server_fn` gets no grid; use the main function of a ServerApp
instead:

    @app.main()
    def main(grid, context):
        tuned = tune_federation(LegacyClients(grid), build, space, ...)
        run = build(tuned.best_config)
        config = ConfigRecord(tuned.best_config)
        run.strategy.start(LegacyClients(grid), run.initial_arrays, 10, train_config=config)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common import EvaluateIns, FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.typing import Code
from flwr.compat.common import recorddict_compat
from flwr.serverapp import Grid

from fbo_flower.errors import WireError
from fbo_flower.federated.run_config import READ
from fbo_flower.federated.state import to_record
from fbo_flower.strategies.exchange import ForwardingGrid


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
        return self.within.push_messages([self._outgoing(message) for message in messages])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived, converted to the message API."""
        return [self._incoming(message) for message in self.within.pull_messages(message_ids)]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return their replies; both are converted."""
        sent = [self._outgoing(message) for message in messages]
        return [self._incoming(message) for message in self.within.send_and_receive(sent, timeout=timeout)]

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
        """Return the content of a reply in the message API; WireError if the client did not succeed."""
        found = RecordDict()
        result: Any
        if message.metadata.message_type == MessageType.TRAIN:
            result = recorddict_compat.recorddict_to_fitres(message.content, keep_input=False)
            arrays, names = (
                parameters_to_ndarrays(result.parameters),
                self._names[message.metadata.src_node_id],
            )
            found["arrays"] = to_record(dict(zip(names, arrays, strict=True)))
            own = {"num-examples": result.num_examples}
        else:
            result = recorddict_compat.recorddict_to_evaluateres(message.content)
            own = {"num-examples": result.num_examples, "loss": float(result.loss)}
        if result.status.code != Code.OK:
            raise WireError(f"status: expected OK, got {result.status.code.name}", "content")
        if READ in message.content:
            found[READ] = message.content[READ]
        numbers = {  # a MetricRecord takes no bool, and Flower's adaptive clipping sends one
            name: int(value) if isinstance(value, bool) else value
            for name, value in result.metrics.items()
            if isinstance(value, int | float)
        }
        found["metrics"] = MetricRecord({**numbers, **own})
        return found
