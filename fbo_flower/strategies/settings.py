"""What every strategy takes and returns: settings, as journals hold them, callbacks and results."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from logging import DEBUG, WARNING
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Result

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.options import Settings, bounded, checked, choice, flag, integer
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.errors import ConfigError, kind_of, printable
from fbo_flower.space.checks import check_integer
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.recorder import Recorder, RoundProgress
from fbo_flower.study.directory import check_label
from fbo_flower.study.study import Study
from fbo_flower.study.trial import Trial
from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo

SYNC, ASYNC = "sync", "async"  # whether agents wait for each other at the end of a round, or not


def _check_action(action: object) -> None:
    if not (isinstance(action, str) and action.isidentifier()):  # Flower's rule
        raise ConfigError(f"action: expected a Python name such as 'tune', got {kind_of(action)}")


@dataclass(frozen=True, kw_only=True)
class StrategySettings(Settings):
    """The settings of a strategy; `TuningStrategy` explains each of them.

    Raises
    ------
    ConfigError
        If a number is out of bounds.
    """

    num_agents: int | None = integer(None, 1)
    seed: int | None = integer(None, 0)
    fraction: float = bounded(1.0, 1e-9, 1.0)
    wait_seconds: float = bounded(0.0, 0.0)
    round_timeout: float = bounded(0.0, 0.0)
    quorum: float = bounded(1.0, 1e-9, 1.0)
    space: SearchSpace | None = None
    action: str | None = checked(None, _check_action)
    label: str = checked(MISSING, check_label)
    callbacks: Sequence[Callback | Callable[[RoundProgress], None]] = ()
    pool_curves: bool = flag(False)
    mode: str = choice(SYNC, (SYNC, ASYNC))
    max_staleness: int | None = integer(None, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_staleness is not None and self.mode != ASYNC:
            raise ConfigError(
                f"max_staleness: expected the mode 'async', got {self.mode!r}, in which no answer is "
                "older than its round; leave max_staleness out"
            )

    def check_algorithm(self, algorithm: Algorithm[Any]) -> None:
        """Raise ConfigError unless the algorithm can run in this mode."""
        if self.mode == ASYNC and (self.fraction < 1.0 or self.quorum < 1.0):
            raise ConfigError(
                f"mode: expected no fraction and no quorum in an asynchronous study, got {self.fraction:g} "
                f"and {self.quorum:g}; no agent waits for another one there"
            )
        reason = algorithm.barrier
        if algorithm.secure_sums:
            reason = "a secure sum needs several agents together (option secure_sums = 0 has none)"
        if self.mode == ASYNC and reason:
            raise ConfigError(f"mode: expected 'sync' for {algorithm.name}, because {reason}")

    def fixed(self, algorithm: Algorithm[Any], seed: int, warm_start: WarmStart | None) -> dict[str, object]:
        """Return the settings that must not change when a study is resumed."""
        return {
            "algorithm": algorithm.name,
            "options": algorithm.options(),
            "seed": str(seed),
            "fraction": self.fraction,
            "label": self.label,
            **({} if warm_start is None else {"warm_start": warm_start.digest}),
            **({} if self.mode == SYNC else {"mode": self.mode}),
            **({} if self.max_staleness is None else {"max_staleness": self.max_staleness}),
            **({"pool_curves": True} if self.pool_curves else {}),
        }


def check_extent(num_rounds: object, num_trials: object) -> tuple[int | None, int | None]:
    """Return the rounds of a study, or the evaluations of each agent; ConfigError if both are given."""
    if num_rounds is not None and num_trials is not None:
        raise ConfigError(
            "num_trials: expected either num_rounds or num_trials (evaluations of each agent), got both; "
            "leave one out"
        )
    return (
        None if num_rounds is None else check_integer("num_rounds", num_rounds, 1),
        None if num_trials is None else check_integer("num_trials", num_trials, 1),
    )


TRAIN, EVALUATE = "train", "evaluate"  # the halves of Flower's rounds
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass
class TuningResult(Result):
    """Flower's result of a run, and the study.

    Attributes
    ----------
    arrays : the messages from which another study can start, see `initial_arrays`; empty if the algorithm
        keeps none
    train_metrics_clientapp, evaluate_metrics_clientapp : round -> numbers of the half-round: valid `replies`,
        `evaluations` and `failed` ones in them, and, if agents disclose values, `best` and `mean` of the
        agents' best values so far. Secure sums need the second half of a round; their shares are replies
    evaluate_metrics_serverapp : round -> what `evaluate_fn` returned
    study : disclosed trials and measured rounds
    """

    study: Study = field(init=False, repr=False)

    def note(self, half: str, server_round: int, numbers: Mapping[str, float]) -> None:
        """Add the numbers of an exchange to those of its half-round."""
        rounds = self.train_metrics_clientapp if half == TRAIN else self.evaluate_metrics_clientapp
        before: Mapping[str, Any] = rounds.get(server_round, {})
        added = dict(numbers)
        for name, number in numbers.items():
            if name not in ("best", "mean"):
                added[name] += before.get(name, 0)
            elif math.isnan(number):
                del added[name]
        rounds[server_round] = MetricRecord({**added})


def half_of(phase: Phase) -> str:
    """Return the half of a round in which Flower carries the messages of a phase."""
    return TRAIN if phase in (Phase.TRAIN, Phase.FINISH) else EVALUATE


# methods of Flower's older strategies
LEGACY = frozenset({"initialize_parameters", "configure_fit", "aggregate_fit", "evaluate"})
# parameters of Flower's `FedAvg`, of both generations, and what to write in their place
_FEDAVG = {
    r"fraction_(train|fit)": "pass fraction",
    r"min_(available|train|fit)_\w+": "pass num_agents",
    r"initial_parameters": "pass initial_arrays to start",
    r"evaluate_fn": "pass it to start",
    r"(fraction|min)_evaluate\w*|\w+_key|\w+_fn|accept_failures|inplace": "leave it out",
}


def check_no_fedavg(names: Iterable[str]) -> None:
    """Raise ConfigError if a name is a parameter of `FedAvg`, which averages models."""
    for name in names:
        remedy = next((what for pattern, what in _FEDAVG.items() if re.fullmatch(pattern, name)), None)
        if remedy is not None:
            raise ConfigError(f"{name}: expected a setting of a tuning strategy, got one of FedAvg; {remedy}")


def check_evaluate_fn(evaluate_fn: object) -> None:
    """Raise ConfigError unless it is None or takes a round and arrays."""
    if evaluate_fn is None:
        return
    try:
        inspect.signature(cast(EvaluateFn, evaluate_fn)).bind(0, None)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"evaluate_fn: expected evaluate_fn(server_round, arrays), got {kind_of(evaluate_fn)}: {error}"
        ) from error


def check_no_config(name: str, config: ConfigRecord | None) -> None:
    """Raise ConfigError if a config for clients holds anything: tasks hold only what an algorithm sends."""
    if config:
        raise ConfigError(
            f"{name}: expected none, got {', '.join(config)}; agents take tasks of the algorithm only, and "
            "read settings of their own from the run config and their node_config"
        )


def messages_of(
    arrays: ArrayRecord | None, path: str | os.PathLike[str] | None, algorithm: str
) -> WarmStart | None:
    """Return the messages from which a study starts, given as Flower's arrays or as a file; None: neither."""
    if arrays is not None and not isinstance(arrays, ArrayRecord):
        raise ConfigError(
            f"initial_arrays: expected an ArrayRecord, got {kind_of(arrays)}; pass num_rounds by name"
        )
    if arrays and path is not None:
        raise ConfigError("warm_start: expected a file or initial_arrays, got both")
    if arrays:
        return WarmStart(algorithm, "", {name: array.numpy() for name, array in arrays.items()})
    return None if path is None else WarmStart.load(path, algorithm)


_MAX_ERROR = 500  # characters of an error of a callback in the log


def check_callbacks(callbacks: Sequence[object]) -> None:
    """Raise ConfigError unless each callback is a `Callback` or a function."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise ConfigError(f"callbacks: expected a list of callbacks, got {kind_of(callbacks)}")
    for callback in callbacks:
        if isinstance(callback, type) or not (isinstance(callback, Callback) or callable(callback)):
            raise ConfigError(
                f"callbacks: expected functions, or objects of a class that inherits from "
                f"fbo_flower.trackers.Callback, got {kind_of(callback)}"
            )


class Callbacks:
    """Tells the callbacks of one run; an error of theirs is logged, and never ends a study.

    Parameters
    ----------
    callbacks : whom to tell; functions are called by the strategy
    info : about the study
    """

    def __init__(self, callbacks: Sequence[object], info: StudyInfo) -> None:
        self._told = [callback for callback in callbacks if isinstance(callback, Callback)]
        self._info = info
        self._failed: set[str] = set()  # methods and their errors that the log names

    def _call(self, method: str, event: Any) -> None:
        for callback in self._told:
            try:
                getattr(callback, method)(self._info, event)
            except Exception as error:  # of any library behind a callback
                name = f"{type(callback).__name__}.{method}"
                reason = printable(f"{type(error).__name__}: {' '.join(str(error).split())}")[:_MAX_ERROR]
                again = f"{name} {type(error).__name__}" in self._failed
                self._failed.add(f"{name} {type(error).__name__}")
                log(DEBUG if again else WARNING, "%s failed, the study goes on: %s", name, reason)
                log(DEBUG, "%s", name, exc_info=error)


class Notifier(Callbacks):
    """Tells the callbacks what a recorder holds."""

    def __init__(self, callbacks: Sequence[object], info: StudyInfo, recorder: Recorder) -> None:
        super().__init__(callbacks, info)
        self._recorder, self._num_trials, self._num_rounds = recorder, 0, 0  # rows of it that were told

    def sent(self, tasks: Iterable[tuple[str, Task]]) -> None:
        """Tell that tasks were sent to agents that disclose their trials: these trials are running."""
        for agent, task in tasks if self._told else ():
            for number in range(task.trial, task.trial + task.num_trials):
                self._call("on_trial", Trial(agent, number, task.round))

    def round_ended(self) -> None:
        """Tell the trials and rounds that are new since the last call."""
        if not self._told:
            return
        trials = list(self._recorder.trials_since(self._num_trials))
        self._num_trials += len(trials)
        for row in self._recorder.rounds[self._num_rounds :]:
            self._num_rounds += 1
            number = int(row["round"])
            for trial in trials:
                if trial.round <= number:
                    self._call("on_trial", trial)
            trials = [trial for trial in trials if trial.round > number]
            numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
            self._call("on_round", RoundInfo(number, {n: v for n, v in numbers.items() if n != "round"}))
        for trial in trials:  # of the final exchanges
            self._call("on_trial", trial)

    def finished(self, study: Study) -> None:
        """Tell what is left, and that the run has ended."""
        self.round_ended()
        self._call("on_finish", study)
