"""`fbo-flower simulate`: run one or several algorithms on one problem with simulated agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.cli.common import Debug, Quiet, option
from fbo_flower.cli.plan import SimulationPlan, read_plan
from fbo_flower.cli.run_plan import run_plan
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.settings import Agents, Async, Clock, Start, Sync
from fbo_flower.study.directory import Keep

# options that do not belong to the settings of a run
_NOT_SAVED = {"address", "debug", "journal", "out", "overwrite", "quiet", "resume"}


def simulate(
    context: typer.Context,
    function: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE.py:FUNCTION]",
            help="A function of your own, `f(config, path)`, instead of a bundled problem; with --data and "
            "--space.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Files of the agents, one each: 'sites/*.csv'.")
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="What FUNCTION's configurations may be: `C = {low = 0.1, high = 100.0, log = true}`, "
            '`kernel = ["rbf", "poly"]`, `degree = {low = 2, high = 4, active_when = {kernel = "poly"}}`.',
        ),
    ] = None,
    minimize: Annotated[
        bool, typer.Option("--minimize", help="Smaller values of FUNCTION are better.")
    ] = False,
    problem: Annotated[
        str,
        typer.Option(help="Problem, see `fbo-flower problems`; or table:FILE."),
    ] = "digits-svm",
    algorithm: Annotated[
        str, typer.Option(help="Name of the algorithm, see `fbo-flower algorithms`.")
    ] = RECOMMENDED,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="Another algorithm to run with the same starting points, seed and number of rounds: "
            '"NAME key=value ... label=TEXT"; repeatable.',
        ),
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents; default: the problem's.")] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Number of rounds; the first is the initial design. Default: 25, or until the algorithm has "
            "spent its budget, if it has one.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of all random numbers: the same seed gives the same trials.")
    ] = 0,
    engine: Annotated[
        str,
        typer.Option(
            help="ray (on all cores), inline (in this process) or flower (Flower's simulation engine)."
        ),
    ] = "ray",
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of a Ray cluster, for --engine ray; auto: this machine's; default: start one."
        ),
    ] = None,
    option_: Annotated[
        list[str] | None,
        typer.Option(
            "--option", help="key=value, an option of --algorithm; the value is JSON or text; repeatable."
        ),
    ] = None,
    problem_option: Annotated[
        list[str] | None, typer.Option(help="key=value, an option of --problem; repeatable.")
    ] = None,
    prior_rounds: Annotated[int, option(Start, "prior_rounds")] = Start.prior_rounds,
    prior_algorithm: Annotated[str, option(Start, "prior_algorithm")] = Start.prior_algorithm,
    site_option: Annotated[
        list[str] | None,
        typer.Option(help="key=value, a setting of every site, for algorithms with roles; repeatable."),
    ] = None,
    fraction: Annotated[float, option(Sync, "fraction")] = Sync.fraction,
    quorum: Annotated[float, option(Sync, "quorum")] = Sync.quorum,
    mode: Annotated[
        str,
        typer.Option(
            help="sync: a round ends when its agents have answered. async: each agent gets its next task as "
            "soon as it has answered."
        ),
    ] = "sync",
    max_staleness: Annotated[int | None, option(Async, "max_staleness")] = None,
    durations: Annotated[str | None, option(Clock, "durations", metavar="SPEC")] = None,
    exchange_seconds: Annotated[float, option(Clock, "exchange_seconds")] = Clock.exchange_seconds,
    num_parallel: Annotated[int, option(Agents, "num_parallel")] = Agents.num_parallel,
    trial_timeout: Annotated[float, option(Agents, "trial_timeout")] = Agents.trial_timeout,
    label: Annotated[str | None, option(Keep, "label")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the results; default: runs/PROBLEM-ALGORITHMS-seedSEED-TIME, and runs/latest "
            "points at it."
        ),
    ] = None,
    overwrite: Annotated[bool, option(Keep, "overwrite", "--overwrite")] = False,
    warm_start: Annotated[Path | None, option(Start, "warm_start")] = None,
    journal: Annotated[
        bool,
        typer.Option(
            "--journal",
            help="Record every task, reply and evaluation on disk, so that a run that dies can be resumed.",
        ),
    ] = False,
    optuna: Annotated[
        str | None,
        typer.Option(
            metavar="STORAGE",
            help="Write the trials at the end of every round into this Optuna storage, for optuna-dashboard: "
            "sqlite:///study.db or another URL, or a file that ends in .db or .log.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Resume the run with --journal in this directory, with the settings it had; only --engine, "
            "--address, --quiet and --debug may be given as well."
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run algorithms on a bundled problem, or on a function of your own, with simulated agents.

    Prints a table and writes study.json, trials.csv, rounds.csv, best.json, report.png and traffic.png.

    After Ctrl-C these files hold the finished rounds.

    Examples:
    fbo-flower simulate --compare ei --compare random

    fbo-flower simulate score.py:score --data 'sites/*.csv' --space space.toml --compare ei

    fbo-flower simulate --problem gp-samples --agents 8 --engine inline

    fbo-flower simulate --algorithm fts --option advice=portfolio --compare "fts schedule=first-5"

    fbo-flower simulate --algorithm fts --mode async --durations lognormal:60,1 --compare ts
    """
    given = {name: value for name, value in context.params.items() if name not in _NOT_SAVED}
    if resume is None:
        plan = SimulationPlan.of(given)
    else:
        typed = {name for name in context.params if _is_typed(context, name)}
        if more := sorted(typed - {"resume", "engine", "address", "quiet", "debug"}):
            names = ", ".join(f"--{name.replace('_', '-')}" for name in more)
            raise ConfigError(f"--resume: the settings come from {resume}; leave out {names}")
        plan = read_plan(resume, context.command)
        if "engine" in typed:
            plan = replace(plan, engine=engine)
    journal = journal or resume is not None
    run_plan(plan, resume or out, address, journal, resume is not None, overwrite, quiet, debug)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
