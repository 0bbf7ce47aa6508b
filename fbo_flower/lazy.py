"""Packages whose names are imported when they are used, so that importing the package takes no time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from fbo_flower.errors import did_you_mean


def lazily(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package, or of a module in it.

    Parameters
    ----------
    module : its `__name__`
    homes : name -> the module in the package that has it; "": the name is a module itself
    """
    package = sys.modules[module].__package__

    def import_name(name: str) -> Any:
        if name not in homes:
            hint = "" if name.startswith("_") else did_you_mean(name, homes)  # hasattr asks for private ones
            raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")
        if not homes[name]:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return import_name, names
