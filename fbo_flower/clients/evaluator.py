"""Evaluate the queries of a task: call the objective, store each evaluation, and repeat none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from logging import WARNING
from typing import Any

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.bandits.base import NUM_EVALUATIONS
from fbo_flower.algorithms.records import AnyArray, Array, Outcome, Query
from fbo_flower.clients.objective import Objective, can_repeat, evaluate, evaluate_repeatedly
from fbo_flower.clients.pruning import Curve, StopRule, curve_to_bytes, measures_of_curve, stopped_at
from fbo_flower.clients.task_context import Evaluator, TaskContext, Watch, times_of
from fbo_flower.clients.tracebacks import new_traceback
from fbo_flower.errors import ConfigError, ObjectiveError, WrongTypeError, kind_of
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import Evaluation

_POINTS, _VALUES = "first.points", "first.values"


@dataclass
class EvaluationCache:
    """The points that an agent has evaluated so far, and their values.

    Attributes
    ----------
    values : point `(D,)` as bytes -> its value
    num_evaluations : calls of the objective, failures included
    """

    values: dict[bytes, float] = field(default_factory=dict)
    num_evaluations: int = 0

    @staticmethod
    def read(arrays: Mapping[str, AnyArray]) -> EvaluationCache:
        """Return the cache in the arrays of an agent's state."""
        if _POINTS not in arrays:
            return EvaluationCache()
        points = np.ascontiguousarray(arrays[_POINTS], dtype=np.float64)
        observed = np.asarray(arrays[_VALUES], dtype=np.float64).tolist()
        num_evaluations = int(np.asarray(arrays[NUM_EVALUATIONS])[0])
        return EvaluationCache(
            dict(zip((p.tobytes() for p in points), observed, strict=True)), num_evaluations
        )

    def arrays(self, dimension: int) -> dict[str, AnyArray]:
        """Return the cache as arrays, for the agent's state."""
        return {
            _POINTS: np.frombuffer(b"".join(self.values), dtype=np.float64).reshape(-1, dimension).copy(),
            _VALUES: np.array(list(self.values.values()), dtype=np.float64),
            NUM_EVALUATIONS: np.array([self.num_evaluations], dtype=np.int64),
        }

    def repeat(
        self, point: Array, repeats: int, evaluate: Callable[[], tuple[Array, str]]
    ) -> tuple[Array, str]:
        """Return the value of `point` `repeats` times; a new point is evaluated once.

        Returns
        -------
        `(repeats,)`, or `(0,)` and the reason if the evaluation failed; a failure is not cached
        """
        key = point.tobytes()
        if key not in self.values:
            self.num_evaluations += 1
            observed, reason = evaluate()
            if len(observed) == 0:
                return observed, reason
            self.values[key] = float(observed[0])
        return np.full(repeats, self.values[key]), ""

    def recall(self, point: Array, value: float) -> None:
        """Add an evaluation that was made before the agent was interrupted; NaN stands for a failure."""
        key = point.tobytes()
        if key not in self.values:
            self.num_evaluations += 1
            if not np.isnan(value):
                self.values[key] = value


@dataclass(frozen=True)
class Row:
    """One row of a query: consecutive trials of one point.

    Parameters
    ----------
    trial : id of the first trial
    point : `(D,)`, snapped to the search space
    span : number of trials
    """

    trial: int
    point: Array
    span: int

    @property
    def key(self) -> bytes:
        """The point, as `EvaluationCache` names it."""
        return self.point.tobytes()

    def evaluation(
        self, observed: Array, reason: str, measures: Mapping[str, float], curve: Curve | None = None
    ) -> Evaluation:
        """Return the row with the values `(k,)` of its successful evaluations; `k` may be 0.

        Parameters
        ----------
        reason : of the first failure; "" if there was none
        curve : what the trial has reported, in a row of one trial
        """
        trial, point, span = self.trial, self.point, self.span
        told = curve_to_bytes(curve)
        measures = {**measures, **measures_of_curve(curve)}
        if len(observed) == 0:
            return Evaluation(trial, point, float("nan"), 0, span, 0.0, reason, measures, told)
        if len(observed) == 1:
            return Evaluation(trial, point, float(observed[0]) + 0.0, 1, span, 0.0, reason, measures, told)
        with np.errstate(over="ignore"):  # the square of a huge value is infinite
            value = float(np.mean(observed)) + 0.0  # no -0.0
            square = float(np.sum(np.square(observed - value)))
        return Evaluation(trial, point, value, len(observed), span, square, reason, measures)


@dataclass(frozen=True)
class ObjectiveEvaluator:
    """Evaluates the queries of one task with an objective.

    Parameters
    ----------
    objective, space : of the agent
    context : the task
    cache : known values, for an objective declared deterministic; None: evaluate every trial
    tracebacks : first trial of a row -> the traceback of its first error, until it is logged
    """

    objective: Objective
    space: SearchSpace
    context: TaskContext
    cache: EvaluationCache | None = None
    tracebacks: dict[int, str] = field(default_factory=dict)

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        """Return the values at the query points; evaluations in the journal are not repeated."""
        points = self.space.snap(query.points)
        if query.repeats is None:
            trials, spans = np.arange(first_trial, first_trial + len(points)), [1] * len(points)
        else:
            trials = first_trial + np.cumsum(query.repeats) - query.repeats
            spans = query.repeats.tolist()
        values, deviations = np.full(len(points), np.nan), np.zeros(len(points))
        counts, failures = np.zeros(len(points), dtype=np.int64), {}
        stopped: dict[int, int] = {}
        rows = [Row(*row) for row in zip(trials.tolist(), points, spans, strict=True)]
        for i, row in self.rows(rows, prunes=query.repeats is None and self.cache is None):
            self.context.times.update(times_of(row))
            if row.failure:
                failures[row.trial] = row.failure
                log(
                    WARNING, "agent %s, trial %d failed: %s%s",
                    self.context.agent, row.trial, row.failure, self.tracebacks.pop(row.trial, ""),
                )  # fmt: skip
            if (step := stopped_at(row)) is not None:
                stopped[row.trial] = step
            values[i], counts[i], deviations[i] = row.value, row.count, row.square
        failures = dict(sorted(failures.items()))
        if query.repeats is None:
            known = self.context.book.predicted
            stopped = dict(sorted(stopped.items()))
            predicted = {trial: known[trial] for trial in stopped if trial in known}
            return Outcome(points, values, trials, failures, stopped=stopped, predicted=predicted)
        return Outcome(points, values, trials, failures, counts, query.repeats, deviations)

    def rows(self, rows: Sequence[Row], prunes: bool) -> Iterator[tuple[int, Evaluation]]:
        """Yield the place and the evaluation of each row, one after the other.

        Parameters
        ----------
        prunes : whether each row is one trial that may stop early; a mean over partial values of repeated
            evaluations would be biased
        """
        replay = self.context.replay
        for i, row in enumerate(rows):
            evaluation = replay.take(row.trial, row.point, row.span)
            if evaluation is None:
                evaluation = self._evaluate_row(row, self.context.book.rule() if prunes else None)
                replay.append(evaluation)
            elif self.cache is not None:
                self.cache.recall(row.point, evaluation.value)
            if prunes:
                self.context.book.add(evaluation)
            yield i, evaluation

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return the cache and the completed curves as arrays; none without them."""
        cached = {} if self.cache is None else self.cache.arrays(self.space.dimension)
        return {**cached, **self.context.book.arrays()}

    def _evaluate_row(self, row: Row, rule: StopRule | None) -> Evaluation:
        curve, watch = None if rule is None else Curve(rule), Watch.start()
        observe = partial(self._observe, self.space.decode(row.point), row.trial, curve)
        if self.cache is None:
            observed, reason = observe(row.span)
        else:
            observed, reason = self.cache.repeat(row.point, row.span, partial(observe, 1))
        return row.evaluation(observed, reason, watch.measures(), curve)

    def _observe(
        self, config: dict[str, Any], trial: int, curve: Curve | None, span: int
    ) -> tuple[Array, str]:
        """Evaluate a configuration `span` times; return the values and the reason of the first failure."""
        observed, reason = [], ""
        at_once = span > 1 and can_repeat(self.objective)
        for k in range(1 if at_once else span):
            context = self.context.objective_context(trial + k, curve)
            try:
                if at_once:
                    return evaluate_repeatedly(self.objective, config, context, span), ""
                observed.append(evaluate(self.objective, config, context))
            except WrongTypeError:
                raise  # it would return the same again: nothing else is evaluated
            except ObjectiveError as error:
                if not reason:
                    self.tracebacks[trial] = new_traceback(self.context.memory, error.__cause__)
                reason = reason or str(error)
        return np.array(observed, dtype=np.float64), reason


@dataclass(frozen=True)
class KnownConfigs:
    """Replaces the points of an agent's first trials.

    Parameters
    ----------
    inner : evaluates the queries
    points : `(k, D)` in the unit cube, the configurations of the trials 0 to k - 1
    """

    inner: Evaluator
    points: Array

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        """Return the outcome of a query whose first trials are known configurations."""
        if first_trial >= len(self.points):
            return self.inner(query, first_trial)
        if query.repeats is not None:
            raise ConfigError(
                "initial: expected an algorithm that evaluates any point, got one that evaluates only "
                "its own cells or arms; leave out initial"
            )
        known = self.points[first_trial : first_trial + len(query.points)]
        points = np.concatenate([known, query.points[len(known) :]])
        return self.inner(replace(query, points=points), first_trial)

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return the arrays of the inner evaluator."""
        return self.inner.arrays()


def points_of(initial: object, space: SearchSpace) -> Array | None:
    """Return the points `(k, D)` of a list of known configurations; None if it is empty.

    Raises
    ------
    ConfigError
        If it is no list, or a configuration is not one of the search space.
    """
    if isinstance(initial, Mapping | str) or not isinstance(initial, Sequence):
        raise ConfigError(
            f"initial: expected a list of configurations, as in [{{'C': 1.0}}], got {kind_of(initial)}"
        )
    points = []
    for number, config in enumerate(initial):
        if not isinstance(config, Mapping):
            raise ConfigError(f"initial[{number}]: expected a dict, got {kind_of(config)}")
        try:
            points.append(space.encode(config))
        except ConfigError as error:
            raise ConfigError(f"initial[{number}]: {error}") from error
    return np.array(points) if points else None
