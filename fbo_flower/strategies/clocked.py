"""Grids with a clock of their own, for simulations in which time is computed instead of spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clocked(Protocol):
    """A grid that knows the time of its simulation."""

    def now(self) -> float:
        """Return the seconds since the simulation began."""
        ...

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""
        ...

    def advance(self, to: float) -> None:
        """Let time pass until `to`, in which nothing happens."""
        ...

    def restore(self, now: float, began: Mapping[int, float]) -> None:
        """Set the clock to `now`, and the time at which nodes began the tasks that they will get again."""
        ...
