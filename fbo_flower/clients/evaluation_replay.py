"""The evaluations of one task: those that were made before the agent was cut off, and those made now."""

from __future__ import annotations

from collections import deque

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import JournalError
from fbo_flower.storage.agent_journal import Evaluation


class EvaluationReplay:
    """What an agent writes down while it works on a task.

    Parameters
    ----------
    memory : where it is kept
    study, task : what the evaluations belong to
    """

    def __init__(self, memory: Memory, study: str, task: str) -> None:
        self._memory, self._study, self._task = memory, study, task
        self._made = deque(memory.evaluations(study, task))

    def take(self, trial: int, point: Array, span: int) -> Evaluation | None:
        """Return the next evaluation that was made before, None if there is none left.

        Raises
        ------
        JournalError
            If it is another one than is wanted now: another version has written the journal.
        """
        if not self._made:
            return None
        made = self._made.popleft()
        if made.trial != trial or made.span != span or not np.array_equal(made.point, point):
            raise JournalError(
                f"journal: expected trial {trial} next, got trial {made.trial} at another point; "
                "the journal was written by another version of the algorithm"
            )
        return made

    def enter(self, evaluation: Evaluation) -> None:
        """Write an evaluation down."""
        self._memory.append(self._study, self._task, evaluation)
