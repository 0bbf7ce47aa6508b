"""Models and strategies' states: as arrays and JSON values, and in files named after their content.

Flower's strategies keep state in attributes, FedAdam's moments for instance, and offer no way to save it.
`encode` reads the attributes that are numbers, texts, arrays, generators of random numbers, Flower's records,
and lists, tuples, sets, deques, dicts and dataclasses of them; it also reads the attributes of a strategy
within a strategy (a wrapper), and the state of an object that has `state_dict` and `load_state_dict`.
`restore` writes them into a strategy that was built anew with the same configuration. Everything else, such
as functions, stays as the user's `build` makes it; the tuner warns of what may hold state. A strategy whose
state is of another kind offers `state_dict()` and `load_state_dict(state)` with a dict of such values.

A checkpoint is one `.npz` file of arrays, and its name is the SHA-256 of what is in it. So an equal
state is stored once, a file is never changed, and one that was damaged or exchanged is found out. A file is
complete and on the disk before the journal names it. `collect` removes the files that nothing names.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import hashlib
import json
import logging
import os
import random
import re
import sys
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.storage.files import atomic_file, read_arrays, sync_directory

AnyArray = npt.NDArray[np.generic]
Arrays = Mapping[str, AnyArray]
Content = tuple[dict[str, AnyArray], dict[str, Any]]  # arrays by name, and a JSON value that names them
_FORM = "form"  # entry of the JSON value in a file; names of arrays begin with "a:"
_NAME = re.compile(r"([0-9a-f]{64})\.npz")


def encode(values: Mapping[str, Any], lost: dict[type, str] | None = None) -> Content:
    """Return the arrays in values, such as a model and a strategy, and the form of all that can be stored.

    Parameters
    ----------
    lost : gets the classes of strategies with an attribute that cannot be stored, and its name
    """
    encoder = _Encoder(lost)
    return encoder.arrays, encoder.named(values)


def state_of(strategy: Strategy) -> Content:
    """Return the arrays of a strategy's state, and its JSON form."""
    encoder = _Encoder(None)
    return encoder.arrays, encoder.attributes(strategy)


def decode(form: Mapping[str, Any], arrays: Arrays, like: object = None) -> Any:
    """Return the value of one form that `encode` made; it must not hold a strategy.

    Parameters
    ----------
    like : the value that it replaces, whose default factory a `defaultdict` takes over
    """
    kind = form["kind"]
    if kind == "value":
        return form["value"]
    if kind == "array":
        return arrays[form["name"]].copy()
    items = [decode(item, arrays) for item in form["items"]]
    if kind == "deque":
        found: Any = deque(items, maxlen=form["maxlen"])
    elif kind == "defaultdict":
        factory = getattr(like, "default_factory", None) or getattr(builtins, form["factory"] or "", None)
        found = defaultdict(factory, _paired(items))
    elif kind == "object":
        found = object.__new__(_class_of(form["class"]))
        for name, item in _paired(items).items():
            object.__setattr__(found, name, item)  # also of a frozen dataclass
    elif kind == "namedtuple":
        found = _class_of(form["class"])(*items)
    else:
        found = _READERS[kind](items)
    return found


def _paired(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _with_state(made: Any, method: str, state: Any) -> Any:
    """Return a generator of random numbers after its state was set."""
    getattr(made, method)(state)
    return made


def _generator(items: list[Any]) -> np.random.Generator:
    bits = getattr(np.random, items[0])(0)
    bits.state = items[1]
    return np.random.Generator(bits)


_READERS: dict[str, Callable[[list[Any]], Any]] = {  # kind -> the object that these parts make
    **{kind.__name__: kind for kind in (list, tuple, set, frozenset)},
    **{
        kind.__name__: lambda items, kind=kind: kind(_paired(items))  # type: ignore[misc]  # each its own kind
        for kind in (dict, OrderedDict, Counter, ArrayRecord, MetricRecord, ConfigRecord, RecordDict)
    },
    "bytes": lambda items: items[0].tobytes(),
    "complex": lambda items: complex(*items),
    "scalar": lambda items: items[0][()],
    "Array": lambda items: FlowerArray(*items),
    "Generator": _generator,
    "RandomState": lambda items: _with_state(np.random.RandomState(0), "set_state", items[0]),
    "Random": lambda items: _with_state(random.Random(), "setstate", items[0]),
    "torch": lambda items: sys.modules["torch"].from_numpy(items[0].copy()),
}
# the parts of an object of exactly this type, from which its reader makes it
_PARTS: dict[type, Callable[[Any], list[Any]]] = {
    **dict.fromkeys((list, tuple, deque), list),
    # the order of a set differs between processes
    **dict.fromkeys(
        (set, frozenset), lambda value: sorted(value, key=lambda part: (type(part).__name__, repr(part)))
    ),
    **dict.fromkeys(
        (*map(type, ({}, OrderedDict(), Counter(), defaultdict())), ArrayRecord, MetricRecord, ConfigRecord,
         RecordDict), lambda value: _flat(value.items())
    ),
    bytes: lambda value: [np.frombuffer(value, dtype=np.uint8)],
    complex: lambda value: [value.real, value.imag],
    FlowerArray: lambda value: [value.dtype, tuple(value.shape), value.stype, value.data],
    np.random.Generator: lambda value: [type(value.bit_generator).__name__, value.bit_generator.state],
    np.random.RandomState: lambda value: [value.get_state(legacy=False)],
    random.Random: lambda value: [value.getstate()],
}  # fmt: skip
_STAYS = (  # what `build` makes anew; it holds no state
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, functools.partial,
    type, logging.Logger, type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
_CLASSES: dict[str, type] = {}  # those that a function defines, which their module does not hold


def _class_of(name: str) -> type:
    """Return a class by module and qualified name; JournalError if no module that is loaded holds it."""
    module, _, path = name.partition(":")
    try:
        found: Any = functools.reduce(getattr, path.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        found = _CLASSES.get(name)
    if not isinstance(found, type):
        raise JournalError(
            f"checkpoint: expected the class {name} of a strategy's state, which no loaded module has; "
            "define it outside functions, or give the strategy state_dict() and load_state_dict(state)"
        )
    return found


def restore(strategy: Strategy, arrays: Arrays, form: Mapping[str, Any]) -> None:
    """Write the form of a strategy's state, name -> form of the value, into a strategy."""
    if _is_stateful(strategy):
        strategy.load_state_dict(  # type: ignore[attr-defined]  # it has one
            {name: decode(value, arrays) for name, value in form.items()}
        )
        return
    for name, value in form.items():
        inner = getattr(strategy, name, None)
        if value["kind"] == "stateful":
            if _is_stateful(inner):
                inner.load_state_dict(decode(value["items"], arrays))  # type: ignore[union-attr]
        elif value["kind"] != "strategy":
            setattr(strategy, name, decode(value, arrays, inner))
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
    """Return whether two forms, with their arrays, are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.get("kind") == other.get("kind") == "array":
            return np.array_equal(arrays[one["name"]], others[other["name"]])
        return one.keys() == other.keys() and all(
            _same(value, arrays, other[key], others) for key, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _same(a, arrays, b, others) for a, b in zip(one, other, strict=True)
        )
    return bool(one == other)


def _attributes(strategy: Strategy) -> Mapping[str, Any]:
    if hasattr(strategy, "state_dict"):
        state: Mapping[str, Any] = strategy.state_dict()
        return state
    return vars(strategy)


def _is_stateful(value: object) -> bool:
    return not isinstance(value, type) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


class _Encoder:
    """Makes forms of values, and gathers their arrays."""

    def __init__(self, lost: dict[type, str] | None) -> None:
        self.arrays: dict[str, AnyArray] = {}
        self._lost = lost
        self._within: set[int] = set()  # ids of the containers that are being read

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the forms of the values that have one."""
        found = {name: self._form(value) for name, value in values.items()}
        return {name: form for name, form in found.items() if form is not None}

    def attributes(self, strategy: Strategy) -> dict[str, Any]:
        """Return the forms of a strategy's attributes, and note what cannot be stored."""
        values = _attributes(strategy)
        found = self.named(values)
        lost = [n for n, value in values.items() if n not in found and not isinstance(value, _STAYS)]
        if lost and self._lost is not None:
            self._lost.setdefault(type(strategy), lost[0])
        return found

    def _form(self, value: Any) -> dict[str, Any] | None:
        """Return the JSON form of a value and add its arrays; None if it is of another kind."""
        if value is None or type(value) in {bool, int, float, str}:
            return {"kind": "value", "value": value}
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                return None
            name = str(len(self.arrays))  # a path of names could be that of another array
            self.arrays[name] = np.array(value)
            return {"kind": "array", "name": name}
        if id(value) in self._within:
            return None  # a circle
        self._within.add(id(value))
        try:
            return self._compound(value)
        finally:
            self._within.discard(id(value))

    def _compound(self, value: Any) -> dict[str, Any] | None:
        """Return the form of a value that has parts."""
        if isinstance(value, Strategy):
            return {"kind": "strategy", "items": self.attributes(value)}
        cls = type(value)
        kind, more = cls.__name__, dict[str, Any]()
        if cls in _PARTS:
            parts = _PARTS[cls](value)
            if cls is deque:
                more = {"maxlen": value.maxlen}
            elif cls is defaultdict:
                more = {"factory": getattr(value.default_factory, "__name__", None)}
        elif isinstance(value, np.generic):
            kind, parts = "scalar", [np.asarray(value)]
        elif cls.__module__.startswith("torch") and hasattr(value, "detach"):
            kind, parts = "torch", [_of_torch(value)]
        elif isinstance(value, tuple) and hasattr(cls, "_fields"):
            kind, parts, more = "namedtuple", list(value), {"class": _name_of(cls)}
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            kind, more = "object", {"class": _name_of(cls)}
            parts = _flat({**fields, **getattr(value, "__dict__", {})}.items())
        else:
            return self._other(value)
        items = [self._form(part) for part in parts]
        return None if None in items else {"kind": kind, "items": items, **more}

    def _other(self, value: Any) -> dict[str, Any] | None:
        """Return the form of an object that has a state, or is a kind of number or text; else None."""
        if _is_stateful(value):
            state = self._form(value.state_dict())
            return None if state is None else {"kind": "stateful", "items": state}
        for plain in (bool, int, float, str):  # such as an IntEnum
            if isinstance(value, plain):
                return {"kind": "value", "value": plain(value)}
        return None


def _flat(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [part for pair in pairs for part in pair]


def _of_torch(tensor: Any) -> Any:
    """Return a tensor as an array; what cannot be stored if NumPy does not know its numbers."""
    try:
        return tensor.detach().cpu().numpy()
    except TypeError:
        return object()


def _name_of(cls: type) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    _CLASSES[name] = cls
    return name


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
