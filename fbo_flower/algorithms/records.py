"""What an algorithm is told and what it answers with: plain values, checked when they are made.

Notation: `D` axes of the unit cube, `n` trials in a history, `q` points in one query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.space.space import SearchSpace

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
AnyArray = npt.NDArray[np.generic]
Scalar = bool | bytes | float | int | str  # as Flower has it


def floats(array: AnyArray) -> Array:
    """Return an array that came over the wire, or out of an agent's state, as float64."""
    return np.asarray(array, dtype=np.float64)


class Phase(StrEnum):
    """Flower's two half-rounds, and one last exchange after the last round."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    FINISH = "finish"


def natural_key(agent: str) -> tuple[int, int, str]:
    """Sort agents as people count them: "2" before "10", numbers before names."""
    return (0, int(agent), agent) if agent.isascii() and agent.isdigit() else (1, 0, agent)


@dataclass(frozen=True)
class Federation:
    """Who takes part, and in which search space.

    Parameters
    ----------
    space : the search space that all agents share
    agents : stable ids, in natural order
    roles : the role of each agent that has one
    """

    space: SearchSpace
    agents: tuple[str, ...]
    roles: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.agents)) != len(self.agents):
            raise ConfigError(f"agents: expected every id once, got {list(self.agents)}")
        object.__setattr__(self, "agents", tuple(sorted(self.agents, key=natural_key)))


@dataclass(frozen=True)
class Task:
    """What one agent is asked to do in one half-round.

    Parameters
    ----------
    phase, round : where in the study this task stands; the round is metadata
    trial : id of the first trial asked for, counted per agent from 0
    num_trials : how many trials are asked for; 0 asks for a report alone
    arrays, values : the algorithm's own content
    """

    phase: Phase
    round: int
    trial: int
    num_trials: int
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    values: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Id of the first trial after this task."""
        return self.trial + self.num_trials


@dataclass(frozen=True)
class Payload:
    """What an algorithm lets leave an agent after a task.

    Parameters
    ----------
    arrays, values : by name, as the report's schema allows
    """

    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    values: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What one agent answers: nothing but what the algorithm's paper lets travel.

    Parameters
    ----------
    trial, num_trials : the trials done, as the task asked for them
    num_failed : how many of them failed
    arrays, values : the algorithm's own content
    """

    trial: int
    num_trials: int
    num_failed: int = 0
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    values: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Query:
    """What an agent wants evaluated next.

    Parameters
    ----------
    points : `(q, D)` in the unit cube
    repeats : `(q,)`, how often each is evaluated in a row; None: once
    artifact : `(n,)` uint8, a packed model to judge instead of training the configuration, which is then one
        point; None: train
    """

    points: Array
    repeats: IntArray | None = None
    artifact: AnyArray | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a query. A row stands for one evaluation, or for several of one point in a row.

    Parameters
    ----------
    points : `(q, D)`, as they were evaluated (snapped to the search space)
    values : `(q,)`, mean over the row's evaluations; NaN where all of them failed
    trials : `(q,)`, id of the row's first trial
    failures : id of a row's first trial -> reason, where an evaluation failed
    counts : `(q,)`, evaluations of the row that gave a value; None: one for every row
    spans : `(q,)`, trials that the row stands for, failed ones included; None: one for every row
    squares : `(q,)`, sum of the squared values; None where nobody asked for repeats
    measures : name -> `(q,)`, what else was measured: the number of rows, for instance
    artifact : `(n,)` uint8, the packed model that one trained point gave; None: none
    """

    points: Array
    values: Array
    trials: IntArray
    failures: Mapping[int, str] = field(default_factory=dict)
    counts: IntArray | None = None
    spans: IntArray | None = None
    squares: Array | None = None
    measures: Mapping[str, Array] = field(default_factory=dict)
    artifact: AnyArray | None = None

    @property
    def pulls(self) -> IntArray:
        """Trials that each row stands for, `(q,)`."""
        return np.ones(len(self.trials), dtype=np.int64) if self.spans is None else self.spans

    @property
    def end(self) -> int:
        """Id of the first trial after this outcome, 0 if it is empty."""
        return int(self.trials[-1] + self.pulls[-1]) if len(self.trials) else 0


@dataclass(frozen=True)
class History:
    """An agent's observations. They stay with the agent.

    Parameters
    ----------
    points : `(n, D)` in the unit cube, snapped to the search space
    values : `(n,)`, NaN where the evaluation failed
    trials : `(n,)`, trial ids; negative for observations from before this study
    failures : trial id -> reason
    """

    points: Array
    values: Array
    trials: IntArray
    failures: Mapping[int, str] = field(default_factory=dict)

    @staticmethod
    def empty(dimension: int) -> History:
        """Return the history of an agent that has seen nothing."""
        return History(np.empty((0, dimension)), np.empty(0), np.empty(0, dtype=np.int64))

    @staticmethod
    def prior(points: Array, values: Array) -> History:
        """Return observations made before this study; their trial ids are negative."""
        return History(points, values, np.arange(-len(values), 0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def next_trial(self) -> int:
        """Id of the trial after the last one of this study."""
        return max(0, int(self.trials[-1]) + 1) if len(self.trials) else 0

    @property
    def num_succeeded(self) -> int:
        """Number of observations with a value."""
        return int(np.count_nonzero(np.isfinite(self.values)))

    def extend(self, outcome: Outcome) -> History:
        """Return this history with `outcome` after it."""
        return History(
            np.concatenate([self.points, outcome.points]),
            np.concatenate([self.values, outcome.values]),
            np.concatenate([self.trials, outcome.trials]),
            {**self.failures, **outcome.failures},
        )

    def select(self, first: int, stop: int) -> Outcome:
        """Return the trials `first <= id < stop`."""
        rows = (self.trials >= first) & (self.trials < stop)
        kept = {t: reason for t, reason in self.failures.items() if first <= t < stop}
        return Outcome(self.points[rows], self.values[rows], self.trials[rows], kept)

    def observed(self) -> tuple[Array, Array]:
        """Return points `(n, D)` and values `(n,)` for a surrogate.

        A failed trial counts as the worst value seen, so that a surrogate learns to stay away from
        it; without a single success there is nothing to learn from and both are empty.
        """
        failed = ~np.isfinite(self.values)
        if failed.all():
            return self.points[:0], self.values[:0]
        return self.points, np.where(failed, np.nanmin(self.values), self.values)


@dataclass(frozen=True)
class AgentState:
    """All that an agent remembers between two tasks.

    Parameters
    ----------
    space : the search space
    history : observations
    arrays : the algorithm's own memory, small: in simulation it travels with every message
    passed : id of the next trial, for algorithms that keep sums instead of a history
    """

    space: SearchSpace
    history: History
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    passed: int = 0

    @property
    def next_trial(self) -> int:
        """Id of the trial after the last one of this study."""
        return max(self.passed, self.history.next_trial)

    def learn(self, outcome: Outcome) -> AgentState:
        """Return this the agent's state with `outcome` added to the history."""
        return replace(self, history=self.history.extend(outcome))

    def skip_to(self, trial: int) -> AgentState:
        """Return this state with the trials before `trial` skipped, which nobody asked this agent for."""
        return replace(self, passed=max(self.passed, trial))

    def passed_to(self, trial: int) -> AgentState:
        """Return this state with `trial` as its next trial, for algorithms that keep sums, not a history."""
        return replace(self, passed=trial)

    def write(self, **arrays: AnyArray) -> AgentState:
        """Return this state with some of the algorithm's arrays replaced."""
        return replace(self, arrays={**self.arrays, **arrays})
