"""`ObjectiveEvaluator`: evaluate the user's objective, store each evaluation, and repeat none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from logging import WARNING
from typing import Any

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.records import AnyArray, Array, Outcome, Query
from fbo_flower.clients.evaluation_cache import EvaluationCache
from fbo_flower.clients.objective import Objective, can_repeat, evaluate, evaluate_repeatedly
from fbo_flower.clients.task_context import TaskContext
from fbo_flower.clients.tracebacks import new_traceback
from fbo_flower.clients.trial_times import Watch, times_of
from fbo_flower.errors import ObjectiveError
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import Evaluation


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
        spans = np.ones(len(points), dtype=np.int64) if query.repeats is None else query.repeats
        trials = first_trial + np.cumsum(spans) - spans
        values, deviations = np.full(len(points), np.nan), np.zeros(len(points))
        counts, failures = np.zeros(len(points), dtype=np.int64), {}
        replay = self.context.replay
        for i, (point, trial, span) in enumerate(zip(points, trials.tolist(), spans.tolist(), strict=True)):
            row = replay.take(trial, point, span)
            if row is None:
                row = self._evaluate_row(point, trial, span)
                replay.append(row)
            elif self.cache is not None:
                self.cache.recall(point, row.value)
            self.context.times.update(times_of(row))
            if row.failure:
                failures[trial] = row.failure
                log(
                    WARNING, "agent %s, trial %d failed: %s%s",
                    self.context.agent, trial, row.failure, self.tracebacks.pop(trial, ""),
                )  # fmt: skip
            values[i], counts[i], deviations[i] = row.value, row.count, row.square
        if query.repeats is None:
            return Outcome(points, values, trials, failures)
        return Outcome(points, values, trials, failures, counts, spans, deviations)

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return the cache as arrays; none without a cache."""
        return {} if self.cache is None else self.cache.arrays(self.space.dimension)

    def _evaluate_row(self, point: Array, trial: int, span: int) -> Evaluation:
        observe, watch = partial(self._observe, self.space.decode(point), trial), Watch.start()
        if self.cache is None:
            observed, reason = observe(span)
        else:
            observed, reason = self.cache.repeat(point, span, partial(observe, 1))
        if len(observed) == 0:
            return Evaluation(trial, point, float("nan"), 0, span, 0.0, reason, watch.measures())
        if len(observed) == 1:
            return Evaluation(trial, point, float(observed[0]) + 0.0, 1, span, 0.0, reason, watch.measures())
        with np.errstate(over="ignore"):  # the square of a huge value is infinite
            value = float(np.mean(observed)) + 0.0  # no -0.0
            square = float(np.sum(np.square(observed - value)))
        return Evaluation(trial, point, value, len(observed), span, square, reason, watch.measures())

    def _observe(self, config: dict[str, Any], trial: int, span: int) -> tuple[Array, str]:
        """Evaluate a configuration `span` times; return the values and the reason of the first failure."""
        observed, reason = [], ""
        at_once = span > 1 and can_repeat(self.objective)
        for k in range(1 if at_once else span):
            context = self.context.objective_context(trial + k)
            try:
                if at_once:
                    return evaluate_repeatedly(self.objective, config, context, span), ""
                observed.append(evaluate(self.objective, config, context))
            except ObjectiveError as error:
                if not reason:
                    self.tracebacks[trial] = new_traceback(self.context.memory, error.__cause__)
                reason = reason or str(error)
        return np.array(observed, dtype=np.float64), reason
