"""`TaskContext`: the agent, the task and the agent's memory, while the agent runs a task."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Array, Outcome, Query, Task
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import ObjectiveContext, context_of_trial
from fbo_flower.clients.pruning import Curve, CurveBook
from fbo_flower.errors import JournalError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.storage.agent_journal import SECONDS, Evaluation
from fbo_flower.wire.codec import LATEST_TIME

STARTED = "started"  # with `SECONDS` an entry of `Evaluation.measures`
Times = dict[int, tuple[float, float]]  # first trial of a row -> start and end, seconds since 1970


@dataclass(frozen=True)
class Watch:
    """A watch that was started with an evaluation.

    Parameters
    ----------
    started : seconds since 1970
    before : the monotonic clock at the start, since the other one may be set while an evaluation runs
    """

    started: float
    before: float

    @staticmethod
    def start() -> Watch:
        """Return a watch that starts now."""
        return Watch(time.time(), time.perf_counter())

    def measures(self) -> dict[str, float]:
        """Return start and duration, as `Evaluation.measures` of the journal holds them."""
        return {STARTED: self.started, SECONDS: time.perf_counter() - self.before}


def measures_of(started: float, ended: float) -> dict[str, float]:
    """Return start and duration, as `Evaluation.measures` of the journal holds them."""
    return {STARTED: started, SECONDS: ended - started}


def times_of(evaluation: Evaluation) -> Times:
    """Return the times of a row."""
    measures = evaluation.measures
    return {evaluation.trial: (measures[STARTED], measures[STARTED] + measures[SECONDS])}


def without_times(measures: Mapping[str, float]) -> dict[str, float]:
    """Return the measures that an algorithm sees."""
    return {name: value for name, value in measures.items() if name not in {STARTED, SECONDS}}


def disclosed_times(times: Times, trials: Iterable[int]) -> Array | None:
    """Return start and end of rows, `(k, 2)`; None if one is unknown, or a clock is wrong by centuries."""
    known = [times.get(int(trial), (np.nan, np.nan)) for trial in trials]
    array = np.array(known, dtype=np.float64).reshape(-1, 2)
    return array if ((array >= 0) & (array <= LATEST_TIME)).all() else None


class EvaluationReplay:
    """The stored evaluations of one task, and the new ones.

    Parameters
    ----------
    memory : the agent's memory, which stores them
    study, task : study and key of the task
    """

    def __init__(self, memory: Memory, study: str, task: str) -> None:
        self._memory, self._study, self._task = memory, study, task
        # evaluations that were made at once are stored in the order in which they ended
        self._stored = deque(sorted(memory.evaluations(study, task), key=lambda stored: stored.trial))

    @property
    def num_left(self) -> int:
        """Number of stored evaluations that nobody has taken."""
        return len(self._stored)

    def take(self, trial: int, point: Array, span: int) -> Evaluation | None:
        """Return the stored evaluation of a trial; None if it was not evaluated. Trials must ascend.

        Raises
        ------
        JournalError
            If it belongs to another trial or point, because another version wrote the journal.
        """
        if not self._stored or self._stored[0].trial > trial:
            return None
        stored = self._stored.popleft()
        if stored.trial != trial or stored.span != span or not np.array_equal(stored.point, point):
            raise JournalError(
                f"journal: expected trial {trial}, got trial {stored.trial} at another point; "
                "the journal was written by another version of the algorithm: resume with that version, or "
                "start a new study"
            )
        return stored

    def append(self, evaluation: Evaluation) -> None:
        """Store a new evaluation."""
        self._memory.append(self._study, self._task, evaluation)


@dataclass(frozen=True)
class TaskContext:
    """One task at one agent.

    Parameters
    ----------
    agent : id of the agent
    study : id of the study
    partition : its partition of a simulated data set; -1 on a device without one
    task : the verified task
    entropy : seed of the agent's random numbers in this study
    memory : the agent's memory
    replay : evaluations of this task from before an interruption; it also stores new ones
    node_config, run_config : settings of Flower's context
    simulated : whether the agent draws from the study's seed, as simulated agents do. Such an agent repeats
        its draws and promises no privacy
    times : when each row of the task was evaluated; the evaluators fill it in
    book : the agent's completed curves, from which trials learn when to stop; the evaluators fill it in
    """

    agent: str
    study: str
    partition: int
    task: Task
    entropy: int
    memory: Memory
    replay: EvaluationReplay
    node_config: Mapping[str, Any]
    run_config: Mapping[str, Any]
    simulated: bool
    times: Times = field(default_factory=dict)
    book: CurveBook = field(default_factory=CurveBook)

    def draws(self, purpose: str, *keys: int) -> np.random.Generator:
        """Return the random generator for a purpose in this phase; see `algorithms.requests.Draws`."""
        return generator(self.entropy, "agent", self.agent, purpose, str(self.task.phase), *keys)

    def private_integers(self, purpose: str, *keys: int) -> Callable[[int], int]:
        """Return the source of noise that protects an answer: `source(n)` is a uniform integer in `[0, n)`.

        On a device it is the operating system's generator, which nobody can seed or repeat.
        """
        if not self.simulated:
            return secrets.randbelow
        drawn: list[Callable[[int], int]] = []  # the generator is made for the first number

        def integer(bound: int) -> int:
            if not drawn:
                drawn.append(uniform_from(self.draws(purpose, *keys)))
            return drawn[0](bound)

        return integer

    def objective_context(self, trial: int, curve: Curve | None = None) -> ObjectiveContext:
        """Return the context that the objective gets for a trial.

        Parameters
        ----------
        curve : takes what the trial reports; None: nothing is recorded, and it never stops
        """
        return context_of_trial(
            self.agent,
            self.partition,
            trial,
            self.task.round,
            lambda: generator(self.entropy, "agent", self.agent, "objective", trial),
            self.node_config,
            self.run_config,
            curve,
        )


class Evaluator(Protocol):
    """Evaluates the queries of one task."""

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        """Return the outcome of a query; its trials are numbered from `first_trial`."""
        ...

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return arrays about the evaluations that the agent's state stores with the algorithm's arrays."""
        ...
