"""The agent's work on one task as a conversation: a session asks for evaluations and is sent their outcomes.

A session is a generator that reads from top to bottom like the paper's algorithm. It yields a `Query` (points
to evaluate), is sent the `Outcome`, and returns the agent's state after the task.

A driver that advances many agents together may answer further kinds of request, stacked over agents, without
a change to the sessions that do not use them. `run_task.py` drives a session for one agent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import Protocol

import numpy as np

from fbo_flower.algorithms.records import AgentState, Outcome, Query, Task

Session = Generator[Query, Outcome, AgentState]


class Draws(Protocol):
    """Random generators for one task: the same purpose and keys always give the same numbers."""

    def __call__(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the random generator for a purpose and keys."""
        ...


class Stepwise:
    """Mixin that builds a session from two methods: `propose` chooses a batch, `learn` stores its outcome."""

    @abstractmethod
    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        """Return the points to evaluate next, or None when the task is done."""

    def learn(
        self, task: Task, agent_state: AgentState, outcome: Outcome, rng: np.random.Generator
    ) -> AgentState:
        """Return the agent's state with the outcome of a proposed batch stored."""
        return agent_state.learn(outcome)

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        """Propose, evaluate, learn, until `propose` returns None."""
        while True:
            trial = agent_state.next_trial
            query = self.propose(task, agent_state, draws("propose", trial))
            if query is None:
                return agent_state
            outcome = yield query
            agent_state = self.learn(task, agent_state, outcome, draws("learn", trial))
