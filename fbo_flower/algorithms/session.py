"""The agent's work on one task as a conversation: a session asks for evaluations and is sent their outcomes.

A session is a generator that reads from top to bottom like the paper's algorithm. It yields a `Query` (points
to evaluate), is sent the `Outcome`, and returns the agent's state after the task.

It may also yield a `Request` for a computation (`requests.py`), and is sent its result. The requests of
agents that advance together are computed at once; a session that yields none stays as it is. `run_task.py`
drives sessions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from functools import lru_cache, partial
from typing import Any, Protocol, cast

import numpy as np

from fbo_flower.algorithms.records import AgentState, Outcome, Query, Task
from fbo_flower.algorithms.requests import Request, Rng, Steps

Session = Generator[Query | Request, Any, AgentState]


class Draws(Protocol):
    """Random generators for one task: the same purpose and keys always give the same numbers."""

    def __call__(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the random generator for a purpose and keys."""
        ...


class Stepwise:
    """Mixin that builds a session from two methods: `propose` chooses a batch, `learn` stores its outcome.

    Write `proposing` and `learning` instead, as `Steps`, if their computations should be stacked over agents.
    Of the two forms of a method the one counts that the most derived class defines.
    """

    @abstractmethod
    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        """Return the points to evaluate next, or None when the task is done."""

    def learn(
        self, task: Task, agent_state: AgentState, outcome: Outcome, rng: np.random.Generator
    ) -> AgentState:
        """Return the agent's state with the outcome of a proposed batch stored."""
        return agent_state.learn(outcome)

    def proposing(self, task: Task, agent_state: AgentState, rng: Rng) -> Steps[Query | None]:
        """Return `propose` as steps; `rng()` makes its generator."""
        return self.propose(task, agent_state, rng())
        yield from ()  # never reached: it makes this function a generator

    def learning(self, task: Task, agent_state: AgentState, outcome: Outcome, rng: Rng) -> Steps[AgentState]:
        """Return `learn` as steps."""
        if type(self).learn is Stepwise.learn:  # it draws nothing: no generator is made
            return agent_state.learn(outcome)
        return self.learn(task, agent_state, outcome, rng())
        yield from ()

    def session(self, task: Task, agent_state: AgentState, draws: Draws) -> Session:
        """Propose, evaluate, learn, until `propose` returns None."""
        proposing = steps_of(self, Stepwise, "propose", "proposing")
        learning = steps_of(self, Stepwise, "learn", "learning")
        while True:
            trial = agent_state.next_trial
            query = yield from proposing(task, agent_state, partial(draws, "propose", trial))
            if query is None:
                return agent_state
            outcome = yield query
            agent_state = yield from learning(task, agent_state, outcome, partial(draws, "learn", trial))


def steps_of(algorithm: object, base: type, method: str, steps: str) -> Callable[..., Steps[Any]]:
    """Return a method of an algorithm as steps, also if its class defines only the plain method.

    Parameters
    ----------
    base : the class that defines the plain method as steps
    """
    if _has_steps(cast(Any, type(algorithm)), method, steps):
        return cast("Callable[..., Steps[Any]]", getattr(algorithm, steps))
    return partial(getattr(base, steps), algorithm)


@lru_cache(maxsize=256)
def _has_steps(kind: Any, method: str, steps: str) -> bool:
    """Return whether the most derived class that defines either form of a method defines it as steps."""
    for base in kind.__mro__:
        if steps in base.__dict__ or method in base.__dict__:
            return steps in base.__dict__
    return False
