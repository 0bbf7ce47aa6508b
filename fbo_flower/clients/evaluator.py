"""Evaluate the queries of a task: call the objective, store each evaluation, and repeat none.

The rows of a query are evaluated one after the other in this process, or several at once in worker processes.
Each row is stored when it has ended, in whatever order rows end, so an agent that is killed loses only what
was under way. The outcome is in the order of the trials.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from logging import WARNING
from typing import Any, Protocol, cast

import numpy as np
from flwr.common.logger import log

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.options import Settings, bounded, integer
from fbo_flower.algorithms.records import NUM_EVALUATIONS, AnyArray, Array, Task, Trials
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import (
    ContextOfTrial,
    Ended,
    FoundError,
    Job,
    Objective,
    ObjectiveContext,
    call,
    can_repeat,
    join_parts,
    with_values,
)
from fbo_flower.clients.pruning import Curve, CurveBook
from fbo_flower.clients.workers import pool_of
from fbo_flower.errors import ConfigError, JournalError, kind_of
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import AgentJournal

MAX_PARALLEL = 1024
_ERRORS_NOTE = "errors"
_MOST = 20  # distinct errors that an agent remembers
_POINTS, _VALUES = "first.points", "first.values"


_ASKED = ("trials", "points", "spans")  # what a row is before it is evaluated


@dataclass
class TaskContext:
    """One task at one agent.

    Parameters
    ----------
    agent, study : ids of the agent and of the study
    partition : its partition of a simulated data set; -1 on a device without one
    task : the verified task
    key : names the task in the agent's memory
    entropy : seed of the agent's random numbers in this study
    memory : the agent's memory, which stores evaluations
    node_config, run_config : settings of Flower's context
    simulated : whether the agent draws from the study's seed, as simulated agents do. Such an agent repeats
        its draws and promises no privacy
    make_book : returns the agent's completed curves, which trials that report values need
    stored : evaluations of this task from before an interruption that nobody has taken, by their trials
    """

    agent: str
    study: str
    partition: int
    task: Task
    key: str
    entropy: int
    memory: Memory
    node_config: Mapping[str, Any]
    run_config: Mapping[str, Any]
    simulated: bool
    make_book: Callable[[], CurveBook] = CurveBook
    stored: deque[Trials] = field(default_factory=deque)

    @cached_property
    def book(self) -> CurveBook:
        """The agent's completed curves, from which trials learn when to stop; the evaluators fill it in."""
        return self.make_book()

    def take(self, row: Trials) -> Trials | None:
        """Return the stored evaluation of a row; None if it was not evaluated. Trials must ascend.

        JournalError if it belongs to another trial or point, because another version wrote the journal.
        """
        if not self.stored or self.stored[0].trials[0] > row.trials[0]:
            return None
        stored = self.stored.popleft()
        if not all(np.array_equal(getattr(stored, name), getattr(row, name)) for name in _ASKED):
            raise JournalError(
                f"journal: expected trial {row.trials[0]}, got trial {stored.trials[0]} at another point; "
                "the journal was written by another version of the algorithm: resume with that version, or "
                "start a new study"
            )
        return stored

    def append(self, row: Trials) -> None:
        """Store a new evaluation, if the memory is a journal."""
        if isinstance(self.memory, AgentJournal):
            self.memory.append(self.study, self.key, row)

    def draws(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the random generator for a purpose in this phase; see `algorithms.requests.Draws`."""
        return generator(self.entropy, "agent", self.agent, purpose, str(self.task.phase), *keys)

    def objective_context(self, trial: int, make_curve: Callable[[], Curve] = Curve) -> ObjectiveContext:
        """Return the context that the objective gets for a trial; with a plain `Curve` it never stops."""
        return ContextOfTrial(
            partial(generator, self.entropy, "agent", self.agent, "objective", trial), make_curve,
            agent=self.agent, partition=self.partition, trial=trial, server_round=self.task.round,
            node_config=self.node_config, run_config=self.run_config, study=self.study,
        )  # fmt: skip


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

    @cached_property
    def needs_workers(self) -> bool:
        """Whether evaluations run in worker processes."""
        return self.num_parallel > 1 or self.trial_timeout > 0

    def batch_size(self, context: TaskContext) -> int:
        """Return the number of trials per batch of a task, which decides what is proposed, with a journal.

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
            made, error = call(self.objective, self._job(row))
            self.context.append(made)
            if made.failures is not None:
                self._log_failure(made, error)
        return made if made.curve is None and self.cache is None else self._learn(made)

    def _at_once(self, rows: Sequence[Trials]) -> list[Trials]:
        """Return rows that begin at once with their values, evaluated by workers if they are not known.

        When trials stop is decided by what had ended before the first of them began.
        """
        done: dict[int, Trials] = {}
        work: list[tuple[int, Job]] = []  # number of a row, and a part of its evaluation
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
        ends: dict[int, Ended] = {}
        timeout = float(self.parallel.trial_timeout)
        for number, ended in pool_of(self.objective).run(jobs, self.parallel.num_parallel, timeout):
            i, ends[number] = work[number][0], ended
            missing[i] -= 1
            if not missing[i]:
                parts = [ends[n] for n, (row, _) in enumerate(work) if row == i]
                done[i], error = join_parts(rows[i], parts)
                self.context.append(done[i])
                if done[i].failures is not None:
                    self._log_failure(done[i], error)
        found = {i: self._learn(row) for i, row in sorted(done.items())}  # in the order of the trials
        if again:
            found |= zip(again, self._at_once([rows[i] for i in again]), strict=True)
        return [row for _, row in sorted(found.items())]

    def _known(self, row: Trials) -> Trials | None:
        """Return a row with its values from the journal or the cache; None if it is in neither."""
        if (made := self.context.take(row)) is not None:
            if made.failures is not None:
                self._log_failure(made)
            return made
        value = None if self.cache is None else self.cache.values.get(row.points.tobytes())
        if value is None:
            return None
        now = time.time()
        made = with_values(row, [value] * row.num_trials, "", (now, now))
        self.context.append(made)
        return made

    def _job(self, row: Trials, pending: int = 0) -> Job:
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
        return Job(row, self.space.decode(row.points[0]), contexts, repeats, self.aims)

    def _curve(self, row: Trials, pending: int) -> Curve:
        """Return the curve of a trial, which may stop early if its row is this trial.

        A mean over partial values of repeated evaluations would be biased, and the last value of a stopped
        trial has no other output beside it.
        """
        prunes = row.pulls is None and self.cache is None and not self.aims.has_outputs
        limits, from_others = self.context.book.rule(int(row.trials[0]), pending) if prunes else (None, False)
        return Curve(limits, from_others, self.aims.minimize)

    def _log_failure(self, row: Trials, error: FoundError | None = None) -> None:
        (trial, reason), *_ = row.reasons.items()
        text = new_traceback(self.context.memory, error)
        log(WARNING, "agent %s, trial %d failed: %s%s", self.context.agent, trial, reason, text)

    def _learn(self, row: Trials) -> Trials:
        """Return a row as algorithms learn it; the next ones may be known by it, or stop earlier."""
        if self.cache is not None:
            self.cache.recall(row.points, float(row.values[0]))
        return row if row.curve is None else self.context.book.add(row)


def new_traceback(memory: Memory, error: FoundError | None) -> str:
    """Return the traceback of an error; "" if the agent has returned it before.

    Two errors are the same if they have the same type and were raised at the same line of the same file. The
    agent's memory keeps their checksums, because on a device every message may start a new process.
    """
    key, text = error or ("", "")
    known = cast(list[str], memory.note(_ERRORS_NOTE).get("seen", []))
    if not text or key in known:
        return ""
    memory.put_note(_ERRORS_NOTE, {"seen": [*known, key][-_MOST:]})
    return text


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
