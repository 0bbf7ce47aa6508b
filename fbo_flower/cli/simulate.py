"""`fbo-flower simulate`: run one or several algorithms on one problem with simulated agents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fbo_flower.cli.plan import (
    JOURNALS,
    Contestant,
    SimulationPlan,
    parse_options,
    point_latest_at,
    slug,
)
from fbo_flower.errors import ConfigError

if TYPE_CHECKING:
    from fbo_flower.reports.summary import SummaryRow
    from fbo_flower.simulation.problems import Problem
    from fbo_flower.study.study import Study

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and Flower's own log.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")]

EXAMPLES = """Examples:

fbo-flower simulate --compare ts --compare random

fbo-flower simulate --problem gp-samples --agents 8 --engine inline

fbo-flower simulate --option advice=portfolio --compare "fts schedule=first-5"

fbo-flower simulate --mode async --durations lognormal:60,1 --compare ts
"""


class Interrupted(Exception):  # noqa: N818  # not an error: someone pressed Ctrl-C
    """Ctrl-C was pressed; the text says what has been written. (Typer would swallow a KeyboardInterrupt.)"""


def run_simulate(
    context: typer.Context,
    problem: Annotated[
        str,
        typer.Option(help="Problem, see `fbo-flower problems`; or table:FILE, see `fbo-flower tabulate`."),
    ] = "digits-svm",
    algorithm: Annotated[
        str, typer.Option(help="Name of the algorithm, see `fbo-flower algorithms`.")
    ] = "fts",
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
    option: Annotated[
        list[str] | None,
        typer.Option(help="key=value, an option of --algorithm; the value is JSON or text; repeatable."),
    ] = None,
    problem_option: Annotated[
        list[str] | None, typer.Option(help="key=value, an option of --problem; repeatable.")
    ] = None,
    prior_rounds: Annotated[
        int, typer.Option(help="Number of rounds in which each agent tunes alone before the study.")
    ] = 0,
    prior_algorithm: Annotated[str, typer.Option(help="Algorithm of these rounds.")] = "ts",
    site_option: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value, an operator's setting of every site, for algorithms with roles; repeatable."
        ),
    ] = None,
    fraction: Annotated[
        float, typer.Option(help="Share of the agents that get a task in each round, 0 to 1.")
    ] = 1.0,
    quorum: Annotated[
        float, typer.Option(help="Share of the answers after which a synchronous round closes, 0 to 1.")
    ] = 1.0,
    mode: Annotated[
        str,
        typer.Option(
            help="sync: a round ends when its agents have answered. async: each agent gets its next task as "
            "soon as it has answered."
        ),
    ] = "sync",
    max_staleness: Annotated[
        int | None,
        typer.Option(
            help="With --mode async, how many rounds may end between a task and its answer; what an older "
            "answer holds for other agents is dropped. Default: any number."
        ),
    ] = None,
    durations: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="How long evaluations take on a simulated clock, which costs no time: constant:SECONDS, "
            "lognormal:MEDIAN,SIGMA, heavy:SHORTEST,EXPONENT, or table:FILE with a CSV file of agents and "
            "seconds, such as the times.csv of a study. Default: real time.",
        ),
    ] = None,
    exchange_seconds: Annotated[
        float,
        typer.Option(help="How long a task and its reply are on their way, on the clock of --durations."),
    ] = 0.0,
    num_parallel: Annotated[
        int,
        typer.Option(
            help="How many evaluations an agent makes at the same time, each in a process of its own, with "
            "--engine inline. It takes effect where an agent has several trials in a round, for instance "
            "with --option trials-per-round=4."
        ),
    ] = 1,
    trial_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds that one evaluation may take, with --engine inline; then its process is killed and "
            "the trial fails. 0: any number."
        ),
    ] = 0.0,
    label: Annotated[
        str | None, typer.Option(help="Label of --algorithm in tables and pictures; default: its name.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the results; default: runs/PROBLEM-ALGORITHMS-seedSEED-TIME, and runs/latest "
            "points at it."
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the study in --out, with all that was made from it."),
    ] = False,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            help="Directory of an earlier study. Algorithms whose messages it holds start from them; "
            "messages contain no observations.",
        ),
    ] = None,
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
    """Run algorithms on a bundled problem with simulated agents.

    Prints a table and writes study.json, trials.csv, rounds.csv, best.json, report.png and traffic.png.

    After Ctrl-C these files hold the finished rounds.
    """
    if resume is None:
        plan = SimulationPlan(
            problem, parse_options(problem_option or [], "--problem-option"), agents, seed,
            (
                Contestant(label or algorithm, algorithm, parse_options(option or [], "--option")),
                *map(Contestant.parse, compare or []),
            ),
            rounds, engine, prior_rounds, prior_algorithm, fraction,
            parse_options(site_option or [], "--site-option"),
            None if warm_start is None else str(warm_start.resolve()), mode,
            _absolute_table(durations), exchange_seconds, quorum, max_staleness, _absolute_storage(optuna),
            num_parallel, trial_timeout,
        )  # fmt: skip
    else:
        given = _given(context) - {"resume", "engine", "address", "quiet", "debug"}
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given))
            raise ConfigError(f"--resume: the settings come from {resume}; leave out {names}")
        plan = SimulationPlan.load(resume)
        if "engine" in _given(context):
            plan = replace(plan, engine=engine)
    journal = journal or resume is not None
    _run(plan, resume or out, address, journal, resume is not None, overwrite, quiet, debug)


def _absolute_table(durations: str | None) -> str | None:
    """Return durations with the absolute path of a table, so that the run can be resumed from elsewhere."""
    if durations is None or not durations.startswith("table:"):
        return durations
    return f"table:{Path(durations.removeprefix('table:')).resolve()}"


def _absolute_storage(optuna: str | None) -> str | None:
    """Return an Optuna storage with the absolute path of its file, so that the run can be resumed."""
    if optuna is None:
        return None
    from fbo_flower.study.optuna_storage import SQLITE, storage_name

    name = str(storage_name(optuna))
    if "://" in name and not name.startswith(SQLITE):
        return name
    prefix = SQLITE if name.startswith(SQLITE) else ""
    return f"{prefix}{Path(name.removeprefix(prefix)).resolve()}"


def _given(context: typer.Context) -> set[str]:
    """Return the names of the options that the user typed."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _run(
    plan: SimulationPlan,
    out: Path | None,
    address: str | None,
    journal: bool,
    resume: bool,
    overwrite: bool,
    quiet: bool,
    debug: bool,
) -> None:
    from fbo_flower.study.directory import removed_if_empty, study_directory

    problem, num_rounds = plan.check()  # finds every wrong setting before the first evaluation
    directory = out or plan.directory()
    with removed_if_empty(directory):
        study_directory(directory, overwrite=overwrite, resume=resume)
        _run_into(directory, plan, problem, num_rounds, address, journal, resume, out is None, quiet, debug)


def _run_into(
    directory: Path,
    plan: SimulationPlan,
    problem: Problem,
    num_rounds: dict[str, int | None],
    address: str | None,
    journal: bool,
    resume: bool,
    is_default: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Run the algorithms of a plan, and write their studies into a directory."""
    from fbo_flower.cli.progress import Display
    from fbo_flower.simulation.ray_grid import ray_running
    from fbo_flower.simulation.runner import prior_study, simulate
    from fbo_flower.simulation.settings import Checkpoint, PriorKnowledge

    journals = directory / JOURNALS if journal else None
    if journals is not None and not resume:
        if journals.exists():
            raise ConfigError(
                f"--journal: {directory} already holds journals; continue them with --resume {directory}"
            )
        plan.save(directory)

    record = _Record(directory, journal, is_default)
    with ExitStack() as stack:
        display = stack.enter_context(Display(quiet=quiet, debug=debug))
        try:
            if plan.engine == "ray":
                stack.enter_context(ray_running(address))
            observations = None
            if plan.prior_rounds:
                display.announce(f"prior {plan.prior_algorithm}", plan.prior_rounds)
                earlier = Checkpoint(journals / "prior" if journals is not None else None, resume=resume)
                settings = plan.prior_algorithm, plan.prior_rounds, plan.seed, plan.engine
                observations = prior_study(problem, *settings, earlier)
            for number, contestant in enumerate(plan.contestants, 1):
                display.announce(contestant.label, num_rounds[contestant.label])
                own = None if journals is None else journals / f"{number}-{slug(contestant.label)}"
                simulate(
                    problem,
                    contestant.algorithm,
                    num_rounds=num_rounds[contestant.label],
                    seed=plan.seed,
                    engine=plan.engine,
                    options=contestant.options,
                    label=contestant.label,
                    fraction=plan.fraction,
                    quorum=plan.quorum,
                    mode=plan.mode,
                    max_staleness=plan.max_staleness,
                    num_parallel=plan.num_parallel,
                    trial_timeout=plan.trial_timeout,
                    durations=plan.durations,
                    exchange_seconds=plan.exchange_seconds,
                    site_options={"models": str(directory / "models"), **plan.site_options},
                    prior=PriorKnowledge(observations=observations, warm_start=plan.warm(contestant)),
                    checkpoint=Checkpoint(own, resume=resume, messages=directory),
                    on_round=display.advance,
                    on_study=record.add,
                    optuna=plan.optuna,
                )
        except KeyboardInterrupt as error:
            raise Interrupted(record.close()) from error
        except Exception as error:
            error.add_note(record.close())
            raise
    no_picture = record.draw()
    if not quiet:
        from fbo_flower.reports.summary import summarise

        print_table(summarise(record.study))
        print_selections(record.study)
        typer.echo(
            "Simulated agents disclosed their trials, because nobody owns the data of a bundled problem."
        )
        if no_picture:
            typer.echo(f"No picture: {no_picture}")
        typer.echo(f"Results: {directory}")
        if plan.optuna is not None:
            typer.echo(f"Look at the trials: optuna-dashboard {plan.optuna}")
        if plan.durations is not None:
            typer.echo(f"Values against time: fbo-flower report {directory} --x time")


class _Record:
    """The studies of the algorithms that have ended, saved after each of them so that none is lost."""

    def __init__(self, directory: Path, journal: bool, is_default: bool) -> None:
        self.directory = directory
        self.journal = journal
        self.is_default = is_default
        self.studies: list[Study] = []

    @property
    def study(self) -> Study:
        from fbo_flower.study.study import Study

        return Study.merge(self.studies, name=self.directory.name)

    def add(self, study: Study) -> None:
        self.studies.append(study)
        self.study.save(self.directory)
        if self.is_default:
            point_latest_at(self.directory)

    def draw(self) -> str:
        from fbo_flower.reports.report import PICTURE, draw

        return draw(self.study, self.directory / PICTURE)

    def close(self) -> str:
        """Draw the results so far and return a sentence that says where they are."""
        if not self.studies:
            return "nothing was written"
        self.draw()
        parts = [
            f"{name} {_plural(len(set(self.study.rounds.where(algorithm=name)['round'].tolist())), 'round')}"
            for name in self.study.algorithms
        ]
        text = f"{self.directory} holds the results so far: {', '.join(parts)}"
        return f"{text}; continue with --resume {self.directory}" if self.journal else text


def print_table(rows: Sequence[SummaryRow], console: Console | None = None) -> None:
    """Print the result table, in several parts if it is wider than the terminal (a file has no width)."""
    from fbo_flower.reports.summary_table import render_table

    console, unbounded = console or Console(highlight=False), Console(width=10_000)
    if not console.is_terminal:
        console.width = unbounded.width
    start = 0
    while start < len(rows):
        stop = len(rows)
        while stop > start + 1 and unbounded.measure(render_table(rows[start:stop])).maximum > console.width:
            stop -= 1
        console.print(render_table(rows[start:stop]))
        start = stop


def print_selections(study: Study, *, markdown: bool = False) -> None:
    """Print the table of selected models, if any run exchanged models."""
    from fbo_flower.reports.selection import selection_cells, selections
    from fbo_flower.reports.summary_table import markdown_table, render_cells

    rows = selections(study)
    if rows and markdown:
        typer.echo("\n" + markdown_table(selection_cells(rows)), nl=False)
    elif rows:
        console = Console(highlight=False)
        console.width = console.width if console.is_terminal else 10_000
        console.print(render_cells(selection_cells(rows)))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
