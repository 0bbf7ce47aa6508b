"""Grids with a clock of their own, for simulations in which time is computed instead of spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from fbo_flower.strategies.task_times import SentAt


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

    def restore(self, now: float, sent: Sequence[SentAt]) -> None:
        """Set the clock to `now`, after these tasks were sent in an earlier process."""
        ...
