"""Progress bars on the terminal, one per algorithm or stage, with warnings above them."""

from __future__ import annotations

import logging
import math
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from fbo_flower.errors import number_text, printable
from fbo_flower.strategies import RoundProgress

_MOST_CHARACTERS = 500  # of a warning, unless Flower's whole log is shown
_ENGINE_LOGGERS = ("vce_api", "raybackend", "ray_actor", "ray_client_proxy", "run_simulation")


class Display(logging.Handler):
    """Show a progress bar unless `quiet`, and Flower's warnings or, with `debug`, its whole log.

    It stands in place of Flower's own log handlers: each warning is a line above the bar.
    """

    def __init__(self, *, quiet: bool = False, debug: bool = False, console: Console | None = None) -> None:
        super().__init__(logging.DEBUG if debug else logging.INFO)
        self._debug, self._console = debug, console or Console(stderr=True, highlight=False)
        if not self._console.is_terminal:
            self._console.width = max(self._console.width, 120)
        self._progress = Progress(
            TimeElapsedColumn(),  # first, because a narrow terminal cuts what comes last
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=4),
            TextColumn("{task.fields[done]}"),
            console=self._console,
            disable=quiet,
        )
        self._task: TaskID | None = None
        self._lost = self._failed = 0
        self._done = ""  # what the bar shows after the last round

    def __enter__(self) -> Self:
        import flwr.common.logger  # noqa: F401  # it installs handlers when it is imported

        self._flower = logging.getLogger("flwr")
        self._before = list(self._flower.handlers), self._flower.level
        self._flower.handlers[:] = [self]
        self._flower.setLevel(logging.INFO)
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        self._flower.handlers[:], level = self._before
        self._flower.setLevel(level)

    def announce(self, label: str) -> None:
        """Start the bar of the next algorithm."""
        if self._task is not None:
            self._progress.stop_task(self._task)
        self._lost = self._failed = 0
        self._done = "starting"
        self._task = self._progress.add_task(printable(label), total=None, done=self._done)

    def advance(self, progress: RoundProgress) -> None:
        """Advance the bar by one finished round; it counts lost or refused replies and failed evaluations."""
        assert self._task is not None
        self._lost += progress.failures + progress.refused
        self._failed += progress.failed_trials
        counts = f" {self._lost} lost" if self._lost else ""
        counts += f" {self._failed} failed" if self._failed else ""
        best, mean = ("-" if math.isnan(x) else number_text(x) for x in (progress.best, progress.mean))
        done, total = progress.done
        self._done = f"{done}/{total or '?'} best {best} mean {mean}{counts}"
        self._progress.update(self._task, completed=done, total=total, done=self._done)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, except the engine's reports of a failing agent, which the strategy logs too."""
        replies = getattr(record, "replies", "")  # that have come in a round under way
        if replies and self._task is not None:
            self._progress.update(self._task, done=f"{self._done}; {replies}")
        text = record.getMessage().strip()
        if not self._debug:
            if record.levelno < logging.WARNING:
                return
            if record.module in _ENGINE_LOGGERS or text.startswith("DEPRECATED FEATURE"):
                return
            text = text.splitlines()[0][:_MOST_CHARACTERS] if text else text
        lines = [printable(line) for line in f"{record.levelname.lower()}: {text}".splitlines()]
        self._console.print(Text("\n".join(lines)), soft_wrap=True)
