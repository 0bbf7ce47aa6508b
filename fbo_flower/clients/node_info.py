"""`node_info`: what an agent reports about its machine at registration, for `fbo-flower doctor`."""

from __future__ import annotations

import platform
import time
from functools import cache
from importlib import metadata

from flwr.app import Context

from fbo_flower import __version__


def node_info(context: Context) -> dict[str, str | float]:
    """Return versions, the clock in seconds since 1970, and whether there is a journal, without its path."""
    return {
        "version": __version__,
        "flwr": _flower_version(),
        "python": platform.python_version(),
        "time": time.time(),
        "journal": "kept" if context.node_config.get("journal") else "none",
    }


@cache
def _flower_version() -> str:
    return metadata.version("flwr")  # cached: it reads a file, and a simulation calls it for every agent
