"""What a Flower strategy remembers between rounds, as arrays and JSON values: FedAdam's moments, for
instance.

Flower's strategies keep state in attributes and offer no way to save it. `state_of` reads the attributes that
are numbers, texts, NumPy arrays, ArrayRecords, and lists and dicts of them; it also reads the attributes of a
strategy within a strategy (a wrapper). `restore` writes them into a strategy that was built anew with the
same configuration. Everything else, such as functions, stays as the user's `build` makes it.

A strategy whose state is of another kind offers `state_dict()` and `load_state_dict(state)`, with a dict of
arrays, numbers, texts, and lists and dicts of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

AnyArray = npt.NDArray[np.generic]
_NUMERIC = "fiub"  # kinds of dtypes that are stored
_NOTHING = object()


def state_of(strategy: Strategy) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the arrays of a strategy's state, by name, and its JSON form, in which they are named."""
    arrays: dict[str, AnyArray] = {}
    return arrays, _encode_all(_attributes(strategy), "", arrays)


def restore(strategy: Strategy, arrays: Mapping[str, AnyArray], form: Mapping[str, Any]) -> None:
    """Write a state that `state_of` returned into a strategy."""
    if hasattr(strategy, "load_state_dict"):
        strategy.load_state_dict({name: _decode(value, arrays) for name, value in form.items()})
        return
    for name, value in form.items():
        inner = getattr(strategy, name, None)
        if value.get("kind") == "strategy":
            if isinstance(inner, Strategy):
                restore(inner, arrays, value["items"])
        else:
            setattr(strategy, name, _decode(value, arrays))


def in_common(old: Strategy, new: Strategy, form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a state that two strategies have in common before their first round.

    A server's momentum is taken over by a strategy with another learning rate, the learning rate is not.

    Parameters
    ----------
    old, new : built anew, with the configuration of the state and with another one
    form : the state, as `state_of` returned it
    """
    (arrays, before), (others, after) = state_of(old), state_of(new)
    found = {}
    for name, value in form.items():
        if all(part.get(name, {}).get("kind") == "strategy" for part in (before, after, form)):
            inner = in_common(_attributes(old)[name], _attributes(new)[name], value["items"])
            found[name] = {"kind": "strategy", "items": inner}
        elif _same(before.get(name), arrays, after.get(name), others):
            found[name] = value
    return found


def _same(one: Any, arrays: Mapping[str, AnyArray], other: Any, others: Mapping[str, AnyArray]) -> bool:
    """Return whether two forms, with their arrays, are equal; None: the value was of another kind."""
    if one is None or other is None:
        return one is other
    if one["kind"] == other["kind"] == "array":
        return np.array_equal(arrays[one["name"]], others[other["name"]])
    if "items" in one and "items" in other:
        keys = one["items"].keys()
        return keys == other["items"].keys() and all(
            _same(one["items"][key], arrays, other["items"][key], others) for key in keys
        )
    return bool(one == other)


def _attributes(strategy: Strategy) -> Mapping[str, Any]:
    if hasattr(strategy, "state_dict"):
        state: Mapping[str, Any] = strategy.state_dict()
        return state
    return vars(strategy)


def _encode_all(values: Mapping[str, Any], prefix: str, arrays: dict[str, AnyArray]) -> dict[str, Any]:
    found = {name: _encode(value, f"{prefix}{name}", arrays) for name, value in values.items()}
    return {name: form for name, form in found.items() if form is not _NOTHING}


def _encode(value: Any, path: str, arrays: dict[str, AnyArray]) -> Any:  # noqa: PLR0911  # one per kind
    """Return the JSON form of a value and add its arrays; `_NOTHING` if it is of another kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"kind": "value", "value": value}
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMERIC:
        arrays[path] = value.copy()
        return {"kind": "array", "name": path}
    if isinstance(value, ArrayRecord):
        items = _encode_all({k: a.numpy() for k, a in value.items()}, f"{path}/", arrays)
        return {"kind": "record", "items": items}
    if isinstance(value, Strategy):
        return {"kind": "strategy", "items": _encode_all(_attributes(value), f"{path}/", arrays)}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = _encode_all(value, f"{path}/", arrays)
        return {"kind": "dict", "items": items} if len(items) == len(value) else _NOTHING
    if isinstance(value, list | tuple):
        items = _encode_all({str(i): item for i, item in enumerate(value)}, f"{path}/", arrays)
        kind = "list" if isinstance(value, list) else "tuple"
        return {"kind": kind, "items": items} if len(items) == len(value) else _NOTHING
    return _NOTHING


def _decode(form: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> Any:
    kind = form["kind"]
    if kind == "value":
        return form["value"]
    if kind == "array":
        return arrays[form["name"]].copy()
    items = {name: _decode(item, arrays) for name, item in form["items"].items()}
    if kind == "record":
        return to_record(items)
    if kind == "dict":
        return items
    return list(items.values()) if kind == "list" else tuple(items.values())


def to_record(arrays: Mapping[str, AnyArray]) -> ArrayRecord:
    """Return named arrays as an ArrayRecord."""
    return ArrayRecord(OrderedDict((name, FlowerArray(np.asarray(a))) for name, a in arrays.items()))


def from_record(record: ArrayRecord) -> dict[str, AnyArray]:
    """Return the arrays of an ArrayRecord by name."""
    return {name: array.numpy() for name, array in record.items()}
