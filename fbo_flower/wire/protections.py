"""Flower's own protections of models, which do not fit the messages of tuning.

Its differential privacy clips the difference of two models and adds noise to it; its SecAgg+ masks models.
Around a tuning strategy or a tuning ClientApp they would change nothing, or the wrong arrays. They are found
on the call stack, because a wrapped strategy and an app behind a mod are called by them.
"""

from __future__ import annotations

import re
import sys

from fbo_flower.errors import ConfigError

REMEDY = (
    "it changes updates of models, and tuning sends none; use the algorithm dp-fts for differential privacy, "
    "and the option secure_sums for sums whose parts the server cannot see"
)
_MODULE = re.compile(
    r"flwr\.(serverapp\.strategy\.dp_|server\.strategy\.dp|server\.workflow\.secure_aggregation|"
    r"client(app)?\.mod\.(centraldp_mods|localdp_mod|secure_aggregation))"
)
_UNCOUNTED = "Config values must be either `bool`"
_NAMED = re.compile(r"\b(fixedclipping_mod|adaptiveclipping_mod|LocalDpMod|secagg(plus)?_mod)\b")


def check_unprotected(what: str) -> None:
    """Raise ConfigError if one of Flower's protections is among the callers.

    Parameters
    ----------
    what : what it is around, for the message
    """
    frame = sys._getframe(1)
    while frame is not None:
        if _MODULE.match(str(frame.f_globals.get("__name__", ""))):
            owner = frame.f_locals.get("self")
            name = frame.f_code.co_name if owner is None else type(owner).__name__
            raise ConfigError(f"{name}: expected {what} without it; {REMEDY}")
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop


def remedy_for(reason: str) -> str:
    """Return "; " and the remedy if an error is one of Flower's mods, "" if it is another one."""
    if REMEDY in reason:
        return ""
    if _UNCOUNTED in reason:
        return "; message_size_mod cannot count empty texts: use arrays_size_mod, or study.rounds"
    return f"; {REMEDY}" if _NAMED.search(reason) else ""
