"""A mapping whose classes are imported when they are asked for: a device uses one algorithm of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from fbo_flower.algorithms.protocol import Algorithm


class Catalogue(Mapping[str, type[Algorithm[Any]]]):
    """Algorithms by name.

    Parameters
    ----------
    homes : name -> "module:Class", the module in this package
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = dict(homes)

    def __getitem__(self, name: str) -> type[Algorithm[Any]]:
        module, _, kind = self._homes[name].partition(":")
        return getattr(import_module(f"fbo_flower.algorithms.{module}"), kind)  # type: ignore[no-any-return]  # its kind is written down

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def find(self, kind: str) -> type[Algorithm[Any]]:
        """Return the algorithm whose class has this name; AttributeError if there is none."""
        for name, home in self._homes.items():
            if home.partition(":")[2] == kind:
                return self[name]
        raise AttributeError(f"module 'fbo_flower.algorithms' has no attribute {kind!r}")
