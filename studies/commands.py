"""The commands of `python -m studies`: experiments, attacks, tables of problems, data files."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import fbo_flower
from fbo_flower.cli.main import Debug, Quiet, app, in_order, parse_options
from fbo_flower.storage import path_of, writable_directory
from studies.experiment import OnJob, mean_and_error

Workers = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Number of worker processes; default: one per core.")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Number of seeds; default: the experiment's.")]
Quick = Annotated[bool, typer.Option("--quick", help="Run a small version, in less than a minute.")]


def _bars(quiet: bool) -> tuple[Any, OnJob]:
    """Return bars on stderr, one per stage, and a function that is told how many jobs of a stage are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=Console(stderr=True, highlight=False), disable=quiet)
    tasks: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage, total=total)
        bars.update(tasks[stage], completed=done)

    return bars, show


def run_experiment(
    name: Annotated[
        str | None, typer.Argument(help="The experiment to run; without a name, list them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for tables and pictures; default: runs/experiments/NAME.")
    ] = None,
    quick: Quick = False,
    seeds: Seeds = None,
    workers: Workers = None,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the papers and write its tables and pictures.

    If it is stopped, the same command continues it.
    """
    from fbo_flower.reports.pictures import require_matplotlib
    from studies.experiments import EXPERIMENTS, find

    if name is None:
        return _list(EXPERIMENTS)
    chosen, (bars, show) = find(name), _bars(quiet)
    require_matplotlib()  # before hours of work, not after
    directory = path_of(out) if out else Path("runs") / "experiments" / (f"{name}-quick" if quick else name)
    said = f"{directory} holds the finished jobs; run the same command to continue"
    with in_order(lambda: said), bars:
        files = chosen.run(name, directory, quick, workers or os.cpu_count() or 1, show, seeds)
    for file in () if quiet else files:
        typer.echo(str(file))
    return None


def run_attack(
    name: Annotated[
        str | None, typer.Argument(help="An attack, or an algorithm to attack; without a name, list them.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the simulated agents.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds from that one on; prints means and s.e.")] = 1,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    debug: Debug = False,
) -> None:
    """Attack simulated agents as their server could.

    Prints the attacker's error beside the error of a guess that uses no messages. The closer the two are, the
    less the messages reveal.
    """
    from studies.attacks import ATTACKS, find

    if name is None:
        return _list(ATTACKS)
    attack = find(name)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if markdown:
        typer.echo("| secret | attacker's error | guesser's error | unit | tries |")
        typer.echo("|---|---:|---:|---|---:|")
    runs = (attack.run(one) for one in range(seed, seed + seeds))
    for same in zip(*runs, strict=True):  # the same attack, one seed after the other
        found, pairs = (
            same[0],
            zip(*mean_and_error(np.array([[s.error, s.guess] for s in same])), strict=True),
        )
        error, guess = (f"{m:.2g}" if seeds == 1 else f"{m:.2g} ± {e:.1g}" for m, e in pairs)
        if markdown:
            typer.echo(f"| {' | '.join([found.secret, error, guess, found.unit, str(found.count)])} |")
        else:
            typer.echo(f"{found.secret}:")
            typer.echo(f"  attacker {error}, {found.how} {guess} ({found.unit}; {found.count} tries)")
    return None


def run_tabulate(
    problem: Annotated[str, typer.Argument(help="Name of the problem, see fbo-flower problems.")],
    problem_option: Annotated[
        list[str] | None, typer.Option(help="key=value, an option of the problem; repeatable.")
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents; default: the problem's.")] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of what the problem draws once, such as data splits or functions.")
    ] = 0,
    points: Annotated[int, typer.Option(min=8, help="Number of evaluations per agent.")] = 1000,
    held_out: Annotated[
        int, typer.Option(min=2, help="Further evaluations per agent that measure the table's error.")
    ] = 100,
    out: Annotated[Path | None, typer.Option(help="File to write; default: PROBLEM-table.npz.")] = None,
    workers: Workers = None,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a problem on many points per agent and save the values in a file.

    The points are denser where the objective is steep. After Ctrl-C, the same command continues.
    """
    from fbo_flower.simulation.problems import make_problem
    from studies.problems.tabulate import describe, tabulate

    (bars, show), path = _bars(quiet), path_of(out or f"{problem}-table.npz")
    made = make_problem(problem, agents, seed, parse_options(problem_option or [], "--problem-option"))
    said = f"{path}.parts holds the finished evaluations; run the same command to continue"
    with in_order(lambda: said), bars:
        tabulate(made, path, points, held_out, workers or os.cpu_count() or 1, show, fbo_flower.__version__)
    if not quiet:
        typer.echo(describe(path))
        typer.echo(f"Use it: fbo-flower simulate --problem table:{path}")


def run_landmine(
    file: Annotated[
        Path, typer.Argument(help="The file LandmineData.mat, with the cell arrays feature and label.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the result; default: $FBO_FLOWER_DATA, or data.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Convert LandmineData.mat for the problem landmine-svm.

    Splits each of the 29 fields into a training and a test half, as the authors of FTS did.
    """
    from studies.problems.data import DATA_VARIABLE, convert_landmine

    directory = writable_directory(out or os.environ.get(DATA_VARIABLE) or "data")
    typer.echo(f"Wrote {convert_landmine(path_of(file), directory)}")
    if os.environ.get(DATA_VARIABLE) != str(directory):
        typer.echo(f"Set {DATA_VARIABLE}={directory.resolve()} to use it")


def _list(found: Mapping[str, Any]) -> None:
    for name, listed in found.items():
        typer.secho(name, bold=True, nl=False)
        typer.echo(f"  {listed.summary}")


_PANEL, _EXAMPLE = "Studies", "Example: python -m studies"
_data = typer.Typer(help="Prepare data files that cannot be distributed.", no_args_is_help=True)
_data.command("landmine", epilog=f"{_EXAMPLE} data landmine LandmineData.mat --out data")(run_landmine)
app.command("experiment", epilog=f"{_EXAMPLE} experiment peers", rich_help_panel=_PANEL)(run_experiment)
app.command("attack", epilog=f"{_EXAMPLE} attack co-kg", rich_help_panel=_PANEL)(run_attack)
app.command("tabulate", epilog=f"{_EXAMPLE} tabulate digits-svm", rich_help_panel=_PANEL)(run_tabulate)
app.add_typer(_data, name="data", rich_help_panel=_PANEL)
