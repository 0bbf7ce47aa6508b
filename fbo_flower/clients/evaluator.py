"""Evaluate the queries of a task: call the objective, store each evaluation, and repeat none.

The rows of a query are evaluated one after the other in this process, or several at once in worker processes.
Each row is stored when it has ended, in whatever order rows end, so an agent that is killed loses only what
was under way. The outcome is in the order of the trials.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from logging import WARNING
from typing import Any, Protocol

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.options import Settings, bounded, integer
from fbo_flower.algorithms.records import NUM_EVALUATIONS, AnyArray, Array, Trials
from fbo_flower.clients import workers
from fbo_flower.clients.objective import Objective, can_repeat
from fbo_flower.clients.pruning import Curve
from fbo_flower.clients.task_context import TaskContext
from fbo_flower.errors import ConfigError, kind_of
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
        if not context.memory.keeps_ledger:  # it keeps no evaluations either
            return self.num_parallel
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
    """

    objective: Objective
    space: SearchSpace
    context: TaskContext
    cache: EvaluationCache | None = None
    parallel: Parallel = field(default_factory=Parallel)
    initial: Array | None = None
    aims: Aims = NUMBER

    def __call__(self, query: Trials, first_trial: int) -> Trials:
        """Return the values at the query points; evaluations in the journal are not repeated."""
        points, spans = query.points, query.spans
        if self.initial is not None and first_trial < len(self.initial):
            if query.pulls is not None:
                raise ConfigError(
                    "initial: expected an algorithm that evaluates any point, got one that evaluates only "
                    "its own cells or arms; leave out initial"
                )
            known = self.initial[first_trial : first_trial + len(points)]
            points = np.concatenate([known, points[len(known) :]])
        points, trials = self.space.snap(points), first_trial + np.cumsum(spans) - spans
        asked = Trials(points, np.full(len(points), np.nan), trials, pulls=query.pulls)
        rows = [asked.rows(slice(i, i + 1)) for i in range(len(points))] if len(points) > 1 else [asked]
        # without workers each waits for the one before
        done = self._at_once(rows) if self.parallel.needs_workers else list(map(self._here, rows))
        return done[0].concat(*done[1:]) if len(done) > 1 else done[0]

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return the cache and the completed curves as arrays; none without them."""
        cached = {} if self.cache is None else self.cache.arrays(self.space.dimension)
        return {**cached, **self.context.book.arrays()} if "book" in vars(self.context) else cached

    def _here(self, row: Trials) -> Trials:
        """Return a row with its values, evaluated in this process if they are not known."""
        made = self._known(row) if self.context.stored or self.cache is not None else None
        if made is None:
            made = self._ended(*workers.call(self.objective, self._job(row)))
        return self._learn(made)

    def _at_once(self, rows: Sequence[Trials]) -> list[Trials]:
        """Return rows that begin at once with their values, evaluated by workers if they are not known.

        When trials stop is decided by what had ended before the first of them began.
        """
        done: dict[int, Trials] = {}
        work: list[tuple[int, workers.Job]] = []  # number of a row, and a part of its evaluation
        again, points = [], set[bytes]()
        for i, row in enumerate(rows):
            point = row.points.tobytes()
            if (made := self._known(row)) is not None:
                done[i] = made
            elif self.cache is not None and point in points:  # each point is evaluated once
                again.append(i)
            else:
                work += [(i, job) for job in self._job(row, i).parts()]
            points.add(point)
        jobs, missing = [job for _, job in work], Counter(i for i, _ in work)
        ends: dict[int, workers.Ended] = {}
        timeout = float(self.parallel.trial_timeout)
        for number, ended in workers.pool_of(self.objective).run(jobs, self.parallel.num_parallel, timeout):
            i, ends[number] = work[number][0], ended
            missing[i] -= 1
            if not missing[i]:
                parts = [ends[n] for n, (row, _) in enumerate(work) if row == i]
                done[i] = self._ended(*workers.join_parts(rows[i], parts))
        found = {i: self._learn(row) for i, row in sorted(done.items())}  # in the order of the trials
        if again:
            found |= zip(again, self._at_once([rows[i] for i in again]), strict=True)
        return [row for _, row in sorted(found.items())]

    def _known(self, row: Trials) -> Trials | None:
        """Return a row with its values from the journal or the cache; None if it is in neither."""
        if (made := self.context.take(row)) is not None:
            return self._ended(made, is_new=False)
        value = None if self.cache is None else self.cache.values.get(row.points.tobytes())
        if value is None:
            return None
        now = time.time()
        return self._ended(workers.with_values(row, [value] * row.num_trials, "", (now, now)))

    def _job(self, row: Trials, pending: int = 0) -> workers.Job:
        """Return the calls of the objective for a row: one with a cache or `repeated`, else one per trial.

        Parameters
        ----------
        pending : number of earlier trials under way
        """
        trial, num_calls = int(row.trials[0]), row.num_trials
        repeats = self.cache is None and num_calls > 1 and can_repeat(self.objective)
        if repeats or self.cache is not None:
            num_calls = 1
        context = partial(self.context.objective_context, make_curve=partial(self._curve, row, pending))
        contexts = list(map(context, range(trial, trial + num_calls)))
        return workers.Job(row, self.space.decode(row.points[0]), contexts, repeats, self.aims)

    def _curve(self, row: Trials, pending: int) -> Curve:
        """Return the curve of a trial, which may stop early if its row is this trial.

        A mean over partial values of repeated evaluations would be biased, and the last value of a stopped
        trial has no other output beside it.
        """
        prunes = row.pulls is None and self.cache is None and not self.aims.has_outputs
        limits, from_others = self.context.book.rule(int(row.trials[0]), pending) if prunes else (None, False)
        return Curve(limits, from_others, self.aims.minimize)

    def _ended(self, row: Trials, error: workers.FoundError | None = None, *, is_new: bool = True) -> Trials:
        """Store a row whose evaluation has ended if it is new, log why it failed, and return it."""
        if is_new:
            self.context.append(row)
        if row.failures is not None:
            text = workers.new_traceback(self.context.memory, error)
            (trial, reason), *_ = row.reasons.items()
            log(WARNING, "agent %s, trial %d failed: %s%s", self.context.agent, trial, reason, text)
        return row

    def _learn(self, row: Trials) -> Trials:
        """Return a row as algorithms learn it; the next ones may be known by it, or stop earlier."""
        if self.cache is not None:
            self.cache.recall(row.points, float(row.values[0]))
        return row if row.curve is None else self.context.book.add(row)


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
