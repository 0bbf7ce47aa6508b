"""The server's record of each agent's trials, of who answers, and of the content of its last task.

`Independent` is the base of algorithms whose agents tune alone. The generator of `uniform_point` depends only
on the seed, the agent and the trial, so all algorithms with one seed start from the same points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from numpy.random import Generator

from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.options import TrialsPerRound
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials

Content = TypeVar("Content")
MAX_MISSED = 3  # the end of a run is not delayed for an agent that left this many tasks in a row unanswered


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
        trials = dict(self.next_trial)
        for agent, report in reports.items():
            trials[agent] = max(report.trial + report.num_trials, trials.get(agent, 0))
        return Progress(trials)


@dataclass(frozen=True)
class Attendance:
    """Which agents answer their tasks.

    An agent that left its last task unanswered is silent. A shared stage does not wait for silent agents, but
    they still get tasks. The first valid report ends the silence.

    Parameters
    ----------
    asked : agents with a task in the open half-round
    missed : silent agent -> how many tasks in a row it left unanswered
    """

    asked: tuple[str, ...] = ()
    missed: Mapping[str, int] = field(default_factory=dict)

    def ask(self, agents: Iterable[str]) -> Attendance:
        """Return the record with the agents that get a task now."""
        return Attendance(tuple(agents), self.missed)

    def tell(self, reports: Iterable[str]) -> Attendance:
        """Return the record after a half-round in which the agents `reports` answered."""
        return self.hear(reports).give_up(())

    def hear(self, reports: Iterable[str]) -> Attendance:
        """Return the record after the agents `reports` answered, while others are still at work."""
        answered = set(reports)
        missed = {agent: number for agent, number in self.missed.items() if agent not in answered}
        return Attendance(tuple(agent for agent in self.asked if agent not in answered), missed)

    def give_up(self, at_work: Iterable[str]) -> Attendance:
        """Return the record in which agents that were asked, and are not at work, have missed their task."""
        busy, missed = tuple(at_work), dict(self.missed)
        for agent in self.asked:
            if agent not in busy:
                missed[agent] = missed.get(agent, 0) + 1
        return Attendance(busy, missed)

    def is_silent(self, agent: str) -> bool:
        """Return whether an agent left its last task unanswered.

        Its next report may be about that earlier task. The server then knows only that it made trials.
        """
        return agent in self.missed

    def responsive(self, agents: Iterable[str]) -> list[str]:
        """Return the agents that are not silent, in the given order."""
        return [agent for agent in agents if agent not in self.missed]

    def is_over(self, agents: Sequence[str], progress: Progress, budget: int) -> bool:
        """Return whether all agents have spent their budget, or are silent while the others have.

        If all agents fall silent after the first trial, the run waits for one of them.
        """
        spent = [progress.of(agent) >= budget for agent in agents]
        gone = [self.missed.get(agent, 0) >= MAX_MISSED for agent in agents]
        begun = any(progress.of(agent) > 0 for agent in agents)
        return all(s or g for s, g in zip(spent, gone, strict=True)) and (any(spent) or not begun)


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


def uniform_point(agent_state: AgentState, rng: Generator) -> Trials:
    """Return one uniform point of the search space."""
    return Trials(rng.random((1, agent_state.space.dimension)))


@dataclass(frozen=True, kw_only=True)
class Independent(TrialsPerRound, Algorithm[Progress]):
    """Every agent tunes alone: an initial design in one batch, then `trials_per_round` trials per round."""

    barrier: ClassVar[str] = ""
    needs_all_parameters: ClassVar[str] = ""

    def init(self, federation: Federation, rng: Generator) -> Progress:
        return Progress()

    def ask(
        self, state: Progress, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[Progress, dict[str, Task]]:
        tasks = {}
        for agent in present if phase is Phase.TRAIN else ():
            trial = state.of(agent)
            tasks[agent] = Task(phase, server_round, trial, self.trials_from(trial))
        return state, tasks

    def tell(self, state: Progress, phase: Phase, reports: Replies) -> Progress:
        return state.advance(reports)
