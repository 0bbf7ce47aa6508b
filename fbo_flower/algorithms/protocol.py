"""The interface that every algorithm implements: methods of the server and methods of the agent.

An algorithm object holds its options and nothing else. Its methods take a state and return a new one, so
replay, resume and equality between engines need no code in an algorithm. A round has two half-rounds, TRAIN
and EVALUATE. The server calls `init` once, then `ask` and `tell` in every half-round. An agent runs one
`session` per task, evaluates the points that the session yields, then calls `summarise` to get the content of
its report. Only `run_task` in `run_task.py` drives a session.

Abilities that some algorithms have and others have not (secure sums, warm starts, privacy accounting, trained
models, results of the server) are small protocols in `capabilities.py`, checked with `isinstance`.
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
from fbo_flower.algorithms.requests import Rng, Steps
from fbo_flower.algorithms.schema import Schema
from fbo_flower.algorithms.session import Draws, Session
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")

DEFAULT_ROUNDS = 25  # rounds of an algorithm that does not end by itself, unless `num_rounds` is given


@dataclass(frozen=True, kw_only=True)
class Algorithm(Configurable, ABC, Generic[State]):
    """A federated optimiser. Subclasses are frozen dataclasses whose fields are their options.

    Attributes
    ----------
    name : the algorithm's name as users type it
    phases : the half-rounds in which it sends tasks to agents
    finishes : whether it ends by itself, once its budget is spent
    barrier : why the answers of a round are needed together, as a clause after "because"; "": they are not,
        so each agent may get its next task at once
    needs_all_parameters : why no agent may hold some parameters at values of its own, as a clause; "": it may
    """

    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN,)
    finishes: ClassVar[bool] = False
    barrier: ClassVar[str] = "its rounds need the answers of all agents together"
    needs_all_parameters: ClassVar[str] = "all agents evaluate points that are chosen for them together"

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
        """Return the new state, and the tasks of one half-round for some or all of the agents present.

        Parameters
        ----------
        state : the server's state; left unchanged
        present : agents that can be reached, in natural order; may be fewer or more than at registration

        Returns
        -------
        the new state, and agent -> task
        """

    @abstractmethod
    def tell(self, state: State, phase: Phase, reports: Mapping[str, Report]) -> State:
        """Return the state after the reports of the agents that answered, in natural order of agents."""

    def finished(self, state: State) -> bool:
        """Return whether the study is over: the algorithm will send no more tasks."""
        return False

    # -- the agent's half ----------------------------------------------------------------------

    @abstractmethod
    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        """Return a generator that does the agent's work on one task.

        It yields a `Query` for every batch to evaluate, is sent the batch's `Outcome`, and returns the
        agent's state after the task.

        Parameters
        ----------
        draws : `draws(purpose, *keys)` returns a random generator that depends only on these arguments, the
            agent, the study and the phase
        """

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Payload:
        """Return the arrays and values that the agent sends in its report; nothing else leaves it.

        In the EVALUATE half-round Flower carries only scalars, so `arrays` must be empty there.
        """
        return Payload()

    def summarising(self, task: Task, agent_state: AgentState, rng: Rng) -> Steps[Payload]:
        """Return `summarise` as steps, see `session.Stepwise`; `rng()` makes its generator."""
        if type(self).summarise is Algorithm.summarise:  # it draws nothing: no generator is made
            return Payload()
        return self.summarise(task, agent_state, rng())
        yield from ()  # never reached: it makes this function a generator

    def recommend(self, agent_state: AgentState) -> Array | None:
        """Return the point `(D,)` that the agent should use, None before the first successful evaluation."""
        values = agent_state.history.final_values()
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
