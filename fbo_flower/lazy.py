"""What is imported when it is used: names, so that importing the package takes no time, and extras."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from fbo_flower.errors import ConfigError, did_you_mean


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


def required(module: str, caller: str, title: str = "", extra: str = "") -> Any:  # the module, without types
    """Return a module that need not be installed; ConfigError says what to install if there is none.

    Parameters
    ----------
    caller : what needs it
    title : of the package; "": as the module
    extra : of fbo-flower that installs it; "": as the package, in small letters
    """
    title = title or module
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{caller}: {title} is not installed; run pip install 'fbo-flower[{extra or title.lower()}]'"
        ) from error
