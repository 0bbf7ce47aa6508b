"""The interface that every algorithm implements: the server's half and the agent's half together.

An algorithm object holds its options and nothing else. State goes in and comes out, so replay, resume and
equality between engines need no code of their own. The server calls `init` once, then `ask` and `tell` in
every half-round. An agent runs one `session` per task, evaluates what the session asks for, then calls
`summarise` for what it sends back. `run_task.run_task` is the only function that drives a session.

What only some algorithms can do (secure sums, warm starts, privacy accounting, trained models, results of
the server) stands in `capabilities.py` as small protocols, checked with `isinstance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from fbo_flower.algorithms.options import Configurable
from fbo_flower.algorithms.records import (
    AgentState,
    Array,
    Federation,
    Payload,
    Phase,
    Report,
    Task,
)
from fbo_flower.algorithms.schema import Schema
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")

DEFAULT_ROUNDS = 25  # of an algorithm that never finishes, unless `num_rounds` is given


@dataclass(frozen=True, kw_only=True)
class Algorithm(Configurable, ABC, Generic[State]):
    """A federated optimiser. Subclasses are frozen dataclasses whose fields are their options.

    Attributes
    ----------
    name : as users type it
    phases : half-rounds of every round in which it asks agents for something
    finishes : whether it ends by itself, when its budget is spent
    """

    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN,)
    finishes: ClassVar[bool] = False

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Algorithm[Any]:
        """Build the algorithm from options by name.

        Raises
        ------
        ConfigError
            If an option is unknown (the message lists the known ones) or its value is not allowed.
        """
        return cls(**cls.known_options(options))

    # -- the server's half ---------------------------------------------------------------------

    @abstractmethod
    def init(self, federation: Federation, rng: np.random.Generator) -> State:
        """Return the server's state before the first round."""

    @abstractmethod
    def ask(
        self, state: State, phase: Phase, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> tuple[State, dict[str, Task]]:
        """Return the new state and the tasks of one half-round, for some of the agents that are present.

        Parameters
        ----------
        state : left unchanged
        present : agents that can be reached, in natural order; may be fewer or more than at the start
        """

    @abstractmethod
    def tell(self, state: State, phase: Phase, reports: Mapping[str, Report]) -> State:
        """Return the state after the reports of the agents that answered, in natural order of agents."""

    def finished(self, state: State) -> bool:
        """Return whether the algorithm has nothing left to ask."""
        return False

    # -- the agent's half ----------------------------------------------------------------------

    @abstractmethod
    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        """Return the agent's work on one task, as a generator.

        It yields a `Query` for every batch it wants evaluated, receives the `Outcome`, and returns the
        agent's state after the task.

        Parameters
        ----------
        draws : `draws(purpose, *keys)` returns a generator of random numbers that depends on these, on the
            agent, the study and the phase, and on nothing else
        """

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Payload:
        """Return exactly what leaves the agent after a task.

        In the EVALUATE half-round Flower carries scalars only, so `arrays` must be empty there.
        """
        return Payload()

    def recommend(self, agent_state: AgentState) -> Array | None:
        """Return the agent's own best point `(D,)`, None before the first success."""
        values = agent_state.history.values
        if not np.isfinite(values).any():
            return None
        best: Array = agent_state.history.points[int(np.nanargmax(values))]
        return best

    # -- what may cross the wire ---------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        """Return the arrays and values that a task may hold."""
        return Schema()

    def report_schema(self, space: SearchSpace) -> Schema:
        """Return the arrays and values that a report may hold."""
        return Schema()

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if a report that fits the schema does not answer the task."""
        return
