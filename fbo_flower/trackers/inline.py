"""`InlineProgress`: the progress of a study in one line, at a terminal or below the cell of a notebook."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from fbo_flower.errors import number_text, printable
from fbo_flower.space.checks import check_flag
from fbo_flower.study.study import Study
from fbo_flower.study.trial import RUNNING, Trial
from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo


class InlineProgress(Callback):
    """Shows how far a study is, its best values and its last trial, in one line that is written over.

    A stream that is neither a terminal nor a notebook gets a line a trial.
    """

    def __init__(self) -> None:
        self._stream, self._over = shown_on()
        self._trials, self._best, self._written = 0, math.nan, 0

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Show a trial that has ended."""
        if trial.state == RUNNING:
            return
        self._trials += 1
        if not study.objectives:
            known = [value for value in (self._best, trial.value) if not math.isnan(value)]
            self._best = (min if study.minimize else max)(known, default=math.nan)
        rounds = f"/{study.num_rounds}" if study.num_rounds else ""
        parts = [f"round {trial.round}{rounds}", f"{self._trials} trial{'s' * (self._trials > 1)}"]
        parts += [] if math.isnan(self._best) else [f"best {number_text(self._best)}"]
        numbers = trial.outputs or ({"": trial.value} if math.isfinite(trial.value) else {})
        values = [f"{name} {number_text(value)}".strip() for name, value in numbers.items()]
        config = [f"{name} {_short(value)}" for name, value in trial.config.items()]
        shown = f"{trial.agent}: {', '.join(values) or trial.state} at {', '.join(config)}"
        self._write(printable(f"{', '.join(parts)}; {shown}"))

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Show a round without disclosed trials."""
        if not self._trials:
            self._write(f"round {finished.round}{f'/{study.num_rounds}' if study.num_rounds else ''}")

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """End the line, and begin anew for another study."""
        self._end_line()
        self._trials, self._best = 0, math.nan

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


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
