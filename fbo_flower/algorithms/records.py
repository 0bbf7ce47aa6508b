"""The values that algorithms take and return: tasks, reports, queries, outcomes, histories, results.

Notation: `D` axes of the unit cube, `n` trials in a history, `q` points in one query.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.errors import ConfigError
from fbo_flower.space.space import SearchSpace

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[np.generic]
Scalar = bool | bytes | float | int | str  # the scalars that a Flower message can carry

NUM_EVALUATIONS = "evaluations"  # name of the number of evaluations made, without reused values


def floats(array: AnyArray) -> Array:
    """Return an array from a message or an agent's state as float64."""
    return np.asarray(array, dtype=np.float64)


class Phase(StrEnum):
    """The half-rounds of a round, and FINISH, the exchange after the last round.

    TRAIN and EVALUATE are Flower's. REVEAL follows them where secure sums need a third exchange.
    """

    TRAIN = "train"
    EVALUATE = "evaluate"
    REVEAL = "reveal"
    FINISH = "finish"


def natural_key(agent: str) -> tuple[int, int, str]:
    """Return a sort key for agents: numbers by value ("2" before "10"), then names."""
    return (0, int(agent), agent) if agent.isascii() and agent.isdigit() else (1, 0, agent)


@dataclass(frozen=True)
class Federation:
    """The agents that take part in a study, and their search space.

    Parameters
    ----------
    space : the search space that all agents share
    agents : stable ids, in natural order
    roles : agent -> its role; agents without a role are left out
    outputs : names of those outputs of a trial that no operator keeps to itself; (): a trial has only a value
    """

    space: SearchSpace
    agents: tuple[str, ...]
    roles: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.agents)) != len(self.agents):
            raise ConfigError(f"agents: expected every id once, got {list(self.agents)}")
        object.__setattr__(self, "agents", tuple(sorted(self.agents, key=natural_key)))


@dataclass(frozen=True)
class Task:
    """What the server asks one agent to do in one half-round.

    Parameters
    ----------
    phase, round : half-round and round of the task; algorithms do not depend on the round
    trial : id of the first trial asked for, counted per agent from 0
    num_trials : how many trials are asked for; 0 asks for a report without new evaluations
    arrays, values : content defined by the algorithm, by name
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
    """The arrays and values that an agent sends after a task.

    Parameters
    ----------
    arrays, values : by name; the algorithm's `report_schema` lists the allowed names
    """

    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    values: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What one agent sends back for a task: counts, and the algorithm's `Payload`.

    Parameters
    ----------
    trial, num_trials : the trials that the agent made, as in the task
    num_failed : how many of them failed
    arrays, values : content defined by the algorithm, by name
    """

    trial: int
    num_trials: int
    num_failed: int = 0
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    values: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Query:
    """The points that a session asks to have evaluated next.

    Parameters
    ----------
    points : `(q, D)` in the unit cube
    repeats : `(q,)`, how many times in a row each point is evaluated; None: once
    artifact : `(n,)` uint8, a packed model to judge; `points` is then the one configuration that it was
        trained with. None: evaluate the points
    """

    points: Array
    repeats: IntArray | None = None
    artifact: AnyArray | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a query. A row holds one evaluation, or several consecutive ones of the same point.

    Parameters
    ----------
    points : `(q, D)`, as they were evaluated (snapped to the search space)
    values : `(q,)`, mean over the row's successful evaluations; NaN where all of them failed
    trials : `(q,)`, id of the row's first trial
    failures : id of a row's first trial -> reason, where an evaluation failed
    counts : `(q,)`, successful evaluations of the row; None: every row is one evaluation
    spans : `(q,)`, trials of the row, failed ones included; None: one in every row
    deviations : `(q,)`, sum of the squared deviations of the values from their mean; None if the query had no
        repeats
    measures : name -> `(q,)`, other measurements, for instance the number of rows of data
    artifact : `(n,)` uint8, the packed model that was trained; None: no model was trained
    stopped : id of a trial that was stopped early -> the last step that it reported
    predicted : id of a trial that was stopped early -> the value that it would have had, as the agent's
        completed trials predict it
    outputs : `(q, O)`, larger is better, in the order of `Aims.names`; NaN where the trial failed. None: a
        trial has only its value
    """

    points: Array
    values: Array
    trials: IntArray
    failures: Mapping[int, str] = field(default_factory=dict)
    counts: IntArray | None = None
    spans: IntArray | None = None
    deviations: Array | None = None
    measures: Mapping[str, Array] = field(default_factory=dict)
    artifact: AnyArray | None = None
    stopped: Mapping[int, int] = field(default_factory=dict)
    predicted: Mapping[int, float] = field(default_factory=dict)
    outputs: Array | None = None

    @property
    def pulls(self) -> IntArray:
        """Number of trials of each row, failed ones included, `(q,)`."""
        return np.ones(len(self.trials), dtype=np.int64) if self.spans is None else self.spans

    @property
    def num_trials(self) -> int:
        """Number of trials of all rows, failed ones included."""
        return len(self.trials) if self.spans is None else int(np.sum(self.spans))

    @property
    def end(self) -> int:
        """Id of the first trial after this outcome, 0 if it is empty."""
        return int(self.trials[-1] + self.pulls[-1]) if len(self.trials) else 0


@dataclass(frozen=True)
class History:
    """An agent's observations. They never leave the agent unless its operator discloses them.

    Parameters
    ----------
    points : `(n, D)` in the unit cube, snapped to the search space
    values : `(n,)`, NaN where the evaluation failed
    trials : `(n,)`, trial ids; negative for observations from before this study
    failures : trial id -> reason
    stopped : id of a trial that was stopped early -> the last step that it reported. Its value is the one
        that it had there
    predicted : id of a trial that was stopped early -> the value that it would have had, as a prediction.
        Only `observed` uses it: it is no observation, is not disclosed, and cannot be the best
    outputs : `(n, O)`, as in `Outcome`; None: a trial has only its value
    """

    points: Array
    values: Array
    trials: IntArray
    failures: Mapping[int, str] = field(default_factory=dict)
    stopped: Mapping[int, int] = field(default_factory=dict)
    predicted: Mapping[int, float] = field(default_factory=dict)
    outputs: Array | None = None

    @staticmethod
    def empty(dimension: int) -> History:
        """Return a history without observations."""
        return History(np.empty((0, dimension)), np.empty(0), np.empty(0, dtype=np.int64))

    @staticmethod
    def prior(points: Array, values: Array, outputs: Array | None = None) -> History:
        """Return a history of observations from before this study; their trial ids are negative."""
        return History(points, values, np.arange(-len(values), 0, dtype=np.int64), outputs=outputs)

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
        """Return this history with the rows of `outcome` appended; its arrays are read-only."""
        points = np.concatenate([self.points, outcome.points])
        values = np.concatenate([self.values, outcome.values])
        trials = np.concatenate([self.trials, outcome.trials])
        for array in (points, values, trials):
            array.setflags(write=False)
        stopped = {**self.stopped, **outcome.stopped} if outcome.stopped else self.stopped
        predicted = {**self.predicted, **outcome.predicted} if outcome.predicted else self.predicted
        outputs = outcome.outputs
        if outputs is not None and self.outputs is not None:
            outputs = np.concatenate([self.outputs, outputs])
        failures = {**self.failures, **outcome.failures}
        return History(points, values, trials, failures, stopped, predicted, outputs)

    def select(self, first: int, stop: int) -> Outcome:
        """Return the trials `first <= id < stop`."""
        rows = (self.trials >= first) & (self.trials < stop)
        kept = {t: reason for t, reason in self.failures.items() if first <= t < stop}
        stopped = {t: step for t, step in self.stopped.items() if first <= t < stop}
        predicted = {t: value for t, value in self.predicted.items() if first <= t < stop}
        points, values, trials = self.points[rows], self.values[rows], self.trials[rows]
        outputs = None if self.outputs is None else self.outputs[rows]
        return Outcome(points, values, trials, kept, stopped=stopped, predicted=predicted, outputs=outputs)

    def final_values(self, *, own: bool = False) -> Array:
        """Return the values `(n,)` to recommend from, NaN where a trial was stopped early.

        Values of stopped trials count only if no trial has completed.

        Parameters
        ----------
        own : whether only trials of this study count; others are NaN then
        """
        values = np.where(self.trials >= 0, self.values, np.nan) if own else self.values
        if not self.stopped:
            return values
        completed = np.where(np.isin(self.trials, list(self.stopped)), np.nan, values)
        return completed if np.isfinite(completed).any() else values

    def observed(self) -> tuple[Array, Array]:
        """Return points `(n, D)` and values `(n,)` for a surrogate.

        A trial that was stopped early counts with its predicted value, if it has one. A failed trial counts
        as the worst of the others, so that the surrogate avoids its neighbourhood. Before the first success
        both are empty.
        """
        values = self.values.copy()
        for row in np.flatnonzero(np.isin(self.trials, list(self.predicted))) if self.predicted else ():
            values[row] = self.predicted[int(self.trials[row])]
        failed = ~np.isfinite(values)
        if not failed.any():
            return self.points, values
        if failed.all():
            return self.points[:0], values[:0]
        return self.points, np.where(failed, np.nanmin(values), values)

    def observed_outputs(self) -> tuple[Array, Array]:
        """Return points `(n, D)` and outputs `(n, O)` for surrogates; see `observed`.

        In every output a failed trial counts as the worst of the others, in limited ones too: it is taken for
        one that broke the limit if another has.
        """
        assert self.outputs is not None
        failed = np.isnan(self.outputs)
        if failed.all():
            return self.points[:0], self.outputs[:0]
        return self.points, np.where(failed, np.nanmin(self.outputs, axis=0), self.outputs)


@dataclass(frozen=True)
class AgentState:
    """Everything that an agent stores between two tasks.

    Parameters
    ----------
    space : the search space
    history : its observations
    arrays : arrays that the algorithm stores; keep them small, in simulation they travel with every message
    passed : id of the next trial, for algorithms that keep sums instead of a history
    aims : the agent's objectives and limits, which are not stored with the state
    """

    space: SearchSpace
    history: History
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    passed: int = 0
    aims: Aims = NUMBER

    @property
    def next_trial(self) -> int:
        """Id of the trial after the last one of this study."""
        return max(self.passed, self.history.next_trial)

    def learn(self, outcome: Outcome) -> AgentState:
        """Return this state with `outcome` appended to the history."""
        return AgentState(self.space, self.history.extend(outcome), self.arrays, self.passed, self.aims)

    def passed_to(self, trial: int) -> AgentState:
        """Return this state with `trial` as the next trial, if it is later than the present one.

        The server did not ask for the trials in between, or the algorithm keeps sums instead of a history.
        """
        return replace(self, passed=max(self.passed, trial))

    def write(self, **arrays: AnyArray) -> AgentState:
        """Return this state with some of the algorithm's arrays replaced."""
        return AgentState(self.space, self.history, {**self.arrays, **arrays}, self.passed, self.aims)

    def usable_values(self, *, own: bool = False) -> Array:
        """Return `History.final_values`, NaN also where a trial broke one of the agent's limits."""
        values = self.history.final_values(own=own)
        if self.history.outputs is None:
            return values
        return np.where(self.aims.feasible(self.history.outputs), values, np.nan)


@dataclass(frozen=True)
class Best:
    """A configuration that an agent should use; there is no other notion of what is best.

    Parameters
    ----------
    point : `(D,)`
    value : what was measured there, larger is better; of a bandit the mean of the pulls. NaN: nobody has
        evaluated it, which only a server may recommend
    mean : where values are noisy, what the model expects there; NaN: the model finds no noise, or there is no
        model
    """

    point: Array
    value: float
    mean: float = math.nan

    @property
    def is_noisy(self) -> bool:
        """Whether it was chosen by its mean and not by its value."""
        return math.isfinite(self.mean)


@dataclass(frozen=True)
class ServerResults:
    """The server's results at the end of a study, as rows of the study's tables.

    Parameters
    ----------
    models : rows with the columns of `study.schema.MODELS`, except `algorithm`
    judgements : rows with the columns of `study.schema.JUDGEMENTS`, except `algorithm`
    recommendations : agent -> what it should use instead of its own best
    privacy : the privacy spent where noise is used: `epsilon`, `delta` and the counts that they follow from.
        The strategy adds `noise_from`: "seed", "system" or "agents"
    """

    models: Sequence[Mapping[str, object]] = ()
    judgements: Sequence[Mapping[str, object]] = ()
    recommendations: Mapping[str, Best] = field(default_factory=dict)
    privacy: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of_noise(
        cls, noise: str, epsilon: float, delta: float, counts: Mapping[str, object], by_agents: bool = True
    ) -> ServerResults:
        """Return the privacy spent by noise; `epsilon` is None where there is no noise, so no bound."""
        source = {"noise_from": "agents"} if by_agents else {}
        spent = epsilon if np.isfinite(epsilon) else None
        return cls(privacy={"noise": noise, **source, "epsilon": spent, "delta": delta, **counts})
