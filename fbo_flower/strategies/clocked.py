"""Grids with a clock of their own, for simulations in which time is computed instead of spent.

`TaskTimes` notes when agents got their tasks, so that a resumed study goes on at the time of its clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from fbo_flower.storage import Event


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


@dataclass
class TaskTimes:
    """Times of a run, in seconds of its simulated clock.

    Parameters
    ----------
    now : when the run did its last step
    sent : agent -> when its last task was sent
    before : the tasks that were sent in earlier processes, in order
    """

    now: float = 0.0
    sent: dict[str, float] = field(default_factory=dict)
    before: list[SentAt] = field(default_factory=list)

    def note(self, now: float, asked: Iterable[str] = ()) -> dict[str, object]:
        """Note a step in which these agents get tasks, and return its time for the journal."""
        self.now = now
        self.sent |= dict.fromkeys(asked, now)
        return {"time": now}

    def replay(self, event: Event) -> None:
        """Note the step in an entry of the journal, if it holds its time."""
        if "time" in event.values:
            self.now = float(cast(float, event.values["time"]))

    def replay_tasks(self, tasks: Iterable[tuple[str, SentAt]]) -> None:
        """Note the tasks of the step that was replayed last, by the names under which agents have joined."""
        for agent, task in tasks:
            self.sent[agent] = self.now
            self.before.append(task)


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
