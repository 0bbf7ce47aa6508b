"""Packages whose names are imported when they are used, so that importing the package takes no time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str], module: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package, or of a module in it.

    Parameters
    ----------
    package : the package's full name
    homes : name -> the module in the package that has it; "": the name is a module itself
    module : full name of the module that gets the functions; "": the package
    """

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not homes[name]:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module or package]), *homes})

    return import_name, names
