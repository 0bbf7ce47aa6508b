"""`TaskContext`: one task at one agent, what it draws from, and what is stored of it."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from fbo_flower.algorithms.records import Task, Trials
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import ContextOfTrial, ObjectiveContext
from fbo_flower.clients.pruning import Curve, CurveBook
from fbo_flower.errors import JournalError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator

_ASKED = ("trials", "points", "spans")  # what a row is before it is evaluated


@dataclass
class TaskContext:
    """One task at one agent.

    Parameters
    ----------
    agent, study : ids of the agent and of the study
    partition : its partition of a simulated data set; -1 on a device without one
    task : the verified task
    key : names the task in the agent's memory
    entropy : seed of the agent's random numbers in this study
    memory : the agent's memory, which stores evaluations
    node_config, run_config : settings of Flower's context
    simulated : whether the agent draws from the study's seed, as simulated agents do. Such an agent repeats
        its draws and promises no privacy
    make_book : returns the agent's completed curves, which trials that report values need
    stored : evaluations of this task from before an interruption that nobody has taken
    """

    agent: str
    study: str
    partition: int
    task: Task
    key: str
    entropy: int
    memory: Memory
    node_config: Mapping[str, Any]
    run_config: Mapping[str, Any]
    simulated: bool
    make_book: Callable[[], CurveBook] = CurveBook
    stored: deque[Trials] = field(init=False)

    def __post_init__(self) -> None:
        # evaluations that were made at once are stored in the order in which they ended
        found = self.memory.evaluations(self.study, self.key)
        self.stored = deque(sorted(found, key=lambda row: row.next_trial))

    @cached_property
    def book(self) -> CurveBook:
        """The agent's completed curves, from which trials learn when to stop; the evaluators fill it in."""
        return self.make_book()

    def take(self, row: Trials) -> Trials | None:
        """Return the stored evaluation of a row; None if it was not evaluated. Trials must ascend.

        JournalError if it belongs to another trial or point, because another version wrote the journal.
        """
        if not self.stored or self.stored[0].trials[0] > row.trials[0]:
            return None
        stored = self.stored.popleft()
        if not all(np.array_equal(getattr(stored, name), getattr(row, name)) for name in _ASKED):
            raise JournalError(
                f"journal: expected trial {row.trials[0]}, got trial {stored.trials[0]} at another point; "
                "the journal was written by another version of the algorithm: resume with that version, or "
                "start a new study"
            )
        return stored

    def append(self, row: Trials) -> None:
        """Store a new evaluation."""
        self.memory.append(self.study, self.key, row)

    def draws(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the random generator for a purpose in this phase; see `algorithms.requests.Draws`."""
        return generator(self.entropy, "agent", self.agent, purpose, str(self.task.phase), *keys)

    def private_integers(self, purpose: str, *keys: int) -> Callable[[int], int]:
        """Return a source of uniform integers in `[0, n)`: on a device one that nobody can seed or repeat."""
        if not self.simulated:
            return secrets.randbelow
        make = lru_cache(lambda: uniform_from(self.draws(purpose, *keys)))  # for the first number

        def integer(bound: int) -> int:
            return make()(bound)

        return integer

    def objective_context(self, trial: int, make_curve: Callable[[], Curve] = Curve) -> ObjectiveContext:
        """Return the context that the objective gets for a trial; with a plain `Curve` it never stops."""
        return ContextOfTrial(
            partial(generator, self.entropy, "agent", self.agent, "objective", trial), make_curve,
            agent=self.agent, partition=self.partition, trial=trial, server_round=self.task.round,
            node_config=self.node_config, run_config=self.run_config, study=self.study,
        )  # fmt: skip
