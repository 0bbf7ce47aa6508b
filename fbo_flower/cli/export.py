"""`fbo-flower export`: write the trials of finished runs for the tools of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: fbo-flower export runs/latest --optuna sqlite:///study.db"


def run_export(
    directories: Annotated[list[Path], typer.Argument(help="Directories of studies.")],
    optuna: Annotated[
        str,
        typer.Option(
            metavar="STORAGE",
            help="Optuna storage: sqlite:///study.db or another URL, or a file that ends in .db "
            "or .log. Trials that it holds are not written again.",
        ),
    ],
    one_study: Annotated[
        bool,
        typer.Option(
            "--one-study",
            help="Write the trials of all agents into one Optuna study, with the agent as a user attribute; "
            "otherwise each agent has its own.",
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write the disclosed trials of studies into an Optuna storage, for optuna-dashboard and Optuna's plots.

    For a study that is still running use `fbo-flower simulate --optuna`, or the run-config key `optuna`.
    """
    from fbo_flower.study.study import Study

    studies = [Study.load(directory) for directory in directories]  # finds every mistake before it writes
    names = [own.study_name for study in studies for own in study.to_optuna(optuna, one_study=one_study)]
    typer.echo(f"Optuna studies in {optuna}: {', '.join(names) or 'none, because no trial was disclosed'}")
    typer.echo(f"Look at them: optuna-dashboard {optuna}")
