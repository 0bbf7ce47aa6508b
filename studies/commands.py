"""The commands of `python -m studies`: experiments, attacks, tables of problems, data files."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import fbo_flower
from fbo_flower.algorithms import check_integer
from fbo_flower.cli.main import Debug, Quiet, app, in_order, parse_options
from fbo_flower.storage import path_of, writable_directory
from studies.experiment import mean_and_error

Workers = Annotated[int | None, typer.Option(help="Number of worker processes; default: one per core.")]


class JobProgress:
    """Show how many jobs are done, on stderr, with one bar per stage."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bars = Progress(*columns, console=Console(stderr=True, highlight=False), disable=quiet)
        self._tasks: dict[str, Any] = {}

    def show(self, stage: str, done: int, total: int) -> None:
        """Show how many jobs of a stage are done."""
        if stage not in self._tasks:
            self._tasks[stage] = self.bars.add_task(stage, total=total)
        self.bars.update(self._tasks[stage], completed=done)


def run_experiment(
    name: Annotated[
        str | None, typer.Argument(help="The experiment to run; without a name, list them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for tables and pictures; default: runs/experiments/NAME.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run a small version, in less than a minute."),
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; default: the experiment's.")] = None,
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
        return _list({key: listed.summary for key, listed in EXPERIMENTS.items()})
    chosen, number, progress = find(name), _number_of(workers), JobProgress(quiet)
    if seeds is not None:
        check_integer("seeds", seeds, 1, 10_000)
    require_matplotlib()  # before hours of work, not after
    directory = path_of(out) if out else Path("runs") / "experiments" / (f"{name}-quick" if quick else name)
    said = f"{directory} holds the finished jobs; run the same command to continue"
    with in_order(lambda: said), progress.bars:
        files = chosen.run(name, directory, quick, number, progress.show, seeds)
    for file in () if quiet else files:
        typer.echo(str(file))
    return None


def run_attack(
    name: Annotated[
        str | None, typer.Argument(help="An attack, or an algorithm to attack; without a name, list them.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the simulated agents.")] = 0,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from that one on; prints means and s.e.")] = 1,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    debug: Debug = False,
) -> None:
    """Attack simulated agents as their server could.

    Prints the attacker's error beside the error of a guess that uses no messages. The closer the two are, the
    less the messages reveal.
    """
    from studies.attacks import ATTACKS, find

    if name is None:
        return _list({key: listed.summary for key, listed in ATTACKS.items()})
    attack = find(name)
    check_integer("seed", seed, 0)
    check_integer("seeds", seeds, 1, 10_000)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if markdown:
        typer.echo("| secret | attacker's error | guesser's error | unit | tries |")
        typer.echo("|---|---:|---:|---|---:|")
    runs = (attack.run(one) for one in range(seed, seed + seeds))
    for same in zip(*runs, strict=True):  # the same attack, one seed after the other
        found = same[0]
        error, guess = (of_seeds([getattr(one, name) for one in same]) for name in ("error", "guess"))
        if markdown:
            typer.echo(f"| {' | '.join([found.secret, error, guess, found.unit, str(found.count)])} |")
        else:
            typer.echo(f"{found.secret}:")
            typer.echo(f"  attacker {error}, {found.how} {guess} ({found.unit}; {found.count} tries)")
    return None


def of_seeds(values: Sequence[float]) -> str:
    """Return the mean of an attack's errors, and with several seeds its standard error."""
    mean, error = mean_and_error(np.array(values)[:, None])
    return f"{mean[0]:.2g}" if len(values) == 1 else f"{mean[0]:.2g} ± {error[0]:.1g}"


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
    workers: Workers = None,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a problem on many points per agent and save the values in a file.

    The points are denser where the objective is steep. After Ctrl-C, the same command continues.
    """
    from fbo_flower.simulation.problems import make_problem
    from studies.problems.tabulate import describe, tabulate

    check_integer("points", points, 8, 10**6)
    check_integer("held-out", held_out, 2, 10**6)
    number, progress, path = _number_of(workers), JobProgress(quiet), path_of(out or f"{problem}-table.npz")
    made = make_problem(problem, agents, seed, parse_options(problem_option or [], "--problem-option"))
    said = f"{path}.parts holds the finished evaluations; run the same command to continue"
    with in_order(lambda: said), progress.bars:
        tabulate(made, path, points, held_out, number, progress.show, fbo_flower.__version__)
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


def _list(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        typer.secho(name, bold=True, nl=False)
        typer.echo(f"  {text}")


def _number_of(workers: int | None) -> int:
    if workers is not None:
        check_integer("workers", workers, 1, 1024)
    return workers or os.cpu_count() or 1


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
