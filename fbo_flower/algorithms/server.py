"""The server's half of a study: an algorithm and its state, asked and told in one half-round after another.

`secure.server.SecureServer` does the same with secure sums; an algorithm cannot tell which of them it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fbo_flower.algorithms.messages import Replies, Schema, report_schema
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import Federation, Phase, Report, ServerResults, Task
from fbo_flower.errors import HookError, kind_of

State = TypeVar("State")


def informed(state: State, **known: Any) -> State:
    """Return an algorithm's state with what only a strategy knows, in those fields that it has."""
    own: dict[str, Any] = {name: value for name, value in known.items() if hasattr(state, name)}
    return replace(state, **own) if own else state  # type: ignore[type-var]  # it has fields


class Server:
    """Asks agents for their work and tells the algorithm what came back.

    What the algorithm's hooks return is checked here; HookError says what they should return.

    Parameters
    ----------
    algorithm : of the study
    federation : the agents that registered
    rng : draws the first state
    """

    def __init__(self, algorithm: Algorithm[Any], federation: Federation, rng: np.random.Generator) -> None:
        self.algorithm, self.space, self.phases = algorithm, federation.space, algorithm.phases
        self.state = algorithm.init(federation, rng)
        if self.state is None:
            raise HookError(f"{algorithm.name}: init: expected the server's first state, got None; return it")

    @property
    def finished(self) -> bool:
        """Whether the study is over: there will be no more tasks."""
        found = self.algorithm.finished(self.state)
        if not isinstance(found, bool | np.bool_):
            raise HookError(
                f"{self.algorithm.name}: finished: expected True or False, got {kind_of(found)}; return one"
            )
        return bool(found)

    def ask(
        self, phase: Phase, server_round: int, present: Sequence[str], rng: np.random.Generator
    ) -> dict[str, Task]:
        """Return the tasks of one half-round, see `Algorithm.ask`."""
        asked = self.algorithm.ask(self.state, phase, server_round, present, rng)
        where = f"{self.algorithm.name}: ask"
        if not (isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[1], Mapping)):
            raise HookError(
                f"{where}: expected the state and the tasks of agents, got {kind_of(asked)}; return state, "
                "tasks"
            )
        self._take("ask", asked[0])
        tasks = dict(asked[1])
        if strangers := tasks.keys() - set(present):
            raise HookError(
                f"{where}: expected tasks for agents in `present`, got one for {min(strangers)!r}"
            )
        for agent, task in tasks.items():
            if not isinstance(task, Task) or task.phase is not phase:
                got = f"one of {task.phase}" if isinstance(task, Task) else kind_of(task)
                raise HookError(
                    f"{where}: expected a task of {phase} for agent {agent}, got {got}; return "
                    "content.task(phase, server_round, trial, num_trials)"
                )
            content = self.algorithm.task_content
            if unknown := (task.arrays.keys() | task.values.keys()) - content.__dataclass_fields__.keys():
                raise HookError(
                    f"{where}: expected a task with the fields of {content.__name__}, the task_content, got "
                    f"{min(unknown)}; write `task_content: ClassVar = ...` with the class that has it"
                )
            if phase is Phase.FINISH and task.num_trials:
                raise HookError(
                    f"{where}: expected a task without trials for agent {agent} after the last round, got "
                    f"{task.num_trials}; return state, {{}} unless the phase is Phase.TRAIN"
                )
        return tasks

    def tell(self, phase: Phase, reports: Mapping[str, Report]) -> None:
        """Give the reports of the agents that answered to the algorithm."""
        self._tell(phase, Replies(reports, self.algorithm.report_content))

    def register_cards(self, study: str, cards: Mapping[str, bytes]) -> None:
        """Note the study's id and the agents' public keys, which only secure sums need."""

    def results(self) -> ServerResults | None:
        """Return the server's own results; None if there are none yet."""
        results = self.algorithm.results(self.state)
        if not isinstance(results, ServerResults | None):
            raise HookError(
                f"{self.algorithm.name}: results: expected ServerResults or None, got {kind_of(results)}; "
                "return ServerResults(...)"
            )
        return results

    def report_schema(self) -> Schema:
        """Return the arrays and values that a report may hold."""
        return report_schema(self.algorithm, self.space)

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if a report that fits the schema does not answer the task."""
        self.algorithm.check_report(task, report)

    def _tell(self, phase: Phase, replies: Replies) -> None:
        self._take("tell", self.algorithm.tell(self.state, phase, replies))
        if replies.unread:
            raise HookError(
                f"{self.algorithm.name}: tell: expected to read the sum over agents, which no report holds, "
                "got none read; use replies.sum(NAME), or mark no array `summable`"
            )

    def _take(self, hook: str, state: Any) -> None:
        """Keep the state that a hook returned."""
        if type(state) is not type(self.state):
            raise HookError(
                f"{self.algorithm.name}: {hook}: expected to get the new {type(self.state).__name__} back, "
                f"got {kind_of(state)}; return replace(state, ...)"
            )
        self.state = state
