"""`fbo-flower tabulate`: a problem's values in a file, on which studies are fast."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fbo_flower import __version__
from fbo_flower.cli.plan import parse_options
from fbo_flower.cli.simulate import Debug, Interrupted, Quiet

EXAMPLE = (
    "Example: fbo-flower tabulate landmine-svm --problem-option scale=log --out landmine-table.npz, "
    "then fbo-flower simulate --problem table:landmine-table.npz"
)


def run_tabulate(
    problem: Annotated[str, typer.Argument(help="See fbo-flower problems.")],
    problem_option: Annotated[
        list[str] | None, typer.Option(help="key=value for the problem; repeatable.")
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Default: as many as the problem has.")] = None,
    seed: Annotated[int, typer.Option(help="Of what the problem draws once: splits, functions.")] = 0,
    points: Annotated[int, typer.Option(help="Evaluations per agent.")] = 1000,
    held_out: Annotated[int, typer.Option(help="More of them, to measure the error of the table.")] = 100,
    out: Annotated[Path | None, typer.Option(help="The file; default: PROBLEM-table.npz.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.")] = None,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a problem once on a dense design per agent, denser where it is steep, and keep the values.

    Stopped by Ctrl-C, the same command goes on.
    """
    from fbo_flower.algorithms.options import check_number
    from fbo_flower.cli.progress import JobProgress
    from fbo_flower.simulation.problems import make_problem
    from fbo_flower.simulation.tabulate import describe, tabulate

    check_number("points", points, 8, 10**6, integer=True)
    check_number("held-out", held_out, 2, 10**6, integer=True)
    if workers is not None:
        check_number("workers", workers, 1, 1024, integer=True)
    path = out or Path(f"{problem}-table.npz")
    options = parse_options(problem_option or [], "--problem-option")
    made = make_problem(problem, agents, seed, options)
    try:
        with JobProgress(quiet=quiet) as cells:
            tabulate(made, path, points, held_out, workers or os.cpu_count() or 1, cells.show, __version__)
    except KeyboardInterrupt as error:
        raise Interrupted(f"{path}.parts holds what was evaluated; the same command goes on") from error
    if not quiet:
        typer.echo(describe(path))
        typer.echo(f"Use it: fbo-flower simulate --problem table:{path}")
