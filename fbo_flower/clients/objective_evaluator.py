"""`ObjectiveEvaluator`: evaluate the user's objective, store each evaluation, and repeat none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from logging import WARNING
from typing import Any

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.records import AnyArray, Array, Outcome, Query
from fbo_flower.clients.curve_book import curve_to_bytes, measures_of_curve, stopped_at
from fbo_flower.clients.evaluation_cache import EvaluationCache
from fbo_flower.clients.objective import Objective, can_repeat, evaluate, evaluate_repeatedly
from fbo_flower.clients.pruning import Curve, StopRule
from fbo_flower.clients.task_context import TaskContext
from fbo_flower.clients.tracebacks import new_traceback
from fbo_flower.clients.trial_times import Watch, times_of
from fbo_flower.errors import ObjectiveError, WrongTypeError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import Evaluation


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
