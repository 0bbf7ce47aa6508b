"""`fbo-flower watch`: show how far a run is while it runs, from its journals."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fbo_flower.cli.common import Debug
from fbo_flower.errors import ConfigError, JournalError

if TYPE_CHECKING:
    from fbo_flower.cli.watched import WatchedRun

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
    from fbo_flower.cli.watched import WatchedRun

    if not 0.05 <= interval <= 3600:
        raise ConfigError(f"--interval: expected 0.05 to 3600 seconds, got {interval:g}")
    try:
        watched = WatchedRun(path)
        if once:
            watched.look()
            typer.echo("\n".join(watched.lines(datetime.now())))
        else:
            _follow(watched, interval)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _follow(watched: WatchedRun, interval: float) -> None:
    """Show the run until it has ended: redraw it in a terminal, else print it when a round has ended."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    failures, before = 0, None
    with ExitStack() as stack:
        live = None
        if sys.stdout.isatty():
            live = stack.enter_context(Live(console=Console(highlight=False), auto_refresh=False))
        while True:
            try:
                watched.look()
                failures = 0
            except JournalError:  # a file that is just being created or replaced
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
            if not failures:
                text, now = "\n".join(watched.lines(datetime.now())), watched.progress()
                if live is not None:
                    live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
                elif now != before:
                    typer.echo(f"{text}\n")
                before = now
                if not watched.may_change:
                    return
            time.sleep(interval)
