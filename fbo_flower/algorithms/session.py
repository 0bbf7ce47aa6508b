"""The agent's work on one task: a session asks for evaluations, `run_task` makes them and writes the report.

A session is a generator that reads from top to bottom like the paper's algorithm. It yields a `Query` (points
to evaluate), is sent the `Outcome`, and returns the agent's state after the task.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fbo_flower.algorithms.outcomes import joined, num_succeeded
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Outcome,
    Query,
    Report,
    Task,
)

if TYPE_CHECKING:
    from fbo_flower.algorithms.protocol import Algorithm

Session = Generator[Query, Outcome, AgentState]


class Draws(Protocol):
    """Random generators for one task: the same purpose and keys always give the same numbers."""

    def __call__(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the random generator for a purpose and keys."""
        ...


Evaluate = Callable[[Query, int], Outcome]  # a query and the id of its first trial -> its outcome


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


@dataclass(frozen=True)
class TaskResult:
    """The result of an agent's work on one task.

    Parameters
    ----------
    agent_state : the agent's state after the task
    report : what the agent sends to the server
    outcome : all evaluations of the task, a row per point
    """

    agent_state: AgentState
    report: Report
    outcome: Outcome


def run_task(
    algorithm: Algorithm[Any],
    task: Task,
    agent_state: AgentState,
    evaluate: Evaluate,
    draws: Draws,
    extra: Callable[[], Mapping[str, AnyArray]] = dict,
) -> TaskResult:
    """Run the session of a task, evaluate every query that it yields, and write the report.

    Agents, contract tests, experiments and all engines call this function; nothing else drives a session. It
    has no side effects except those of `evaluate`.

    Parameters
    ----------
    task : a verified task, addressed to this agent
    evaluate : `evaluate(query, first_trial)` returns the outcome of a query
    draws : the task's random generators
    extra : called after the last evaluation; returns further arrays to store in the agent's state, such as
        an evaluation cache
    """
    if task.num_trials and task.trial > agent_state.next_trial:
        agent_state = agent_state.skip_to(task.trial)
    session = algorithm.session(task, agent_state, draws)
    outcomes: list[Outcome] = []
    while True:
        try:
            query = session.send(outcomes[-1]) if outcomes else next(session)
        except StopIteration as stop:
            agent_state = stop.value
            break
        first_trial = outcomes[-1].end if outcomes else agent_state.next_trial
        outcomes.append(evaluate(query, first_trial))
    agent_state = agent_state.write(**extra())
    payload = algorithm.summarise(task, agent_state, draws("summarise", task.trial, task.num_trials))
    known = agent_state.history.select(task.trial, task.end)
    outcome = known if len(known.trials) or not outcomes else joined(outcomes)
    num_failed = int(np.sum(outcome.pulls)) - num_succeeded(outcome) if task.num_trials else 0
    report = Report(task.trial, task.num_trials, num_failed, payload.arrays, payload.values)
    return TaskResult(agent_state, report, outcome)
