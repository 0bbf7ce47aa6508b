"""The values that algorithms take and return: tasks, reports, trials, states of agents, results.

Notation: `D` axes of the unit cube, `n` rows of trials.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.errors import ConfigError
from fbo_flower.numerics import finite
from fbo_flower.space.space import SearchSpace

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
TextArray = npt.NDArray[np.object_]
AnyArray = npt.NDArray[np.generic]
Scalar = bool | bytes | float | int | str  # the scalars that a Flower message can carry

ENDED = "search.ended"  # name of an array that is true once an agent has ended its own search
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
class Report:
    """What one agent sends back for a task: counts, and the algorithm's content.

    Parameters
    ----------
    trial, num_trials : the trials that the agent made, as in the task
    num_failed : how many of them failed
    arrays, values : content defined by the algorithm, by name; `messages.report_schema` lists the names
    """

    trial: int
    num_trials: int
    num_failed: int = 0
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    values: Mapping[str, Scalar] = field(default_factory=dict)


# what stands in a column for rows about which a table says nothing; other columns are there for all rows
_UNKNOWN = {"failures": "", "outputs": math.nan, "stopped": -1, "predicted": math.nan, "times": math.nan}
_COLUMNS = ("points", "values", "trials", "pulls", "counts", "deviations", "feasible", *_UNKNOWN)
_columns_of: Callable[[Any], tuple[Any, ...]] = attrgetter(*_COLUMNS)
_MEASURE = "measure "  # and its name: the beginning of the name of an array
_NO_IDS: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Trials:
    """A table of trials. A row is one evaluation, or several consecutive ones of the same point.

    A proposal has points, and perhaps `pulls` or an `artifact`. Its outcome has the same rows with values. An
    agent's history is the concatenation of its outcomes; it never leaves the agent unless its operator
    discloses it.

    Parameters
    ----------
    points : `(n, D)` in the unit cube; snapped to the search space once they are evaluated
    values : `(n,)`, larger is better: the mean over the row's successful evaluations, NaN where all of them
        failed. In a proposal it is empty
    trials : `(n,)`, id of the row's first trial; negative for observations from before this study
    failures : `(n,)`, why an evaluation of the row failed; "": none did. None: none of any row did
    pulls : `(n,)`, trials of the row, failed ones included; None: one in every row
    counts : `(n,)`, successful evaluations of the row; None: every row is one evaluation
    deviations : `(n,)`, sum of the squared deviations of the values from their mean; None without `pulls`
    outputs : `(n, O)`, larger is better, in the order of `Aims.names`; NaN where the trial failed. None: a
        trial has only its value
    stopped : `(n,)`, the last step of a trial that was stopped early, whose value is the one that it had
        there; -1: it was not. None: no trial was
    predicted : `(n,)`, the value that a trial that was stopped early would have had, as the agent's completed
        trials predict it; else NaN. Only `observed` uses it: it is no observation, is not disclosed, and
        cannot be the best
    times : `(n, 2)`, start and end of the evaluation in seconds since 1970; NaN: unknown. None: all are
    feasible : `(n,)`, which rows hold the agent's limits; None: not known here
    measures : name -> `(n,)`, other measurements, for instance the number of rows of data
    artifact : `(k,)` uint8, a packed model. In a proposal the model to judge, and `points` is the one
        configuration that it was trained with; in an outcome the model that was trained. None: no model
    curve : `(2, k)`, steps at which the only trial has reported values, and the values. None: it has not
    """

    points: Array
    values: Array = field(default_factory=partial(np.empty, 0))
    trials: IntArray = field(default_factory=_NO_IDS.copy)
    failures: TextArray | None = None
    pulls: IntArray | None = None
    counts: IntArray | None = None
    deviations: Array | None = None
    outputs: Array | None = None
    stopped: IntArray | None = None
    predicted: Array | None = None
    times: Array | None = None
    feasible: BoolArray | None = None
    measures: Mapping[str, Array] = field(default_factory=dict)
    artifact: AnyArray | None = None
    curve: Array | None = None

    @staticmethod
    def empty(dimension: int) -> Trials:
        """Return a history without observations."""
        return Trials(np.empty((0, dimension)), np.empty(0), np.empty(0, dtype=np.int64))

    @staticmethod
    def prior(points: Array, values: Array, outputs: Array | None = None) -> Trials:
        """Return a history of observations from before this study; their trial ids are negative."""
        return Trials(points, values, np.arange(-len(values), 0, dtype=np.int64), outputs=outputs)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def spans(self) -> IntArray:
        """Number of trials of each row, failed ones included, `(n,)`."""
        return np.ones(len(self), dtype=np.int64) if self.pulls is None else self.pulls

    @cached_property
    def num_trials(self) -> int:
        """Number of trials of all rows, failed ones included."""
        return len(self) if self.pulls is None else int(np.sum(self.pulls))

    @property
    def num_succeeded(self) -> int:
        """Number of successful evaluations."""
        return int(np.count_nonzero(np.isfinite(self.values)) if self.counts is None else self.counts.sum())

    @cached_property
    def next_trial(self) -> int:
        """Id of the trial after the last one of this study."""
        if not len(self.trials):
            return 0
        return max(0, int(self.trials[-1]) + (1 if self.pulls is None else int(self.pulls[-1])))

    @property
    def reasons(self) -> dict[int, str]:
        """Id of the first trial of each row that has a failure -> why it failed."""
        if self.failures is None:
            return {}
        rows = zip(self.trials.tolist(), self.failures.tolist(), strict=True)
        return {trial: reason for trial, reason in rows if reason}

    def concat(self, *others: Trials) -> Trials:
        """Return the rows of this table and of others; its arrays are read-only.

        Measures, artifacts and curves are not kept.
        """
        tables = (self, *others)
        columns = dict[str, Any]()
        for name, *found in zip(_COLUMNS, *map(_columns_of, tables), strict=True):
            known, missing = None, list[int]()
            for number, column in enumerate(found):
                if column is None:
                    missing.append(number)
                else:
                    known = column
            if known is None or (missing and name not in _UNKNOWN):
                continue
            for number in missing:
                found[number] = np.full((len(tables[number]), *known.shape[1:]), _UNKNOWN[name])
            columns[name] = np.concatenate(found)
            columns[name].setflags(write=False)
        return Trials(**columns)

    def rows(self, chosen: IntArray | BoolArray | slice) -> Trials:
        """Return some rows, without measures, artifact and curve.

        If none of them was stopped, or failed, the columns about that are left out.
        """
        columns = dict[str, Any]()
        for name, column in zip(_COLUMNS, _columns_of(self), strict=True):
            if column is not None:
                columns[name] = column[chosen]
        if "stopped" in columns and (columns["stopped"] < 0).all():
            columns |= {"stopped": None, "predicted": None}
        if "failures" in columns and not columns["failures"].any():
            columns["failures"] = None
        return Trials(**columns)

    def select(self, first: int, stop: int) -> Trials:
        """Return the rows whose first trials are `first <= id < stop`, see `rows`."""
        return self.rows((self.trials >= first) & (self.trials < stop))

    def to_arrays(self, prefix: str = "") -> dict[str, AnyArray]:
        """Return the table as arrays whose names begin with `prefix`."""
        arrays = {}
        for name in (*_COLUMNS, "artifact", "curve"):
            if (array := getattr(self, name)) is not None:
                arrays[prefix + name] = array
        for name, measure in self.measures.items():
            arrays[prefix + _MEASURE + name] = measure
        if self.failures is not None:
            reasons = json.dumps(self.reasons).encode()
            arrays[f"{prefix}failures"] = np.frombuffer(reasons, dtype=np.uint8)
        return arrays

    @staticmethod
    def from_arrays(arrays: dict[str, AnyArray], prefix: str = "") -> Trials:
        """Undo `to_arrays`; its arrays are taken out of `arrays`."""
        own, measures = dict[str, Any](), dict[str, Any]()
        for name in list(arrays):
            if name.startswith(prefix + _MEASURE):
                measures[name.removeprefix(prefix + _MEASURE)] = arrays.pop(name)
            elif name.startswith(prefix):
                own[name.removeprefix(prefix)] = arrays.pop(name)
        columns = own.pop("points"), own.pop("values"), own.pop("trials")
        if "failures" in own:
            found = json.loads(bytes(own["failures"]))
            own["failures"] = np.array([found.get(str(trial), "") for trial in columns[2]], dtype=object)
        return Trials(*columns, measures=measures, **own)

    def merged(self) -> Trials:
        """Return the trials with a row per point, in the order of first evaluations, numbered anew.

        A bandit may evaluate the same cell several times in one task; these evaluations become one row.
        """
        seen: dict[bytes, int] = {}  # a point -> its row
        place = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in self.points + 0.0])  # no -0.0
        first = np.full(len(seen), len(place))
        np.minimum.at(first, place, np.arange(len(place)))
        pulls = np.bincount(place, weights=self.spans).astype(np.int64)
        each = np.isfinite(self.values) if self.counts is None else self.counts
        weights = each.astype(np.int64)
        counts = np.bincount(place, weights=weights).astype(np.int64)
        values, exponents = finite.scaled(np.nan_to_num(self.values))
        means = np.bincount(place, weights=values * weights) / np.where(counts > 0, counts, np.nan)
        trials = self.trials[0] + np.cumsum(pulls) - pulls
        failures = times = None
        if self.failures is not None:
            failed = np.flatnonzero(self.failures != "")[::-1]  # the first reason of a row stays
            failures = np.full(len(seen), "", dtype=object)
            failures[place[failed]] = self.failures[failed]
        if self.times is not None:
            times = np.tile([math.inf, -math.inf], (len(seen), 1))
            np.minimum.at(times[:, 0], place, self.times[:, 0])
            np.maximum.at(times[:, 1], place, self.times[:, 1])
        values = finite.unscaled(means, exponents)
        return Trials(self.points[first], values, trials, failures, pulls, counts, times=times)

    def final_values(self, *, own: bool = False) -> Array:
        """Return the values `(n,)` to recommend from, NaN where a trial was stopped early.

        Values of stopped trials count only if no trial has completed.

        Parameters
        ----------
        own : whether only trials of this study count; others are NaN then
        """
        values = np.where(self.trials >= 0, self.values, np.nan) if own else self.values
        if self.stopped is None:
            return values
        completed = np.where(self.stopped >= 0, np.nan, values)
        return completed if np.isfinite(completed).any() else values

    def observed(self) -> tuple[Array, Array]:
        """Return points `(n, D)` and values `(n,)` for a surrogate.

        A trial that was stopped early counts with its predicted value, if it has one. A failed trial counts
        as the worst of the others, so that the surrogate avoids its neighbourhood. Before the first success
        both are empty.
        """
        values = self.values.copy()
        if self.predicted is not None:
            values = np.where(np.isnan(self.predicted), values, self.predicted)
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
    history: Trials
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    passed: int = 0
    aims: Aims = NUMBER

    @cached_property
    def next_trial(self) -> int:
        """Id of the trial after the last one of this study."""
        return max(self.passed, self.history.next_trial)

    @property
    def has_ended(self) -> bool:
        """Whether the agent has ended its own search and makes no more trials of this study."""
        return bool(np.any(self.arrays.get(ENDED, False)))

    def learn(self, outcome: Trials) -> AgentState:
        """Return this state with `outcome` appended to the history."""
        return AgentState(self.space, self.history.concat(outcome), self.arrays, self.passed, self.aims)

    def passed_to(self, trial: int) -> AgentState:
        """Return this state with `trial` as the next trial, if it is later than the present one.

        The server did not ask for the trials in between, or the algorithm keeps sums instead of a history.
        """
        return replace(self, passed=max(self.passed, trial))

    def write(self, **arrays: AnyArray) -> AgentState:
        """Return this state with some of the algorithm's arrays replaced."""
        return AgentState(self.space, self.history, {**self.arrays, **arrays}, self.passed, self.aims)

    def usable_values(self, *, own: bool = False) -> Array:
        """Return `Trials.final_values`, NaN also where a trial broke one of the agent's limits."""
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
    found : JSON values for the entry `found` of the run's settings
    """

    models: Sequence[Mapping[str, object]] = ()
    judgements: Sequence[Mapping[str, object]] = ()
    recommendations: Mapping[str, Best] = field(default_factory=dict)
    privacy: Mapping[str, object] = field(default_factory=dict)
    found: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of_noise(
        cls, noise: str, epsilon: float, delta: float, counts: Mapping[str, object], by_agents: bool = True
    ) -> ServerResults:
        """Return the privacy spent by noise; `epsilon` is None where there is no noise, so no bound."""
        source = {"noise_from": "agents"} if by_agents else {}
        spent = epsilon if np.isfinite(epsilon) else None
        return cls(privacy={"noise": noise, **source, "epsilon": spent, "delta": delta, **counts})
