"""`Callback`: what hears of a running study, and the events; `InlineProgress` and `OptunaTracker` show them.

A callback sees what the server holds, in simulations too: trials that agents disclosed, and the numbers of
each round. What an agent does not disclose cannot reach it. The tracker writes them for optuna-dashboard, its
VS Code viewer, and the plots of Optuna; the progress is one line, at a terminal or below the cell of a
notebook.
"""

from __future__ import annotations

import logging
import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from fbo_flower.errors import FBOError, number_text, printable
from fbo_flower.space.checks import check_flag, check_number
from fbo_flower.space.copies import copies
from fbo_flower.space.optuna import require_optuna
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.optuna import OptunaWriter, storage_name
from fbo_flower.study.trial import RUNNING, Trial

if TYPE_CHECKING:
    from fbo_flower.study.study import Study


@copies("options", "objectives")
@dataclass(frozen=True)
class StudyInfo:
    """What is known about a study from its first event on.

    Parameters
    ----------
    study : its id, which stays the same when the study is resumed
    label : name of the run in tables and pictures
    algorithm, options : of the study
    space : its search space
    minimize : whether smaller values are better
    num_rounds, num_trials : rounds, or evaluations of each agent, as requested; None: not limited
    num_replayed : number of rounds that an earlier process ran. They are told again, so that nothing is
        missing; a callback that cannot recognise what it was told before may skip them
    objectives : name -> "max" or "min" of the numbers that the objective returns by name; else empty
    """

    study: str
    label: str
    algorithm: str
    options: Mapping[str, Any]
    space: SearchSpace
    minimize: bool
    num_rounds: int | None = None
    num_replayed: int = 0
    objectives: Mapping[str, str] = field(default_factory=dict)
    num_trials: int | None = None


@copies("numbers")
@dataclass(frozen=True)
class RoundInfo:
    """A finished round.

    Parameters
    ----------
    round : its number, from 1
    numbers : number of tasks, valid replies, failures (lost replies), refused replies, failed trials, bytes
        and floats sent down and up; seconds; best and mean_incumbent, the best and the mean of the agents'
        best values so far, NaN if none was disclosed. `study.schema.ROUNDS` explains each
    """

    round: int
    numbers: Mapping[str, float] = field(default_factory=dict)


class Callback:
    """Is told what happens in a study. Inherit from it and define the methods that you need.

    The methods are called in the server's process, between rounds, one after the other. The study waits for
    them. An exception costs a warning in the log, and nothing else.
    """

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Take a trial: running when its task was sent, and when the round has ended succeeded or failed.

        A trial is told as running only if its agent discloses trials.
        """

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Take a finished round; its trials were told before it."""

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """Take the whole study when the run has ended, also if it was interrupted or failed.

        `result.settings["runs"][0]["status"]` says which of them it was.
        """


class StudyByStudy(Callback):
    """Follows one study after the other; subclasses call `_begin` in each method."""

    _study = ""

    def _begin(self, study: StudyInfo) -> None:
        if study.study != self._study:
            self._study = study.study
            self._begin_study()

    def _begin_study(self) -> None:
        """Forget what is known about the study before."""


_LONGEST_PAUSE = 16  # rounds between two attempts to write into a storage that fails
NO_ANSWER = "no valid answer came before the study ended"


class OptunaTracker(StudyByStudy):
    """Writes disclosed trials into an Optuna storage at the end of every round.

    If the storage fails, because it is locked or the disk is full, the trials are kept and written with those
    of a later round. The pauses between attempts become longer, so a storage that is lost costs little time.
    A resumed study goes on in its Optuna studies; no trial is written twice.

    Parameters
    ----------
    storage : "sqlite:///study.db" or another URL of Optuna, a file that ends in .db (SQLite) or .log
        (Optuna's journal, which takes a twentieth of SQLite's time), or a storage of Optuna
    one_study : write the trials of all agents into one Optuna study, with the agent as a user attribute;
        otherwise each agent has an Optuna study of its own, because it has an objective of its own
    running_from : seconds that the round before must have taken for trials to be shown as running; shorter
        ones are written when they are finished only, which takes at most half of the time

    Raises
    ------
    ConfigError
        If Optuna is not installed, or `storage` cannot be one.
    """

    def __init__(self, storage: Any, *, one_study: bool = False, running_from: float = 2.0) -> None:
        require_optuna("OptunaTracker")
        self._storage = storage_name(storage)
        self._one_study = check_flag("one_study", one_study)
        self._running_from = check_number("running_from", running_from, 0.0)
        self._begin_study()

    def _begin_study(self) -> None:
        self._writer: OptunaWriter | None = None
        self._pending: dict[tuple[str, int], Trial] = {}
        self._last_seconds = math.inf
        self._pause = self._wait = 0  # rounds

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Keep a finished trial until the end of its round; show a running one now, if rounds are long."""
        self._begin(study)
        if trial.state != RUNNING:
            self._pending[trial.agent, trial.trial] = trial
        elif self._last_seconds >= self._running_from and not self._wait and not self._pending:
            with self._failing_later():
                self._open(study).write(trial)

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Write the trials that are finished, unless the storage failed a short time ago."""
        self._begin(study)
        self._last_seconds = finished.numbers.get("seconds", math.inf)
        if finished.round < study.num_replayed:
            return  # the trials of all replayed rounds are written at once
        if self._wait:
            self._wait -= 1
        elif self._pending:
            self._write(study)

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """Write what is left; trials without an answer have failed if the study has ended in order."""
        self._begin(study)
        if self._pending:
            self._write(study)
        (run,) = result.settings["runs"]
        if self._writer is not None and run.get("status") == "finished":
            self._writer.fail_unfinished(NO_ANSWER)

    def _write(self, study: StudyInfo) -> None:
        with self._failing_later():
            writer = self._open(study)
            while self._pending:
                key = next(iter(self._pending))
                writer.write(self._pending[key])
                del self._pending[key]
            self._pause = 0

    @contextmanager
    def _failing_later(self) -> Iterator[None]:
        """Turn an error of the storage into one that says what is missing, and pause for some rounds."""
        try:
            yield
        except Exception as error:  # of any database driver
            self._writer = None  # what the storage holds is read again: it may have failed after the write
            self._pause = self._wait = min(max(1, 2 * self._pause), _LONGEST_PAUSE)
            raise FBOError(
                f"{len(self._pending)} trials are not in {self._storage} yet ({type(error).__name__}: "
                f"{error}); they will be written later, or with `fbo-flower export DIR --optuna STORAGE`"
            ) from error

    def _open(self, study: StudyInfo) -> OptunaWriter:
        if self._writer is None:
            settings = {"algorithm": study.algorithm, "options": dict(study.options)}
            run = study.study, study.label, study.space, study.minimize, study.objectives
            self._writer = OptunaWriter(self._storage, *run, self._one_study, settings)
        return self._writer


class InlineProgress(Callback):
    """Shows how far a study is, its best values and its last trial, in one line that is written over.

    A stream that is neither a terminal nor a notebook gets a line a trial.
    """

    def __init__(self) -> None:
        self._stream, self._over = shown_on()
        self._told: list[str] = []  # the trials of the open round
        self._trials = self._written = 0

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Keep a trial that has ended until the end of its round, which says the best value."""
        if trial.state == RUNNING:
            return
        numbers = trial.outputs or ({"": trial.value} if math.isfinite(trial.value) else {})
        values = [f"{name} {number_text(value)}".strip() for name, value in numbers.items()]
        shorts = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in trial.config.items()}
        config = [f"{name} {value}" for name, value in shorts.items()]
        self._told.append(f"{trial.agent}: {', '.join(values) or trial.state} at {', '.join(config)}")

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Show the trials of a round, or the round if no trial is disclosed."""
        number = f"round {finished.round}{f'/{study.num_rounds}' if study.num_rounds else ''}"
        best = finished.numbers.get("best", math.nan)
        value = "" if math.isnan(best) else f", best {number_text(best)}"
        for shown in self._told:
            self._trials += 1
            trials = f"{self._trials} trial{'s' * (self._trials > 1)}"
            self._write(printable(f"{number}, {trials}{value}; {shown}"))
        self._told = []
        if not self._trials:
            self._write(number)

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """End the line, and begin anew for another study."""
        self._end_line()
        self._told, self._trials = [], 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show progress in place of Flower's lines about rounds; warnings get lines of their own."""

        def is_wanted(record: logging.LogRecord) -> bool:
            if record.levelno >= logging.WARNING:
                self._end_line()
            return record.levelno >= logging.WARNING

        flower = logging.getLogger("flwr")
        flower.addFilter(is_wanted)
        try:
            yield
        finally:
            flower.removeFilter(is_wanted)
            self._end_line()

    def _end_line(self) -> None:
        if self._over and self._written:
            self._stream.write("\n")
            self._stream.flush()
        self._written = 0

    def _write(self, text: str) -> None:
        if self._over:
            text = text[: shutil.get_terminal_size((100, 24)).columns - 1]
            self._stream.write(f"\r{text.ljust(self._written)}")
            self._written = len(text)
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()


def shown_on() -> tuple[TextIO, bool]:
    """Return where progress is shown, and whether a line can be written over there: as in a notebook."""
    if type(sys.stdout).__module__.startswith("ipykernel"):
        return sys.stdout, True
    return sys.stderr, sys.stderr is not None and sys.stderr.isatty()


def wants_progress(verbose: object) -> bool:
    """Return whether to show progress: None: where lines can be written over."""
    return shown_on()[1] if verbose is None else check_flag("verbose", verbose)
