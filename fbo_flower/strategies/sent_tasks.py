"""`SentTask`, and `Unanswered`: an agent that owes an answer gets the same task again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from flwr.app import RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.storage.agent_journal import task_key


@dataclass(frozen=True)
class SentTask:
    """A task, and the content of the message that carries it.

    Parameters
    ----------
    late : whether this is an earlier task that was not answered, instead of the one that the algorithm made
        now. Of its report the algorithm gets the numbers of trials only
    made_in, made_after : the round in which the task was made, and how many answers the run had told then
    """

    agent: str
    task: Task
    envelope: wire.Envelope
    content: RecordDict
    late: bool = False
    made_in: int = 0
    made_after: int = 0


@dataclass
class Unanswered:
    """The tasks that agents have not answered with a valid report.

    Parameters
    ----------
    tasks : agent and phase -> the last task, if it was not answered
    """

    tasks: dict[tuple[str, Phase], Task] = field(default_factory=dict)

    def to_send(self, algorithm: Algorithm[Any], agent: str, task: Task) -> Task:
        """Return a task, or the earlier one about the same work that the agent has not answered yet; note it.

        An agent answers each piece of work once. It may have answered the earlier task, or begun to: then it
        refuses another one, and what it has evaluated already is not evaluated again.
        """
        task = self._answerable(algorithm, agent, task)
        self.tasks[agent, task.phase] = task
        return task

    def answered(self, agent: str, phase: Phase) -> None:
        """Note that an agent has sent a valid report."""
        self.tasks.pop((agent, phase), None)

    def _answerable(self, algorithm: Algorithm[Any], agent: str, task: Task) -> Task:
        earlier = self.tasks.get((agent, task.phase))
        if earlier is None or (earlier.trial, earlier.num_trials > 0) != (task.trial, task.num_trials > 0):
            return task
        if not task.num_trials and algorithm.inner.report_kind(task) != algorithm.inner.report_kind(earlier):
            return task
        if task.phase not in {Phase.TRAIN, Phase.FINISH} and algorithm.sums_securely:
            return task  # an exchange within a secure sum
        before = algorithm.evaluation_task(earlier)
        if task_key(before) == task_key(algorithm.evaluation_task(task)):
            return task
        return replace(before, round=task.round)
