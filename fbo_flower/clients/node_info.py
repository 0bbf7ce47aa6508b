"""What an agent says of its machine in the roll-call: enough to find out why a federation does not work."""

from __future__ import annotations

import platform
import time
from functools import cache
from importlib import metadata

from flwr.app import Context

from fbo_flower import __version__


def node_info(context: Context) -> dict[str, str | float]:
    """Return versions, the clock in seconds since 1970, and whether a journal is kept; not where."""
    return {
        "version": __version__,
        "flwr": _flower_version(),
        "python": platform.python_version(),
        "time": time.time(),
        "journal": "kept" if context.node_config.get("journal") else "none",
    }


@cache
def _flower_version() -> str:
    return metadata.version("flwr")  # it reads a file, and a simulation asks for every agent
