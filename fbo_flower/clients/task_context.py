"""What an agent knows while it works on one task: who it is, what was asked, and where it keeps its work."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Outcome, Query, Task
from fbo_flower.clients.evaluation_replay import EvaluationReplay
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator


@dataclass(frozen=True)
class TaskContext:
    """One task at one agent.

    Parameters
    ----------
    agent : its id
    partition : its partition of a simulated data set; -1 on a device without one
    task : as it was verified
    entropy : of the agent's draws in this study
    memory : what it remembers
    replay : evaluations of this task, made before the agent was cut off or now
    node_config, run_config : Flower's
    simulated : whether the agent draws from the study's seed, as simulated agents do. Such an agent repeats
        its draws and promises no privacy
    """

    agent: str
    partition: int
    task: Task
    entropy: int
    memory: Memory
    replay: EvaluationReplay
    node_config: Mapping[str, Any]
    run_config: Mapping[str, Any]
    simulated: bool

    def draws(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the generator of a purpose in this phase; see `algorithms.session.Draws`."""
        return generator(self.entropy, "agent", self.agent, purpose, str(self.task.phase), *keys)

    def private_integers(self, purpose: str, *keys: int) -> Callable[[int], int]:
        """Return the source of noise that protects an answer: `source(n)` is a uniform integer in `[0, n)`.

        On a device it is the operating system's generator, which nobody can seed or repeat.
        """
        return uniform_from(self.draws(purpose, *keys)) if self.simulated else secrets.randbelow

    def objective_context(self, trial: int) -> ObjectiveContext:
        """Return what the objective is told beside the configuration of a trial."""
        return ObjectiveContext(
            self.agent,
            self.partition,
            trial,
            self.task.round,
            generator(self.entropy, "agent", self.agent, "objective", trial),
            self.node_config,
            self.run_config,
        )


class Evaluator(Protocol):
    """Has the queries of one task evaluated."""

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        """Return what came of a query, whose first trial has this id."""
        ...

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return what the agent's state shall hold of the evaluations beside the algorithm's own arrays."""
        ...
