"""`fbo-flower watch`: show how far a run is while it runs, from its journals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fbo_flower.cli.common import Debug
from fbo_flower.errors import ConfigError, JournalError

if TYPE_CHECKING:
    from fbo_flower.cli.watch_source import WatchedRun

_INTERRUPTED = 130
_MOST_FAILURES = 3  # looks in a row that may fail


def watch(
    path: Annotated[
        Path,
        typer.Argument(
            help="Directory of a run, or a server's journal; a run without a journal shows its results at "
            "its end.",
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Print the state once and end.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks at the files.")] = 2.0,
    debug: Debug = False,
) -> int:
    """Show how far a run is, and when it is expected to end.

    Shows rounds, agents, best value and evaluations. Reads the journals of a run or of a deployed server
    while they are written, and changes nothing. In a terminal the text is redrawn in place; otherwise it is
    printed again when a round has ended.

    It ends when the run has ended, or with Ctrl-C.

    Example: fbo-flower watch runs/mine
    """
    from fbo_flower.cli.watch_source import WatchedRun

    if not 0.05 <= interval <= 3600:
        raise ConfigError(f"--interval: expected 0.05 to 3600 seconds, got {interval:g}")
    try:
        watched = WatchedRun(path)
        if once:
            watched.look()
            typer.echo("\n".join(watched.lines(datetime.now())))
        elif sys.stdout.isatty():
            _redraw(watched, interval)
        else:
            _print_changes(watched, interval)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _redraw(watched: WatchedRun, interval: float) -> None:
    """Redraw the state in place until the run has ended."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:

        def show() -> None:
            lines = watched.lines(datetime.now())
            live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

        _repeat(watched, interval, show)


def _print_changes(watched: WatchedRun, interval: float) -> None:
    """Print the state whenever a round has ended."""
    before: list[object] = []

    def show() -> None:
        key = watched.progress()
        if [key] != before:
            before[:] = [key]
            typer.echo("\n".join(watched.lines(datetime.now())) + "\n")

    _repeat(watched, interval, show)


def _repeat(watched: WatchedRun, interval: float, show: Callable[[], None]) -> None:
    failures = 0
    while True:
        try:
            watched.look()
        except JournalError:  # a file that is just being created or replaced
            failures += 1
            if failures >= _MOST_FAILURES:
                raise
        else:
            failures = 0
            show()
            if not watched.may_change:
                return
        time.sleep(interval)
