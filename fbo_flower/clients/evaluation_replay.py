"""`EvaluationReplay`: reuse the evaluations that an agent made for a task before it was interrupted."""

from __future__ import annotations

from collections import deque

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import JournalError
from fbo_flower.storage.agent_journal import Evaluation


class EvaluationReplay:
    """The stored evaluations of one task, and the new ones.

    Parameters
    ----------
    memory : the agent's memory, which stores them
    study, task : study and key of the task
    """

    def __init__(self, memory: Memory, study: str, task: str) -> None:
        self._memory, self._study, self._task = memory, study, task
        # evaluations that were made at once are stored in the order in which they ended
        self._stored = deque(sorted(memory.evaluations(study, task), key=lambda stored: stored.trial))

    @property
    def num_left(self) -> int:
        """Number of stored evaluations that nobody has taken."""
        return len(self._stored)

    def take(self, trial: int, point: Array, span: int) -> Evaluation | None:
        """Return the stored evaluation of a trial; None if it was not evaluated. Trials must ascend.

        Raises
        ------
        JournalError
            If it belongs to another trial or point, because another version wrote the journal.
        """
        if not self._stored or self._stored[0].trial > trial:
            return None
        stored = self._stored.popleft()
        if stored.trial != trial or stored.span != span or not np.array_equal(stored.point, point):
            raise JournalError(
                f"journal: expected trial {trial}, got trial {stored.trial} at another point; "
                "the journal was written by another version of the algorithm: resume with that version, or "
                "start a new study"
            )
        return stored

    def append(self, evaluation: Evaluation) -> None:
        """Store a new evaluation."""
        self._memory.append(self._study, self._task, evaluation)
