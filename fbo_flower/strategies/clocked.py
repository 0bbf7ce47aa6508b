"""Grids with a clock of their own, for simulations in which time is computed instead of spent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SentAt:
    """A task that was sent.

    Parameters
    ----------
    time : seconds of the simulated clock
    agent : by its own name
    trial, num_trials : its first evaluation and how many it asks for
    """

    time: float
    agent: str
    trial: int
    num_trials: int


class Clocked(ABC):
    """A grid that knows the time of its simulation."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since the simulation began."""

    @abstractmethod
    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""

    @abstractmethod
    def advance(self, to: float) -> None:
        """Let time pass until `to`, in which nothing happens."""

    @abstractmethod
    def restore(self, now: float, sent: Sequence[SentAt]) -> None:
        """Set the clock to `now`, after these tasks were sent in an earlier process."""
