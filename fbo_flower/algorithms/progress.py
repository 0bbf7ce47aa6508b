"""The server's record of each agent's trials, and of the content of its last task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fbo_flower.algorithms.records import Report

Content = TypeVar("Content")


@dataclass(frozen=True)
class Progress:
    """Agent -> id of its next trial.

    The server counts an agent's trials when their report arrives. If a report is lost, the server sends the
    task again with the same trial ids, so the agent does not evaluate the same trials twice.
    """

    next_trial: Mapping[str, int] = field(default_factory=dict)

    def of(self, agent: str) -> int:
        """Return the id of the next trial of `agent`, 0 for a new agent."""
        return self.next_trial.get(agent, 0)

    def advance(self, reports: Mapping[str, Report]) -> Progress:
        """Return the progress with the trials of `reports` counted."""
        ends = {agent: report.trial + report.num_trials for agent, report in reports.items()}
        return Progress({**self.next_trial, **{a: max(end, self.of(a)) for a, end in ends.items()}})


def once_per_trial(
    sent: dict[str, tuple[int, Content]], agent: str, trial: int, draw: Callable[[], Content]
) -> Content:
    """Return the random content of an agent's task for `trial`; call `draw` only for a new trial.

    If a report is lost and the task is sent again, it has the same content as before.

    Parameters
    ----------
    sent : agent -> trial and content of its last task; updated in place after a new draw
    draw : draws the content
    """
    if agent not in sent or sent[agent][0] != trial:
        sent[agent] = trial, draw()
    return sent[agent][1]
