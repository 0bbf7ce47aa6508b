"""`fbo-flower`: the entry point of the command line, and the exit status of every end.

Every error is one line on stderr that names the setting, the expectation and the value. The exit status is 0
for success, 2 for a setting that cannot be used and 1 for any other error. Ctrl-C ends a command with the
status 130, SIGTERM with 143 and a closed terminal with 129, each with a line that says what has been written.
`--debug` shows the traceback.

This module imports nothing that takes time, so that `main` handles the signals before anything else.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from fbo_flower.cli import interruption
from fbo_flower.cli.interruption import Interrupted, guard, in_order
from fbo_flower.lazy import lazily

if TYPE_CHECKING:
    from fbo_flower.cli.commands import app
    from fbo_flower.cli.common import Debug, Quiet
    from fbo_flower.cli.plan import parse_options


def main(program: str = "fbo-flower", more: str = "") -> None:
    """Run the command line of this process and end the process with its status.

    Parameters
    ----------
    program : its name in usage lines
    more : a module that adds commands to `app` when it is imported
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it; no other file may get its descriptor
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # stays open
    guard()
    if more:
        import_module(more)
    interruption.leave(run(sys.argv[1:], program))


def run(arguments: Sequence[str], program: str = "fbo-flower") -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    arguments : what stands behind the program's name
    program : its name in usage lines
    """
    # flwr reads these variables when it is imported
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal, pipe or file may not have all characters
            stream.reconfigure(errors="backslashreplace")
    import traceback

    import click
    from rich.console import Console
    from rich.text import Text

    from fbo_flower.algorithms.registry import option_owners
    from fbo_flower.cli.commands import app
    from fbo_flower.errors import ConfigError, FBOError, printable

    help_was_shown = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 has none: it returns
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        status = app(list(arguments), prog_name=program, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except help_was_shown:
        return 2
    except Interrupted as interrupted:
        errors.print(Text(printable(f"interrupted; {interrupted}")))
        return interruption.status()
    except Exception as error:  # that of a bug, of ours or of a library, is also one line
        message = f"unexpected {type(error).__name__}: {error} (use --debug to see where)"
        if isinstance(error, FBOError | click.ClickException):
            message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if "--debug" in arguments:
            trace = "".join(traceback.format_exception(error)).split("\n")
            errors.print(Text("\n".join(map(printable, trace))))
        message = re.sub(r"( Did you mean [^?]*\?)\1", r"\1", message)  # Click's and Typer's
        unknown = re.match(r"No such option:? '?--([\w-]+)", message)
        option = unknown[1].replace("-", "_") if unknown and "simulate" in arguments else ""
        if unknown and (owner := option_owners().get(option)):
            here = f"here that is --option {option}=..., of {owner.name}"
            message = f"No such option '--{unknown[1]}'; {here}"
        note = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
        if "unexpected extra argument" in message:
            note += "; quote what has blanks or * in it, as in --data 'dir/*.csv'"
        errors.print(Text(printable(" ".join(f"error: {message}{note}".split()))))
        return 2 if isinstance(error, ConfigError | click.UsageError) else 1


__all__ = ["Debug", "Quiet", "app", "guard", "in_order", "main", "parse_options", "run"]

if not TYPE_CHECKING:  # imported when they are used
    __getattr__, __dir__ = lazily(
        __name__,
        {"app": "commands", "Debug": "common", "Quiet": "common", "parse_options": "plan"},
    )
