"""The root command; the other modules of this folder hold the commands.

The commands import what they need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec, TypeVar

import typer

from fbo_flower.cli.catalogue import algorithms, problems
from fbo_flower.cli.doctor import doctor
from fbo_flower.cli.interruption import in_order
from fbo_flower.cli.journals import ask, best, key, ledger, tell
from fbo_flower.cli.new import new
from fbo_flower.cli.report import export, report
from fbo_flower.cli.run import run_app
from fbo_flower.cli.simulate import simulate
from fbo_flower.cli.watch import watch
from fbo_flower.version import __version__

P = ParamSpec("P")
R = TypeVar("R")


def repeatable(command: Callable[P, R]) -> Callable[P, R]:
    """Let a signal end a command in order that writes each of its files as a whole or not at all."""

    @wraps(command)
    def ended(*args: P.args, **given: P.kwargs) -> R:
        with in_order(lambda: "every file is whole or as it was before; run the same command again"):
            return command(*args, **given)

    return ended


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
    "Tune": {"simulate": simulate, "new": repeatable(new), "run": run_app},
    "Look at results": {
        "watch": watch,
        "report": repeatable(report),
        "best": best,
        "export": repeatable(export),
    },
    "Devices and privacy": {
        "doctor": doctor,
        "ledger": ledger,
        "key": repeatable(key),
        "ask": repeatable(ask),
        "tell": repeatable(tell),
    },
    "Algorithms and problems": {"algorithms": algorithms, "problems": problems},
}
for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        # typer keeps the line breaks of all paragraphs but the first
        _text = "\n\n".join(" ".join(p.split()) for p in (inspect.getdoc(_command) or "").split("\n\n"))
        app.command(_name, help=_text, rich_help_panel=_panel)(_command)


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
