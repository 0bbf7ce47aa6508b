"""The root command; the other modules of this folder hold the commands.

The commands import what they need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from fbo_flower.cli.catalogue import algorithms, problems
from fbo_flower.cli.common import described
from fbo_flower.cli.doctor import doctor
from fbo_flower.cli.journals import ask, best, key, ledger, tell
from fbo_flower.cli.new import new
from fbo_flower.cli.report import export, report
from fbo_flower.cli.run import run_app
from fbo_flower.cli.simulate import simulate
from fbo_flower.cli.watch import watch
from fbo_flower.simulation.settings import Agents, Async, Clock, Start, Sync
from fbo_flower.study.directory import Keep
from fbo_flower.version import __version__

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
_REPEATABLE = {new, report, export, key, ask, tell}  # each file that they write is whole or as it was before
for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        _text = (inspect.getdoc(_command) or "").partition("\n\nParameters\n---")[0]
        # typer keeps the line breaks of all paragraphs but the first
        _text = "\n\n".join(" ".join(paragraph.split()) for paragraph in _text.split("\n\n"))
        _made = described(_command, (Start, Sync, Async, Clock, Agents, Keep), _command in _REPEATABLE)
        app.command(_name, help=_text, rich_help_panel=_panel)(_made)


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
