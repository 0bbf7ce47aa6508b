"""`python -m studies`: `fbo-flower` with the studies' problems and comparators, and four more commands."""

from __future__ import annotations

import sys

import typer

from fbo_flower.cli.main import app, run
from studies.attack_command import EXAMPLE as ATTACK
from studies.attack_command import run_attack
from studies.data_command import EXAMPLE as LANDMINE
from studies.data_command import run_landmine
from studies.experiment_command import EXAMPLE as EXPERIMENT
from studies.experiment_command import run_experiment
from studies.tabulate_command import EXAMPLE as TABULATE
from studies.tabulate_command import run_tabulate

_PANEL = "Studies"
_data = typer.Typer(help="Prepare data files that cannot be distributed.", no_args_is_help=True)
_data.command("landmine", epilog=LANDMINE)(run_landmine)
app.command("experiment", epilog=EXPERIMENT, rich_help_panel=_PANEL)(run_experiment)
app.command("attack", epilog=ATTACK, rich_help_panel=_PANEL)(run_attack)
app.command("tabulate", epilog=TABULATE, rich_help_panel=_PANEL)(run_tabulate)
app.add_typer(_data, name="data", rich_help_panel=_PANEL)

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "python -m studies"))
