"""`TaskContext`: the agent, the task and the agent's memory, while the agent runs a task."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Outcome, Query, Task
from fbo_flower.clients.curve_book import CurveBook
from fbo_flower.clients.evaluation_replay import EvaluationReplay
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import ObjectiveContext, context_of_trial
from fbo_flower.clients.pruning import Curve
from fbo_flower.clients.trial_times import Times
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator


@dataclass(frozen=True)
class TaskContext:
    """One task at one agent.

    Parameters
    ----------
    agent : id of the agent
    study : id of the study
    partition : its partition of a simulated data set; -1 on a device without one
    task : the verified task
    entropy : seed of the agent's random numbers in this study
    memory : the agent's memory
    replay : evaluations of this task from before an interruption; it also stores new ones
    node_config, run_config : settings of Flower's context
    simulated : whether the agent draws from the study's seed, as simulated agents do. Such an agent repeats
        its draws and promises no privacy
    times : when each row of the task was evaluated; the evaluators fill it in
    book : the agent's completed curves, from which trials learn when to stop; the evaluators fill it in
    """

    agent: str
    study: str
    partition: int
    task: Task
    entropy: int
    memory: Memory
    replay: EvaluationReplay
    node_config: Mapping[str, Any]
    run_config: Mapping[str, Any]
    simulated: bool
    times: Times = field(default_factory=dict)
    book: CurveBook = field(default_factory=CurveBook)

    def draws(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the random generator for a purpose in this phase; see `algorithms.session.Draws`."""
        return generator(self.entropy, "agent", self.agent, purpose, str(self.task.phase), *keys)

    def private_integers(self, purpose: str, *keys: int) -> Callable[[int], int]:
        """Return the source of noise that protects an answer: `source(n)` is a uniform integer in `[0, n)`.

        On a device it is the operating system's generator, which nobody can seed or repeat.
        """
        if not self.simulated:
            return secrets.randbelow
        drawn: list[Callable[[int], int]] = []  # the generator is made for the first number

        def integer(bound: int) -> int:
            if not drawn:
                drawn.append(uniform_from(self.draws(purpose, *keys)))
            return drawn[0](bound)

        return integer

    def objective_context(self, trial: int, curve: Curve | None = None) -> ObjectiveContext:
        """Return the context that the objective gets for a trial.

        Parameters
        ----------
        curve : takes what the trial reports; None: nothing is recorded, and it never stops
        """
        return context_of_trial(
            self.agent,
            self.partition,
            trial,
            self.task.round,
            lambda: generator(self.entropy, "agent", self.agent, "objective", trial),
            self.node_config,
            self.run_config,
            curve,
        )


class Evaluator(Protocol):
    """Evaluates the queries of one task."""

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        """Return the outcome of a query; its trials are numbered from `first_trial`."""
        ...

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return arrays about the evaluations that the agent's state stores with the algorithm's arrays."""
        ...
