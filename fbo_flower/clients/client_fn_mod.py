"""`message_api_mod`: tune with a `ClientApp(client_fn=...)`, which knows only Flower's older messages.

ClientApp(client_fn=lambda context: TuningAgent(f, space, context).to_client(), mods=[message_api_mod])
"""

from __future__ import annotations

from typing import Any, cast

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import (
    EvaluateIns,
    FitIns,
    GetPropertiesIns,
    MessageTypeLegacy,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common import recorddict_compat as compat

from fbo_flower.wire.flower_records import from_records, to_records
from fbo_flower.wire.numpy_client import from_lists, to_lists


def message_api_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Give a tuning message to `get_properties`, `fit` or `evaluate` of a `NumPyClient`."""
    kind = message.metadata.message_type  # may end in an action, which a `client_fn` does not know
    if kind.split(".")[0] == MessageType.QUERY:
        record = message.content.get("config")
        config: Any = dict(record) if isinstance(record, ConfigRecord) else {}
        message.content = compat.getpropertiesins_to_recorddict(GetPropertiesIns(config))
        reply = _call(MessageTypeLegacy.GET_PROPERTIES, message, context, call_next)
        properties: Any = compat.recorddict_to_getpropertiesres(reply).properties
        return Message(RecordDict({"config": ConfigRecord(properties)}), reply_to=message)
    arrays, config = to_lists(from_records(message.content))
    parameters = ndarrays_to_parameters(cast(Any, arrays))
    if kind.split(".")[0] == MessageType.TRAIN:
        message.content = compat.fitins_to_recorddict(FitIns(parameters, config), False)
        fitted = compat.recorddict_to_fitres(_call(MessageType.TRAIN, message, context, call_next), False)
        packed = from_lists(parameters_to_ndarrays(fitted.parameters), cast(Any, fitted.metrics))
    else:
        message.content = compat.evaluateins_to_recorddict(EvaluateIns(parameters, config), False)
        evaluated = compat.recorddict_to_evaluateres(_call(MessageType.EVALUATE, message, context, call_next))
        packed = from_lists([], cast(Any, evaluated.metrics))
    return Message(to_records(packed), reply_to=message)


def _call(kind: str, message: Message, context: Context, call_next: ClientAppCallable) -> RecordDict:
    """Return the content of the reply to a message of another type; the message keeps its own."""
    own, message.metadata.message_type = message.metadata.message_type, kind
    try:
        return call_next(message, context).content
    finally:
        message.metadata.message_type = own
