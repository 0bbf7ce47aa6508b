"""`python -m studies experiment`: run an experiment of a paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fbo_flower.cli.main import Debug, Interrupted, Quiet

EXAMPLE = "Example: python -m studies experiment fts-synthetic --quick"


def run_experiment(
    name: Annotated[
        str | None, typer.Argument(help="The experiment to run; without a name, list them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for tables and pictures; default: runs/experiments/NAME.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run a small version; the list of experiments says how long it takes."),
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Number of worker processes; default: one per core.")
    ] = None,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the papers and write its tables and pictures.

    If it is stopped, the same command continues it.
    """
    from fbo_flower.algorithms.options import check_number
    from fbo_flower.reports.pictures import require_matplotlib
    from studies.papers import EXPERIMENTS, find
    from studies.progress import JobProgress

    if name is None:
        for key, listed in EXPERIMENTS.items():
            typer.secho(key, bold=True, nl=False)
            typer.echo(f"  {listed.summary}\n    --quick takes about {listed.quick} on two cores")
        return
    chosen = find(name)
    if workers is not None:
        check_number("workers", workers, 1, 1024, integer=True)
    require_matplotlib()  # before hours of work, not after
    directory = out or Path("runs") / "experiments" / (f"{name}-quick" if quick else name)
    try:
        with JobProgress(quiet=quiet) as progress:
            files = chosen.run(directory, quick, workers or os.cpu_count() or 1, progress.show)
    except KeyboardInterrupt as error:
        raise Interrupted(f"{directory} holds the finished jobs; run the same command to continue") from error
    if not quiet:
        for file in files:
            typer.echo(str(file))
