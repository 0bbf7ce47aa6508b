"""When agents got their tasks in an asynchronous study, so that a simulated clock can be restored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from fbo_flower.storage import Event


@dataclass
class TaskTimes:
    """Times of an asynchronous run, in seconds of its clock.

    Parameters
    ----------
    now : when the run did its last step
    made : agent -> when its task was made
    sent : agent -> when its task was sent for the last time
    """

    now: float = 0.0
    made: dict[str, float] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)

    def note(self, now: float, asked: Iterable[str] = (), again: Collection[str] = ()) -> dict[str, object]:
        """Note a step, and return its times for the journal.

        Parameters
        ----------
        asked : agents that get a task now
        again : those of them that get the same task once more
        """
        self.now = now
        for agent in asked:
            self.sent[agent] = now
            if agent not in again or agent not in self.made:
                self.made[agent] = now
        return {"time": now, "asked": sorted(asked), "again": sorted(again)}

    def replay(self, event: Event) -> None:
        """Note the step in an entry of the journal, if it holds its times."""
        values: Mapping[str, object] = event.values
        if "time" in values:
            asked, again = (cast(list[str], values[name]) for name in ("asked", "again"))
            self.note(float(cast(float, values["time"])), asked, again)
