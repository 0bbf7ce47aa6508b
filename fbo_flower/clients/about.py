"""What an agent says of its machine in the roll-call: enough to find out why a federation does not work."""

from __future__ import annotations

import platform
import time
from importlib import metadata

from flwr.app import Context

from fbo_flower import __version__


def about(context: Context) -> dict[str, str | float]:
    """Return versions, the clock in seconds since 1970, and whether a journal is kept; not where."""
    return {
        "version": __version__,
        "flwr": metadata.version("flwr"),
        "python": platform.python_version(),
        "time": time.time(),
        "journal": "kept" if context.node_config.get("journal") else "none",
    }
