"""The agent's work on one task as a conversation: a session asks for evaluations and is told their outcomes.

A session is a generator. It reads from top to bottom like the paper's algorithm, yields what it needs, and is
sent the result; its return value is the agent's state after the task. Today it yields `Query` (evaluate these
points). A driver that advances many agents together may answer further kinds of request, stacked over
agents, without a change to the sessions that do not use them. `run_task.py` drives a session for one agent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import Protocol

import numpy as np

from fbo_flower.algorithms.records import AgentState, Outcome, Query, Task

Session = Generator[Query, Outcome, AgentState]


class Draws(Protocol):
    """Generators of random numbers for one task, by purpose: the same purpose and keys, the same numbers."""

    def __call__(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the generator of a purpose."""
        ...


class Stepwise:
    """Mixin for algorithms that choose each batch anew: `propose` and `learn` instead of a whole session."""

    @abstractmethod
    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        """Return what to evaluate next, or None when the task is done."""

    def learn(
        self, task: Task, agent_state: AgentState, outcome: Outcome, rng: np.random.Generator
    ) -> AgentState:
        """Return the agent's state after an evaluation."""
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
