"""Texts of the errors when too few agents register."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fbo_flower.space.space import SearchSpace


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


def spaces_of(groups: Mapping[str, list[str]]) -> str:
    """Return which agents have which search space; `groups` maps a digest to agents, largest group first."""
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{digest[:12]} at {shorten(agents)}" for digest, agents in ordered)


def differing(spaces: Sequence[SearchSpace]) -> str:
    """Return the names of the parameters in which search spaces differ, or that only their order does."""
    names = dict.fromkeys(name for space in spaces for name in space.parameters)
    first = spaces[0].parameters
    differ = [name for name in names if any(s.parameters.get(name) != first.get(name) for s in spaces)]
    if not differ:
        return "the order of the parameters"
    return ", ".join(name[:40] for name in differ[:5]) + ", ..." * (len(differ) > 5)
