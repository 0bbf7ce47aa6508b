"""Copies of what users give and get: whatever they do with it changes nothing here.

A container that leaves the package is a copy, and so is one that enters it and is kept. `own` copies a
value; `copies` does it for the fields of a class.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, MutableSet
from dataclasses import MISSING
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})  # most values, and nobody can change them


def own(value: T) -> T:
    """Return a value whose dicts, lists, arrays and records are copies, at any depth; other objects stay.

    >>> config = {"layers": [64, 64]}
    >>> own(config)["layers"].append(32)
    >>> config
    {'layers': [64, 64]}
    """
    kind, given = type(value), value  # type: Any, Any
    if kind in _PLAIN:
        return value
    if kind is dict or (isinstance(given, Mapping) and not isinstance(given, MutableMapping)):
        found: Any = {name: v if type(v) in _PLAIN else own(v) for name, v in given.items()}
    elif kind in {list, tuple}:
        found = kind(map(own, given))
    elif kind is np.ndarray and not given.dtype.hasobject:
        found = given.copy(order="K")
    elif isinstance(given, tuple | np.ndarray | MutableMapping | MutableSequence | MutableSet):
        found = copy.deepcopy(given)
    else:
        return value
    return found  # type: ignore[no-any-return]  # of the same kind


def copies(*names: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of a dataclass: the named fields are copied when they are set, and at every read.

    Code that only reads a field, often, finds the object's own value in `vars(self)`.
    """

    def decorate(kind: type[T]) -> type[T]:
        for name in names:
            setattr(kind, name, _Copied(name, kind.__dict__.get(name, MISSING)))
        return kind

    return decorate


class _Copied:
    """A field of which everybody gets a copy."""

    def __init__(self, name: str, default: object) -> None:
        self.name, self.default = name, default

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        value = self.default if instance is None else vars(instance).get(self.name, MISSING)
        if value is MISSING:
            raise AttributeError(self.name)
        return own(value)

    def __set__(self, instance: object, value: object) -> None:
        vars(instance)[self.name] = own(value)
