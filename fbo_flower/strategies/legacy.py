"""Tuning in an app that uses Flower's legacy API: `server_fn`, `client_fn`, `NumPyClient`.

`legacy_strategy` tunes before the first legacy round, and then runs the app's own strategy. `LegacyGrid`
converts messages between the Message API and the legacy API, so the same tuning strategies and agents work
with both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    MessageTypeLegacy,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.typing import Code
from flwr.compat.common import recorddict_compat
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from flwr.serverapp import Grid

from fbo_flower.errors import ConfigError
from fbo_flower.strategies.base import TuningStrategy
from fbo_flower.strategies.forwarding_grid import ForwardingGrid
from fbo_flower.study.study import Study
from fbo_flower.wire.flower_records import from_records, to_records
from fbo_flower.wire.numpy_client import from_lists, to_lists

_NO_PARAMETERS = Parameters(tensors=[], tensor_type="numpy.ndarray")


def legacy_strategy(
    tuning: TuningStrategy,
    num_rounds: int | None = None,
    *,
    then: Callable[[Study], Strategy | None] | None = None,
    journal: str | os.PathLike[str] | None = None,
    resume: bool = False,
    wait_seconds: float = 120.0,
) -> Strategy:
    """Return a strategy for `ServerApp(server_fn=...)` that tunes before its first round.

    Parameters
    ----------
    tuning : a tuning strategy such as `FTS(...)`; afterwards its `study` holds the results
    num_rounds, journal, resume : of the tuning, see `TuningStrategy.start`. The rounds of Flower's
        `ServerConfig` follow it
    then : `then(study)` returns the strategy for the rounds after the tuning; None, or no `then`: these
        rounds do nothing
    wait_seconds : how long to wait for the first client

    Returns
    -------
    Strategy
        For agents made by `TuningAgent(...).to_client()` in a `client_fn`.
    """

    def tune(grid: Grid) -> Strategy | None:
        study = tuning.start(LegacyGrid(grid), num_rounds, journal=journal, resume=resume)
        return None if then is None else then(study)

    return _TuneFirst(tune, wait_seconds)


def tune_first(tune: Callable[[Grid], Strategy | None], wait_seconds: float = 120.0) -> Strategy:
    """Return a strategy for `ServerApp(server_fn=...)` that calls a function before its first round.

    Parameters
    ----------
    tune : gets Flower's grid and returns the strategy for the rounds after it; None: they do nothing
    wait_seconds : how long to wait for the first client
    """
    return _TuneFirst(tune, wait_seconds)


class _TuneFirst(Strategy):
    """Tune when Flower asks for the initial parameters; then pass every call to the next strategy."""

    def __init__(self, tune: Callable[[Grid], Strategy | None], wait_seconds: float) -> None:
        self._tune = tune
        self._wait_seconds = wait_seconds
        self._next: Strategy | None = None

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        client_manager.all()  # makes Flower update its list of clients now; it does so only every 5 seconds
        client_manager.wait_for(1, timeout=int(self._wait_seconds))
        proxies = list(client_manager.all().values())
        grid = getattr(proxies[0], "grid", None) if proxies else None
        if not isinstance(grid, Grid):
            raise ConfigError(
                f"legacy_strategy: expected clients of a ServerApp within {self._wait_seconds:g} s, "
                f"got {len(proxies)} clients{' that are not on a Grid' if proxies else ''}; start more "
                "clients, or set a larger wait_seconds"
            )
        self._next = self._tune(grid)
        return _NO_PARAMETERS if self._next is None else self._next.initialize_parameters(client_manager)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        return (
            [] if self._next is None else self._next.configure_fit(server_round, parameters, client_manager)
        )

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        return (None, {}) if self._next is None else self._next.aggregate_fit(server_round, results, failures)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> Any:
        if self._next is None:
            return []
        return self._next.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        if self._next is None:
            return None, {}
        return self._next.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        return None if self._next is None else self._next.evaluate(server_round, parameters)


class LegacyGrid(ForwardingGrid):
    """A Grid for nodes that run a `ClientApp(client_fn=...)`: it converts each message to the legacy API.

    Parameters
    ----------
    grid : Flower's grid, which sends and receives the converted messages
    """

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Convert the messages to the legacy API and send them."""
        return self._grid.push_messages([_outgoing(message) for message in messages])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived, converted to the Message API."""
        return [_incoming(message) for message in self._grid.pull_messages(message_ids)]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return their replies; both are converted."""
        sent = [_outgoing(message) for message in messages]
        return [_incoming(message) for message in self._grid.send_and_receive(sent, timeout=timeout)]


def _outgoing(message: Message) -> Message:
    """Return a message converted to the legacy API, without its action: a `client_fn` has no actions."""
    kind = message.metadata.message_type.split(".")[0]
    if kind == MessageType.QUERY:
        kind, record = MessageTypeLegacy.GET_PROPERTIES, message.content.get("config")
        config: Any = dict(record) if isinstance(record, ConfigRecord) else {}
        content = recorddict_compat.getpropertiesins_to_recorddict(GetPropertiesIns(config))
    else:
        arrays, config = to_lists(from_records(message.content))
        parameters = ndarrays_to_parameters(cast(Any, arrays))
        if kind == MessageType.TRAIN:
            content = recorddict_compat.fitins_to_recorddict(FitIns(parameters, dict(config)), False)
        else:
            content = recorddict_compat.evaluateins_to_recorddict(
                EvaluateIns(parameters, dict(config)), False
            )
    metadata = message.metadata
    return Message(content, metadata.dst_node_id, kind, ttl=metadata.ttl, group_id=metadata.group_id)


def _incoming(message: Message) -> Message:
    """Return a reply converted to the Message API; an unreadable reply becomes an empty one."""
    if not message.has_error():
        try:
            message.content = _read(message.metadata.message_type, message.content)
        except Exception:  # malformed content; the strategy refuses the empty reply
            message.content = RecordDict()
    return message


def _read(kind: str, content: RecordDict) -> RecordDict:
    if kind == MessageTypeLegacy.GET_PROPERTIES:
        response = recorddict_compat.recorddict_to_getpropertiesres(content)
        _expect_ok(response.status.code)
        properties: Any = response.properties
        return RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord(properties)})
    if kind == MessageType.TRAIN:
        fitted = recorddict_compat.recorddict_to_fitres(content, keep_input=False)
        _expect_ok(fitted.status.code)
        arrays: Any = parameters_to_ndarrays(fitted.parameters)
        return to_records(from_lists(arrays, cast(Any, fitted.metrics)))
    evaluated = recorddict_compat.recorddict_to_evaluateres(content)
    _expect_ok(evaluated.status.code)
    return to_records(from_lists([], cast(Any, evaluated.metrics)))


def _expect_ok(code: Code) -> None:
    if code != Code.OK:
        raise ConfigError(f"status: expected OK, got {code.name}")
