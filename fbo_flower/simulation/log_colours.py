"""No colour codes in the log of a script whose output goes to a file or a pipe.

Flower colours the level of every line, whether its log goes to a terminal or not.
"""

from __future__ import annotations

import logging

from flwr.common.logger import LOGGER_NAME, ConsoleHandler


def colour_terminals_only() -> None:
    """Switch off the colours of Flower's log where it does not go to a terminal."""
    for handler in logging.getLogger(LOGGER_NAME).handlers:
        if isinstance(handler, ConsoleHandler) and not handler.stream.isatty():
            handler.colored = False
