"""Tell callbacks what happens in a running study; an error of theirs never ends it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from logging import DEBUG, WARNING
from typing import Any

from flwr.common.logger import log

from fbo_flower.errors import ConfigError, kind_of, printable
from fbo_flower.strategies.study_run import StudyRun
from fbo_flower.study.study import Study
from fbo_flower.study.trial import Trial
from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo

_DISCLOSES_TRIALS = "trials"
_MAX_ERROR = 500  # characters


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


@dataclass
class Notifier:
    """Tells the callbacks of one run.

    Parameters
    ----------
    callbacks : whom to tell; functions are called by the strategy
    run : the study; what its recorder holds is what callbacks learn
    num_rounds : as requested; None: until the algorithm is finished
    """

    callbacks: Sequence[object]
    run: StudyRun
    num_rounds: int | None
    _num_trials: int = 0  # rows of the recorder that were told
    _num_rounds: int = 0
    _said: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        run = self.run
        self._told = [callback for callback in self.callbacks if isinstance(callback, Callback)]
        self.info = StudyInfo(
            run.study,
            run.recorder.label,
            run.algorithm.name,
            run.algorithm.options(),
            run.recorder.space,
            run.recorder.aims.minimize,
            self.num_rounds,
            len(run.recorder.rounds),
            {name: direction for name, direction in run.recorder.aims.objectives if name},
        )

    def sent(self, agents: Iterable[str]) -> None:
        """Tell that tasks were sent to agents that disclose their trials: these trials are running."""
        if not self._told:
            return
        registry = self.run.registry
        for agent in agents:
            task = self.run.sent[agent].task
            if registry.agents[agent].said.disclosure.startswith(_DISCLOSES_TRIALS):
                for number in range(task.trial, task.trial + task.num_trials):
                    self._call("on_trial", Trial(agent, number, task.round))

    def round_ended(self) -> None:
        """Tell the trials and rounds that are new since the last call."""
        if not self._told:
            return
        trials = list(self.run.recorder.trials.since(self._num_trials))
        self._num_trials += len(trials)
        for row in self.run.recorder.rounds[self._num_rounds :]:
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

    def _call(self, method: str, event: Any) -> None:
        for callback in self._told:
            try:
                getattr(callback, method)(self.info, event)
            except Exception as error:  # of any library behind a callback
                name = f"{type(callback).__name__}.{method}"
                reason = printable(f"{type(error).__name__}: {' '.join(str(error).split())}")[:_MAX_ERROR]
                again = f"{name} {type(error).__name__}" in self._said
                self._said.add(f"{name} {type(error).__name__}")
                log(DEBUG if again else WARNING, "%s failed, the study goes on: %s", name, reason)
                log(DEBUG, "%s", name, exc_info=error)
