"""`fbo-flower`: the root command; the other modules of this folder hold the commands.

Every error is one line on stderr that names the setting, the expectation and the value. The exit status is 0
for success, 2 for a setting that cannot be used, 1 for any other error and 130 after Ctrl-C. `--debug` shows
the traceback. The commands import what they need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.text import Text

from fbo_flower import __version__
from fbo_flower.cli.catalogue import algorithms, problems
from fbo_flower.cli.common import Debug, Interrupted, Quiet
from fbo_flower.cli.doctor import doctor
from fbo_flower.cli.journals import ask, best, key, ledger, tell
from fbo_flower.cli.new import new
from fbo_flower.cli.plan import parse_options
from fbo_flower.cli.report import export, report
from fbo_flower.cli.run import run_app
from fbo_flower.cli.simulate import simulate
from fbo_flower.cli.watch import watch
from fbo_flower.errors import ConfigError, FBOError, printable

app = typer.Typer(
    name="fbo-flower",
    help="Federated black-box optimisation on Flower.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, dict[str, Callable[..., object]]] = {
    "Tune": {"simulate": simulate, "new": new, "run": run_app},
    "Look at results": {"watch": watch, "report": report, "best": best, "export": export},
    "Devices and privacy": {"doctor": doctor, "ledger": ledger, "key": key, "ask": ask, "tell": tell},
    "Algorithms and problems": {"algorithms": algorithms, "problems": problems},
}
for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        # typer keeps the line breaks of all paragraphs but the first
        _text = "\n\n".join(" ".join(p.split()) for p in (inspect.getdoc(_command) or "").split("\n\n"))
        app.command(_name, help=_text, rich_help_panel=_panel)(_command)

_HELP_WAS_SHOWN = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 has none: it returns


def main() -> None:
    """Run the command line of this process and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str], program: str = "fbo-flower") -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    arguments : what stands behind the program's name
    program : its name in usage lines; another package may add commands to `app` and run them under its own
    """
    # flwr reads these variables when it is imported
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal, pipe or file may not have all characters
            stream.reconfigure(errors="backslashreplace")
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        status = app(list(arguments), prog_name=program, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except _HELP_WAS_SHOWN:
        return 2
    except Interrupted as interruption:
        errors.print(Text(printable(f"interrupted; {interruption}")))
        return 130
    except (FBOError, click.ClickException) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        status = 2 if isinstance(error, ConfigError | click.UsageError) else 1
        return _fail(errors, error, message, status, arguments)
    except Exception as error:  # a bug of ours or of a library: also one line
        message = f"unexpected {type(error).__name__}: {error} (use --debug to see where)"
        return _fail(errors, error, message, 1, arguments)


def _fail(errors: Console, error: Exception, message: str, status: int, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        errors.print(Text("\n".join(map(printable, "".join(traceback.format_exception(error)).split("\n")))))
    note = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
    errors.print(Text(printable(" ".join(f"error: {message}{note}".split()))))
    return status


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"fbo-flower {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


__all__ = ["Debug", "Interrupted", "Quiet", "app", "main", "parse_options", "run"]
