"""Import pandas when it is needed; it is optional."""

from __future__ import annotations

import importlib
from typing import Any

from fbo_flower.errors import ConfigError


def require_pandas(caller: str) -> Any:  # the module, which has no types of its own
    """Return the module pandas.

    Raises
    ------
    ConfigError
        If pandas is not installed; the message says what to install.
    """
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise ConfigError(
            f"{caller}: pandas is not installed; run pip install 'fbo-flower[pandas]'"
        ) from error
