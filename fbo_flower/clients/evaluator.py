"""Evaluate the queries of a task: call the objective, store each evaluation, and repeat none.

The rows of a query are evaluated one after the other in this process, or several at once in worker processes.
Each row is stored when it has ended, in whatever order rows end, so an agent that is killed loses only what
was under way. The outcome is in the order of the trials.
"""

from __future__ import annotations

import time
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from logging import WARNING
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.options import Settings, bounded, integer
from fbo_flower.algorithms.records import NUM_EVALUATIONS, AnyArray, Array, Trials
from fbo_flower.clients.objective import Objective, can_repeat
from fbo_flower.clients.pruning import Curve, StopRule, columns_of
from fbo_flower.clients.task_context import TaskContext
from fbo_flower.clients.workers import Ended, Job, call, new_traceback, pool_of
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.numerics import finite
from fbo_flower.space.space import SearchSpace

MAX_PARALLEL = 1024
_POINTS, _VALUES = "first.points", "first.values"


class Evaluator(Protocol):
    """Evaluates the queries of one task."""

    def __call__(self, query: Trials, first_trial: int) -> Trials:
        """Return the outcome of a query; its trials are numbered from `first_trial`."""
        ...

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return arrays about the evaluations that the agent's state stores with the algorithm's arrays."""
        ...


@dataclass(frozen=True)
class Parallel(Settings):
    """How an agent evaluates the trials of a task.

    Parameters
    ----------
    num_parallel : evaluations at the same time, each in a process of its own; 1: one after the other
    trial_timeout : seconds that one evaluation may take; then its process is killed and the trial fails. 0:
        any number
    """

    num_parallel: int = integer(1, 1, MAX_PARALLEL)
    trial_timeout: float = bounded(0.0, 0.0)

    @staticmethod
    def read(node_config: Mapping[str, Any], app: Parallel) -> Parallel:
        """Return the settings in `node_config`, and those of the app where it has none."""
        own = {f.name: node_config[f.name] for f in fields(app) if f.name in node_config}
        return replace(app, **own) if own else app

    @property
    def needs_workers(self) -> bool:
        """Whether evaluations run in worker processes."""
        return self.num_parallel > 1 or self.trial_timeout > 0

    def batch_size(self, context: TaskContext) -> int:
        """Return the number of trials per batch of a task, which decides what is proposed.

        An interrupted task keeps the number with which it began, so that the evaluations in the journal fit,
        although the operator may have changed `num_parallel`.
        """
        name = f"batch size {context.study}"
        size = int(str(context.memory.note(name).get("size", 1)))
        if context.stored:
            return size
        if size != self.num_parallel:
            context.memory.put_note(name, {"size": self.num_parallel})
        return self.num_parallel


@dataclass
class EvaluationCache:
    """The points `(D,)` that an agent has evaluated so far, as bytes, with their values.

    `num_evaluations` counts calls of the objective, failures included.
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

    def recall(self, point: Array, value: float) -> None:
        """Add an evaluation; NaN stands for a failure, which is counted and evaluated again."""
        key = point.tobytes()
        if key not in self.values:
            self.num_evaluations += 1
            if not np.isnan(value):
                self.values[key] = value


@dataclass(frozen=True)
class ObjectiveEvaluator:
    """Evaluates the queries of one task with an objective.

    Parameters
    ----------
    cache : known values, for an objective declared deterministic; None: evaluate every trial
    parallel : how many rows at once, and how long each may take
    initial : `(k, D)`, points of the agent's first k trials, in place of those of the queries; None: none
    aims : what the objective returns
    tracebacks : first trial of a row -> the traceback of its first error, until it is logged
    """

    objective: Objective
    space: SearchSpace
    context: TaskContext
    cache: EvaluationCache | None = None
    parallel: Parallel = field(default_factory=Parallel)
    initial: Array | None = None
    aims: Aims = NUMBER
    tracebacks: dict[int, str] = field(default_factory=dict)

    def __call__(self, query: Trials, first_trial: int) -> Trials:
        """Return the values at the query points; evaluations in the journal are not repeated."""
        points = self.space.snap(self._points(query, first_trial))
        trials = first_trial + np.cumsum(query.spans) - query.spans
        asked = Trials(points, np.full(len(points), np.nan), trials, pulls=query.pulls)
        rows = [asked.rows(slice(i, i + 1)) for i in range(len(points))] if len(points) > 1 else [asked]
        # the last value of a stopped trial has no other output beside it
        prunes = query.pulls is None and self.cache is None and not self.aims.has_outputs
        # without workers each waits for the one before
        batches = [rows] if self.parallel.needs_workers else [[row] for row in rows]
        done = [row for batch in batches for row in self._at_once(batch, prunes)]
        return done[0].concat(*done[1:]) if len(done) > 1 else done[0]

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return the cache and the completed curves as arrays; none without them."""
        cached = {} if self.cache is None else self.cache.arrays(self.space.dimension)
        return {**cached, **self.context.book.arrays()}

    def _points(self, query: Trials, first_trial: int) -> Array:
        """Return the points of a query, or the known configurations of the agent's first trials."""
        if self.initial is None or first_trial >= len(self.initial):
            return query.points
        if query.pulls is not None:
            raise ConfigError(
                "initial: expected an algorithm that evaluates any point, got one that evaluates only "
                "its own cells or arms; leave out initial"
            )
        known = self.initial[first_trial : first_trial + len(query.points)]
        return np.concatenate([known, query.points[len(known) :]])

    def _at_once(self, rows: Sequence[Trials], prunes: bool) -> list[Trials]:
        """Return rows that begin at once with their values; log each failure when its row has ended.

        When trials stop is decided by what had ended before the first of them began.

        Parameters
        ----------
        rows : each consecutive trials of one point, snapped to the search space
        prunes : whether each row is one trial that may stop early; a mean over partial values of repeated
            evaluations would be biased
        """
        context, cache = self.context, self.cache
        rules = [context.book.rule(pending) for pending in range(len(rows))] if prunes else []
        done: dict[int, Trials] = {}

        def end(i: int, row: Trials) -> None:
            done[i] = row
            for trial, reason in row.reasons.items():
                text = self.tracebacks.pop(trial, "")
                log(WARNING, "agent %s, trial %d failed: %s%s", context.agent, trial, reason, text)

        for i, row in enumerate(rows):
            if (stored := context.take(row)) is not None:
                end(i, stored)
        while missing := {i: row for i, row in enumerate(rows) if i not in done}:
            if cache is not None:  # each point is evaluated once
                new = {e.points.tobytes(): float(e.values[0]) for e in done.values() if e.num_succeeded}
                known = ChainMap(new, cache.values)
                found = {i: row for i, row in missing.items() if row.points.tobytes() in known}
                for i, row in found.items():
                    value, now = known[row.points.tobytes()], time.time()
                    context.append(made := self._with_values(row, [Ended((value,), "", now, now)]))
                    end(i, made)
                if found:
                    continue
                first = {row.points.tobytes(): i for i, row in reversed(missing.items())}
                missing = {i: rows[i] for i in sorted(first.values())}
            work = [(i, job) for i, row in missing.items() for job in self._jobs(row, rules[i : i + 1])]
            jobs, num_jobs = [job for _, job in work], Counter(i for i, _ in work)
            ends: Iterator[tuple[int, Ended]] = enumerate(call(self.objective, job) for job in jobs)
            if self.parallel.needs_workers:
                timeout = float(self.parallel.trial_timeout)
                ends = pool_of(self.objective).run(jobs, self.parallel.num_parallel, timeout)
            parts: dict[int, dict[int, Ended]] = {i: {} for i in missing}
            for number, ended in ends:
                i = work[number][0]
                parts[i][number] = ended
                if len(parts[i]) == num_jobs[i]:
                    by_trial = [part for _, part in sorted(parts[i].items())]
                    context.append(made := self._with_values(missing[i], by_trial, prunes))
                    end(i, made)
        for i, row in sorted(done.items()):  # in the order of the trials, whatever the order of their ends
            if cache is not None:
                cache.recall(row.points, float(row.values[0]))
            if prunes:
                done[i] = context.book.add(row)
        return [done[i] for i in range(len(rows))]

    def _jobs(self, row: Trials, rule: Sequence[StopRule]) -> list[Job]:
        """Return the calls of the objective for a row: one with a cache or `repeated`, else one per trial.

        Workers share the calls of a row; in this process they are one job. `rule` is empty, or says when the
        only trial of the row stops.
        """
        config, context = self.space.decode(row.points[0]), self.context.objective_context
        trial, num_trials = int(row.trials[0]), row.num_trials
        if self.cache is None and num_trials > 1 and can_repeat(self.objective):
            return [Job(config, [context(trial)], num_trials, self.aims)]
        num_calls = 1 if self.cache is not None else num_trials
        contexts = [context(trial + k, *map(Curve, rule)) for k in range(num_calls)]
        if self.parallel.needs_workers:
            return [Job(config, [own], 0, self.aims) for own in contexts]
        return [Job(config, contexts, 0, self.aims)]

    def _with_values(self, row: Trials, ended: Sequence[Ended], prunes: bool = False) -> Trials:
        """Return a row with its values, from the ends of its calls."""
        columns = columns_of(ended[0].curve if prunes else None)
        values = [value for end in ended for value in end.values]
        if self.aims.has_outputs:  # of one evaluation
            columns["outputs"] = np.array([values or [np.nan] * len(self.aims.names)]) + 0.0  # no -0.0
            values = values[:1]
        observed = np.array(values, dtype=np.float64)  # may be empty
        if self.cache is not None:
            observed = np.repeat(observed, row.num_trials)
        value, square = float(observed[0]) + 0.0 if len(observed) else float("nan"), 0.0
        if len(observed) > 1:
            value = finite.mean(observed) + 0.0
            with np.errstate(over="ignore"):  # the square of a huge value is infinite
                square = float(np.sum(np.square(observed - value)))
        if row.pulls is not None:
            columns |= {"counts": np.array([len(observed)]), "deviations": np.array([square])}
        failed = next(filter(attrgetter("failure"), ended), None)
        if failed is not None:
            columns["failures"] = np.array([failed.failure], dtype=object)
            self.tracebacks[int(row.trials[0])] = new_traceback(self.context.memory, failed.error)
        times = min(map(attrgetter("started"), ended)), max(map(attrgetter("stopped"), ended))
        return replace(row, values=np.array([value]), times=np.array([times]), **columns)


def points_of(initial: object, space: SearchSpace) -> Array | None:
    """Return the points `(k, D)` of a list of known configurations; None if it is empty.

    ConfigError if it is no list, or a configuration is not one of the search space.
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
