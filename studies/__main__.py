"""`python -m studies`: `fbo-flower` with the studies' problems and comparators, and four more commands."""

from __future__ import annotations

import sys

import typer

from fbo_flower.cli.main import app, run
from studies.commands import run_attack, run_experiment, run_landmine, run_tabulate

_PANEL, _EXAMPLE = "Studies", "Example: python -m studies"
_TABULATE = (
    "tabulate landmine-svm --problem-option scale=log --out landmine-table.npz, then fbo-flower simulate "
    "--problem table:landmine-table.npz"
)
_data = typer.Typer(help="Prepare data files that cannot be distributed.", no_args_is_help=True)
_data.command("landmine", epilog=f"{_EXAMPLE} data landmine LandmineData.mat --out data")(run_landmine)
_experiment = f"{_EXAMPLE} experiment fts-synthetic --quick"
app.command("experiment", epilog=_experiment, rich_help_panel=_PANEL)(run_experiment)
app.command("attack", epilog=f"{_EXAMPLE} attack co-kg", rich_help_panel=_PANEL)(run_attack)
app.command("tabulate", epilog=f"{_EXAMPLE} {_TABULATE}", rich_help_panel=_PANEL)(run_tabulate)
app.add_typer(_data, name="data", rich_help_panel=_PANEL)

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "python -m studies"))
