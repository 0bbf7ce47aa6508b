"""`WorkersEvaluator`: evaluate the trials of a query in worker processes, several at once.

Each row is journalled when it has ended, in whatever order rows end, so an agent that is killed loses only
what was under way. The outcome is in the order of the trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fbo_flower.algorithms.options import check_number
from fbo_flower.clients.evaluator import EvaluationCache, ObjectiveEvaluator, Row
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import Objective, can_repeat
from fbo_flower.clients.pruning import Curve
from fbo_flower.clients.task_context import TaskContext, Watch, measures_of
from fbo_flower.clients.tracebacks import new_traceback
from fbo_flower.clients.workers import Ended, Job, pool_of
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import Evaluation

MAX_PARALLEL = 1024


@dataclass(frozen=True)
class Parallel:
    """How an agent evaluates the trials of a task.

    Parameters
    ----------
    num_parallel : evaluations at the same time, each in a process of its own; 1: one after the other
    trial_timeout : seconds that one evaluation may take; then its process is killed and the trial fails. 0:
        any number
    """

    num_parallel: int = 1
    trial_timeout: float = 0.0

    def __post_init__(self) -> None:
        check_number("num_parallel", self.num_parallel, 1, MAX_PARALLEL, integer=True)
        check_number("trial_timeout", self.trial_timeout, 0)

    @staticmethod
    def read(node_config: Mapping[str, Any], app: Parallel) -> Parallel:
        """Return the settings in `node_config`, and those of the app where it has none."""
        if "num_parallel" not in node_config and "trial_timeout" not in node_config:
            return app
        return Parallel(
            node_config.get("num_parallel", app.num_parallel),
            node_config.get("trial_timeout", app.trial_timeout),
        )

    @property
    def needs_workers(self) -> bool:
        """Whether evaluations run in worker processes."""
        return self.num_parallel > 1 or self.trial_timeout > 0

    def batch_size(self, memory: Memory, study: str, interrupted: bool) -> int:
        """Return the number of trials per batch of a task, which decides what is proposed.

        An interrupted task keeps the number with which it began, so that the evaluations in the journal fit,
        although the operator may have changed `num_parallel`.

        Parameters
        ----------
        interrupted : whether the memory holds evaluations of the task
        """
        name = f"batch size {study}"
        size = int(str(memory.note(name).get("size", 1)))
        if interrupted:
            return size
        if size != self.num_parallel:
            memory.put_note(name, {"size": self.num_parallel})
        return self.num_parallel


@dataclass(frozen=True)
class WorkersEvaluator(ObjectiveEvaluator):
    """Evaluates the queries of one task in worker processes.

    Parameters
    ----------
    parallel : how many at once, and how long each may take
    """

    parallel: Parallel = field(default_factory=Parallel)

    def rows(self, rows: Sequence[Row], prunes: bool) -> Iterator[tuple[int, Evaluation]]:
        """Yield the place and the evaluation of each row: stored ones first, then others as they end.

        When trials stop is decided by what had ended before the first of them began.
        """
        rules = [self.context.book.rule(pending) for pending in range(len(rows))] if prunes else []
        known = {} if self.cache is None else dict(self.cache.values)
        done: dict[int, Evaluation] = {}
        for i, row in enumerate(rows):
            stored = self.context.replay.take(row.trial, row.point, row.span)
            if stored is not None:
                done[i] = stored
                yield i, stored
        while missing := {i: row for i, row in enumerate(rows) if i not in done}:
            if self.cache is not None:
                known |= {rows[i].key: e.value for i, e in done.items() if not np.isnan(e.value)}
                missing = {i: row for i, row in missing.items() if row.key in known} or _first(missing)
            curves = {i: Curve(rules[i]) for i in missing} if prunes else {}
            for i, evaluation in self._evaluated(missing, known, curves):
                self.context.replay.append(evaluation)
                done[i] = evaluation
                yield i, evaluation
        if self.cache is not None:
            for i, row in enumerate(rows):  # in the order of the trials, whatever the order of their ends
                self.cache.recall(row.point, done[i].value)
        for i in range(len(rules)):
            self.context.book.add(done[i])

    def _evaluated(
        self, rows: Mapping[int, Row], known: Mapping[bytes, float], curves: Mapping[int, Curve]
    ) -> Iterator[tuple[int, Evaluation]]:
        """Evaluate rows at once, except those at known points, and yield each as it ends.

        Parameters
        ----------
        curves : row -> the curve with the rule of its trial, for rows that may stop early
        """
        jobs: list[Job] = []
        owners: list[int] = []  # job -> its row
        for i, row in rows.items():
            if row.key in known:
                yield i, row.evaluation(np.full(row.span, known[row.key]), "", Watch.start().measures())
                continue
            new = self._jobs(row, curves.get(i))
            jobs += new
            owners += [i] * len(new)
        parts: dict[int, dict[int, Ended]] = {i: {} for i in owners}
        num_jobs = Counter(owners)
        pool = pool_of(self.objective) if jobs else None
        limits = self.parallel.num_parallel, float(self.parallel.trial_timeout)
        for number, ended in pool.run(jobs, *limits) if pool is not None else ():
            i = owners[number]
            parts[i][number] = ended
            if len(parts[i]) == num_jobs[i]:
                ends = [parts[i][n] for n in sorted(parts[i])]
                yield i, self._joined(rows[i], ends, ends[0].curve if i in curves else None)

    def _jobs(self, row: Row, curve: Curve | None) -> list[Job]:
        """Return the calls of the objective for a row: one with a cache or `repeated`, else one per trial."""
        config, context = self.space.decode(row.point), self.context.objective_context
        if self.cache is None and row.span > 1 and can_repeat(self.objective):
            return [Job(config, context(row.trial), row.span)]
        return [
            Job(config, context(row.trial + k, curve))
            for k in range(1 if self.cache is not None else row.span)
        ]

    def _joined(self, row: Row, ended: Sequence[Ended], curve: Curve | None) -> Evaluation:
        """Return the evaluation of a row from the ends of its calls."""
        observed = np.array([value for end in ended for value in end.values], dtype=np.float64)
        if self.cache is not None:
            observed = np.repeat(observed, row.span)
        failed = next((end for end in ended if end.failure), None)
        if failed is not None:
            self.tracebacks[row.trial] = new_traceback(self.context.memory, failed.error)
        start, stop = min(e.started for e in ended), max(e.started + e.seconds for e in ended)
        reason = "" if failed is None else failed.failure
        return row.evaluation(observed, reason, measures_of(start, stop), curve)


def _first(rows: Mapping[int, Row]) -> dict[int, Row]:
    """Return the first row at each point: with a cache each point is evaluated once."""
    found: dict[bytes, int] = {}
    for i, row in rows.items():
        found.setdefault(row.key, i)
    return {i: rows[i] for i in found.values()}


def evaluator_of(
    parallel: Parallel,
    objective: Objective,
    space: SearchSpace,
    context: TaskContext,
    cache: EvaluationCache | None,
) -> ObjectiveEvaluator:
    """Return the evaluator of a task: in this process, or in worker processes if the settings need them."""
    if not parallel.needs_workers:
        return ObjectiveEvaluator(objective, space, context, cache)
    return WorkersEvaluator(objective, space, context, cache, parallel=parallel)


__all__ = ["WorkersEvaluator", "evaluator_of"]
