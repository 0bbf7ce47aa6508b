"""Models and strategies' states: as arrays and JSON values, and in files named after their content.

Flower's strategies keep state in attributes, FedAdam's moments for instance, and offer no way to save it.
`encode` reads the attributes that are numbers, texts, NumPy arrays, ArrayRecords, and lists and dicts of
them; it also reads the attributes of a strategy within a strategy (a wrapper). `restore` writes them into a
strategy that was built anew with the same configuration. Everything else, such as functions, stays as the
user's `build` makes it. A strategy whose state is of another kind offers `state_dict()` and
`load_state_dict(state)`, with a dict of arrays, numbers, texts, and lists and dicts of them.

A checkpoint is one `.npz` file of arrays, and its name is the SHA-256 of what is in it. So an equal
state is stored once, a file is never changed, and one that was damaged or exchanged is found out. A file is
complete and on the disk before the journal names it. `collect` removes the files that nothing names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.storage.files import atomic_file, read_arrays, sync_directory

AnyArray = npt.NDArray[np.generic]
Arrays = Mapping[str, AnyArray]
Content = tuple[dict[str, AnyArray], dict[str, Any]]  # arrays by name, and a JSON value that names them
_NOTHING = object()
_FORM = "form"  # entry of the JSON value in a file; names of arrays begin with "a:"
_NAME = re.compile(r"([0-9a-f]{64})\.npz")


def encode(values: Mapping[str, Any]) -> Content:
    """Return the arrays in values, such as a model and a strategy, and the form of all that can be stored."""
    arrays: dict[str, AnyArray] = {}
    return arrays, _encode_all(values, arrays)


def state_of(strategy: Strategy) -> Content:
    """Return the arrays of a strategy's state, and its JSON form."""
    return encode(_attributes(strategy))


def decode(form: Mapping[str, Any], arrays: Arrays) -> Any:
    """Return the value of one form that `encode` made; it must not hold a strategy."""
    kind = form["kind"]
    if kind == "value":
        return form["value"]
    if kind == "array":
        return arrays[form["name"]].copy()
    items = {name: decode(item, arrays) for name, item in form["items"].items()}
    if kind == "record":
        return to_record(items)
    if kind == "dict":
        return items
    return list(items.values()) if kind == "list" else tuple(items.values())


def restore(strategy: Strategy, arrays: Arrays, form: Mapping[str, Any]) -> None:
    """Write the form of a strategy's state, name -> form of the value, into a strategy."""
    if hasattr(strategy, "load_state_dict"):
        strategy.load_state_dict({name: decode(value, arrays) for name, value in form.items()})
        return
    for name, value in form.items():
        inner = getattr(strategy, name, None)
        if value["kind"] != "strategy":
            setattr(strategy, name, decode(value, arrays))
        elif isinstance(inner, Strategy):
            restore(inner, arrays, value["items"])


def in_common(old: Strategy, new: Strategy, form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a state that two strategies have in common before their first round.

    Both are built anew, `old` with the configuration of the state. So a server's momentum is taken over by a
    strategy with another learning rate, the learning rate is not.
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


def _same(one: Any, arrays: Arrays, other: Any, others: Arrays) -> bool:
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


def _encode_all(values: Mapping[str, Any], arrays: dict[str, AnyArray]) -> dict[str, Any]:
    found = {name: _encode(value, arrays) for name, value in values.items()}
    return {name: form for name, form in found.items() if form is not _NOTHING}


def _encode(value: Any, arrays: dict[str, AnyArray]) -> Any:
    """Return the JSON form of a value and add its arrays; `_NOTHING` if it is of another kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"kind": "value", "value": value}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        name = str(len(arrays))  # a path of names could be that of another array
        arrays[name] = value.copy()
        return {"kind": "array", "name": name}
    parts: Mapping[str, Any]
    if isinstance(value, ArrayRecord):
        kind, parts = "record", from_record(value)
    elif isinstance(value, Strategy):
        kind, parts = "strategy", _attributes(value)
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        kind, parts = "dict", value
    elif isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        parts = {str(place): item for place, item in enumerate(value)}
    else:
        return _NOTHING
    items = _encode_all(parts, arrays)
    whole = kind in {"record", "strategy"} or len(items) == len(parts)
    return {"kind": kind, "items": items} if whole else _NOTHING


def to_record(arrays: Arrays) -> ArrayRecord:
    """Return named arrays as an ArrayRecord."""
    return ArrayRecord({name: FlowerArray(np.asarray(array)) for name, array in arrays.items()})


def from_record(record: ArrayRecord) -> dict[str, AnyArray]:
    """Return the arrays of an ArrayRecord by name."""
    return {name: array.numpy() for name, array in record.items()}


class Checkpoints:
    """A store of checkpoints in a directory, or for None in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._memory: dict[str, Content] = {}

    def put(self, arrays: Arrays, form: Mapping[str, Any]) -> str:
        """Store a checkpoint and return its digest."""
        content = {name: np.array(array, order="C") for name, array in arrays.items()}, dict(form)
        digest = digest_of(*content)
        if self._directory is None:
            self._memory[digest] = content
        elif not (path := self._directory / f"{digest}.npz").exists():
            self._write(path, *content)
        return digest

    def get(self, digest: str) -> Content:
        """Return a checkpoint; JournalError if it is missing, damaged, or not what was stored."""
        if self._directory is None:
            return self._memory[digest]
        path = self._directory / f"{digest}.npz"
        try:
            found = read_arrays(path)
            form = json.loads(found.pop(_FORM).tobytes())
        except (ConfigError, LookupError, ValueError, RecursionError) as error:
            raise JournalError(f"checkpoint: expected an undamaged file {path}, got {error}") from error
        arrays = {name.removeprefix("a:"): array for name, array in found.items()}
        if digest_of(arrays, form) != digest:
            raise JournalError(
                f"checkpoint: expected the content that {path} was written with, got another; restore a copy"
            )
        return arrays, form

    def collect(self, named: Collection[str]) -> None:
        """Remove every checkpoint but those named."""
        for digest in self._memory.keys() - set(named):
            del self._memory[digest]
        if self._directory is None or not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if (match and match[1] not in named) or path.name.endswith(".tmp"):
                path.unlink(missing_ok=True)

    def _write(self, path: Path, arrays: Arrays, form: Mapping[str, Any]) -> None:
        text = np.frombuffer(json.dumps(form).encode(), dtype=np.uint8)
        try:
            with atomic_file(path, private=True) as file:
                entries: dict[str, Any] = {_FORM: text, **{f"a:{name}": a for name, a in arrays.items()}}
                np.savez(file, **entries)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(path.parent)
        except (OSError, ConfigError) as error:
            raise JournalError(f"checkpoint: {error}") from error


def digest_of(arrays: Arrays, form: Mapping[str, Any]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and bytes of arrays, and of the JSON value."""
    digest = hashlib.sha256(json.dumps(form).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
