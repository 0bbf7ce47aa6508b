"""Texts of the errors when too few agents register."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def all_refused(refused: Mapping[int, str]) -> str:
    """Return the text of the error that no node takes part."""
    reasons = Counter(refused.values()).most_common()
    count, others = len(refused), len(reasons) - 1
    who = "the only node refuses" if count == 1 else f"all {count} nodes refuse"
    more = f"; {others} other reasons are in the log" if others else ""
    return f"agents: expected nodes that take part, {who}: {reasons[0][0]}{more}"


def too_few(
    expected: int | None, got: int, connected: int, seconds: float, refused: Mapping[int, str]
) -> str:
    """Return the text of the error that too few agents have registered."""
    text = f"agents: expected {expected or 'at least 1'}, only {got} registered after {seconds:g} s"
    if connected > got + len(refused):
        text += f"; {connected - got - len(refused)} connected nodes did not answer"
    if refused:
        text += f"; {len(refused)} were refused, the first because: {next(iter(refused.values()))}"
    if connected < (expected or 1):
        text += "; start more SuperNodes"
        if expected:
            text += f" or set num-supernodes={expected}"
    return text


def shorten(agents: list[str]) -> str:
    """Return the names of the first agents, for a message."""
    names = ", ".join(agents[:5])
    return f"agent {names}" if len(agents) == 1 else f"agents {names}{', ...' if len(agents) > 5 else ''}"
