"""`python -m studies tabulate`: save a problem's values in a file, so that studies on it are fast."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import fbo_flower
from fbo_flower.cli.main import Debug, Interrupted, Quiet, parse_options

EXAMPLE = (
    "Example: python -m studies tabulate landmine-svm --problem-option scale=log --out landmine-table.npz, "
    "then fbo-flower simulate --problem table:landmine-table.npz"
)


def run_tabulate(
    problem: Annotated[str, typer.Argument(help="Name of the problem, see fbo-flower problems.")],
    problem_option: Annotated[
        list[str] | None, typer.Option(help="key=value, an option of the problem; repeatable.")
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents; default: the problem's.")] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of what the problem draws once, such as data splits or functions.")
    ] = 0,
    points: Annotated[int, typer.Option(help="Number of evaluations per agent.")] = 1000,
    held_out: Annotated[
        int, typer.Option(help="Number of further evaluations per agent that measure the table's error.")
    ] = 100,
    out: Annotated[Path | None, typer.Option(help="File to write; default: PROBLEM-table.npz.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of worker processes; default: one per core.")
    ] = None,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a problem on many points per agent and save the values in a file.

    The points are denser where the objective is steep. After Ctrl-C, the same command continues.
    """
    from fbo_flower.algorithms.options import check_number
    from fbo_flower.simulation.problems import make_problem
    from studies.problems.tabulate import describe, tabulate
    from studies.progress import JobProgress

    check_number("points", points, 8, 10**6, integer=True)
    check_number("held-out", held_out, 2, 10**6, integer=True)
    if workers is not None:
        check_number("workers", workers, 1, 1024, integer=True)
    path = out or Path(f"{problem}-table.npz")
    options = parse_options(problem_option or [], "--problem-option")
    made = make_problem(problem, agents, seed, options)
    try:
        with JobProgress(quiet=quiet) as progress:
            tabulate(
                made,
                path,
                points,
                held_out,
                workers or os.cpu_count() or 1,
                progress.show,
                fbo_flower.__version__,
            )
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"{path}.parts holds the finished evaluations; run the same command to continue"
        ) from error
    if not quiet:
        typer.echo(describe(path))
        typer.echo(f"Use it: fbo-flower simulate --problem table:{path}")
