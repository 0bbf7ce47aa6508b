"""The operator's settings for several evaluations at once, and for the time that one may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fbo_flower.algorithms.options import check_number
from fbo_flower.clients.memory import Memory

MAX_PARALLEL = 1024


@dataclass(frozen=True)
class Parallel:
    """How an agent evaluates the trials of a task.

    Parameters
    ----------
    num_parallel : evaluations at the same time, each in a process of its own; 1: one after the other
    trial_timeout : seconds that one evaluation may take; then its process is killed and the trial fails. 0:
        any number
    """

    num_parallel: int = 1
    trial_timeout: float = 0.0

    def __post_init__(self) -> None:
        check_number("num_parallel", self.num_parallel, 1, MAX_PARALLEL, integer=True)
        check_number("trial_timeout", self.trial_timeout, 0)

    @staticmethod
    def read(node_config: Mapping[str, Any], app: Parallel) -> Parallel:
        """Return the settings in `node_config`, and those of the app where it has none."""
        if "num_parallel" not in node_config and "trial_timeout" not in node_config:
            return app
        return Parallel(
            node_config.get("num_parallel", app.num_parallel),
            node_config.get("trial_timeout", app.trial_timeout),
        )

    @property
    def needs_workers(self) -> bool:
        """Whether evaluations run in worker processes."""
        return self.num_parallel > 1 or self.trial_timeout > 0

    def batch_size(self, memory: Memory, study: str, interrupted: bool) -> int:
        """Return the number of trials per batch of a task, which decides what is proposed.

        An interrupted task keeps the number with which it began, so that the evaluations in the journal fit,
        although the operator may have changed `num_parallel`.

        Parameters
        ----------
        interrupted : whether the memory holds evaluations of the task
        """
        name = f"batch size {study}"
        size = int(str(memory.note(name).get("size", 1)))
        if interrupted:
            return size
        if size != self.num_parallel:
            memory.put_note(name, {"size": self.num_parallel})
        return self.num_parallel
