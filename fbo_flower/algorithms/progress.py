"""The server's bookkeeping of trials: how far each agent has come, and what its open task carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fbo_flower.algorithms.records import Report

Content = TypeVar("Content")


@dataclass(frozen=True)
class Progress:
    """How far each agent has come: the id of its next trial.

    The server counts trials and advances when a report confirms them. A task whose report was lost is asked
    again with the same ids, so an agent that did the work does not do it twice.
    """

    next_trial: Mapping[str, int] = field(default_factory=dict)

    def of(self, agent: str) -> int:
        """Return the id of the next trial of `agent`."""
        return self.next_trial.get(agent, 0)

    def advance(self, reports: Mapping[str, Report]) -> Progress:
        """Return the progress after `reports`."""
        ends = {agent: report.trial + report.num_trials for agent, report in reports.items()}
        return Progress({**self.next_trial, **{a: max(end, self.of(a)) for a, end in ends.items()}})


def once_per_trial(
    sent: dict[str, tuple[int, Content]], agent: str, trial: int, draw: Callable[[], Content]
) -> Content:
    """Return the content of an agent's task for `trial`; `draw` makes it when the trial is first asked for.

    A task that is sent again, because its report was lost, carries what it carried before.

    Parameters
    ----------
    sent : agent -> trial and content that were sent last; a new draw is entered here
    """
    if agent not in sent or sent[agent][0] != trial:
        sent[agent] = trial, draw()
    return sent[agent][1]
