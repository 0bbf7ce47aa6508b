"""`fbo-flower simulate`: run one or several algorithms on one problem with simulated agents."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.cli.common import Debug, Quiet, Wide, option, plural
from fbo_flower.cli.interruption import NOTHING, in_order
from fbo_flower.cli.plan import JOURNALS, PLAN, SimulationPlan, parse_options, point_latest_at, read_plan
from fbo_flower.cli.report import print_selections, print_table
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.durations import Clock
from fbo_flower.simulation.settings import Agents, Async, RayEngine, Start, Sync
from fbo_flower.storage.paths import file_name, path_of
from fbo_flower.study.directory import Keep, holds_study
from fbo_flower.trackers.callback import Callback, StudyInfo

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

_RAY = ("address", "client_resources")  # options that only this engine takes
_ALSO_RESUMED = {"resume", "engine", *_RAY, "quiet", "wide", "debug"}
# options that do not belong to the settings of a run
_NOT_SAVED = {*_RAY, "debug", "journal", "out", "overwrite", "quiet", "resume", "wide"}


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
    objectives: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Up to three names of the dict that FUNCTION returns, or of the problem's outputs: "
            "'accuracy max, kilobytes min'.",
        ),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Limits of outputs: 'latency_ms <= 20, recall >= 0.9', or of one agent: "
            "'north: latency_ms <= 15'; repeatable.",
        ),
    ] = None,
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
            help="Another algorithm to run with the same starting points, seed and evaluations of each "
            'agent: "NAME key=value ... label=TEXT"; repeatable.',
        ),
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents; default: the problem's.")] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            help="Evaluations of each agent, whatever the algorithm's rounds are. Default: 25, or the budget "
            "of --algorithm, if it has one.",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Rounds of --algorithm, in place of --trials; the first is the initial design. The others "
            "make as many evaluations.",
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
    client_resources: Annotated[
        list[str] | None,
        typer.Option(
            help="What each worker of --engine ray takes of the machine or cluster: num_cpus=NUMBER "
            "(default 1) or num_gpus=NUMBER (default 0); repeatable."
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
            "--address, --client-resources, --wide, --quiet and --debug may be given as well."
        ),
    ] = None,
    wide: Wide = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run algorithms on a bundled problem, or on a function of your own, with simulated agents.

    Prints a table and writes study.json, trials.csv, rounds.csv, best.json, report.png and traffic.png.

    After Ctrl-C these files hold the finished rounds, and a line says how to continue.

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
        sources = {name: context.get_parameter_source(name) for name in context.params}
        typed = {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
        if more := sorted(typed - _ALSO_RESUMED):
            names = ", ".join(f"--{name.replace('_', '-')}" for name in more)
            raise ConfigError(f"--resume: the settings come from {resume}; leave out {names}")
        plan = read_plan(resume, context.command)
        if "engine" in typed:
            plan = SimulationPlan.of({**plan.given, "engine": engine})
    journal = journal or resume is not None
    ray = RayEngine(
        address=address,
        client_resources=parse_options(client_resources or (), "--client-resources") or None,
    )
    if plan.given["engine"] != "ray" and ray != RayEngine():
        names = " and ".join(f"--{name.replace('_', '-')}" for name in _RAY if getattr(ray, name))
        raise ConfigError(
            f"{names}: expected --engine ray, which alone uses this, got --engine {plan.given['engine']}; "
            "leave it out"
        )
    _run(plan, resume or out, ray, journal, resume is not None, overwrite, wide, quiet, debug)


def _run(
    plan: SimulationPlan,
    out: Path | None,
    ray: RayEngine,
    journal: bool,
    resume: bool,
    overwrite: bool,
    wide: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Run the algorithms of a plan, write their studies, and print the results.

    Without `out` they are in the plan's own directory, and `runs/latest` points at it.
    """
    from fbo_flower.cli.progress import Display
    from fbo_flower.simulation.ray_workers import ray_running
    from fbo_flower.simulation.runner import prior_study, simulate
    from fbo_flower.study.directory import removed_if_empty, study_directory
    from fbo_flower.trackers import OptunaTracker

    engine = ray if plan.given["engine"] == "ray" else plan.given["engine"]
    problem = plan.check()  # finds every wrong setting before the first evaluation
    directory = plan.directory() if out is None else path_of(out, "out")
    record = _Record(directory, journal, out is None, wide)
    journals = directory / JOURNALS if journal else None
    with in_order(record.said), ExitStack() as stack:
        stack.enter_context(removed_if_empty(directory))
        study_directory(directory, overwrite=overwrite, resume=resume)
        if journals is not None and not resume:
            if journals.exists():
                raise ConfigError(
                    f"--journal: {directory} already holds journals; continue them with --resume {directory}"
                )
            plan.save(directory)
        display = stack.enter_context(Display(quiet=quiet, debug=debug))
        try:
            if isinstance(engine, RayEngine):
                stack.enter_context(ray_running(engine.address))
                engine = replace(engine, address=None)  # this process is connected
            observations, start, agents = None, plan.start, plan.agents
            if start.prior_rounds:
                display.announce(f"prior {start.prior_algorithm}")
                earlier = Keep(journals=None if journals is None else journals / "prior", resume=resume)
                settings = start.prior_algorithm, start.prior_rounds, plan.given["seed"], engine
                observations = prior_study(problem, *settings, earlier)
            optuna = plan.given["optuna"]
            for number, contestant in enumerate(plan.contestants, 1):
                display.announce(contestant.label)
                own = None if journals is None else journals / f"{number}-{file_name(contestant.label)}"
                trackers = [] if optuna is None else [OptunaTracker(optuna)]
                first = record.studies[0] if record.studies else None
                num_rounds, num_trials = plan.extent(contestant, first)
                algorithm = contestant.make()
                models = {"models": str(directory / "models")} if algorithm.roles else {}
                simulate(
                    problem,
                    agents=replace(agents, site_options={**models, **(agents.site_options or {})}),
                    algorithm=algorithm,
                    num_rounds=num_rounds,
                    num_trials=num_trials,
                    seed=plan.given["seed"],
                    engine=engine,
                    rounds=plan.rounds,
                    start=Start(observations=observations, warm_start=plan.warm(contestant)),
                    keep=Keep(journals=own, resume=resume, messages=directory, label=contestant.label),
                    callbacks=[record, display.advance, *trackers],
                    verbose=False,
                )
        except BaseException as error:
            if record.studies:
                record.draw()
            error.add_note(record.said())
            raise
        no_picture = record.draw()
        stack.close()
        if not quiet:
            _print_results(plan, record.study, directory, no_picture, wide=wide)


def _print_results(
    plan: SimulationPlan, study: Study, directory: Path, no_picture: str, *, wide: bool
) -> None:
    from fbo_flower.reports.summary import summarise

    print_table(summarise(study), wide=wide)
    print_selections(study)
    if plan.given["function"] is None:
        typer.echo(
            "Simulated agents disclosed their trials, because nobody owns the data of a bundled problem."
        )
    from fbo_flower.reports.figures import PICTURE

    typer.echo(f"No picture: {no_picture}" if no_picture else f"Picture: {directory / PICTURE}")
    typer.echo(f"Results: {directory}")
    if plan.given["optuna"] is not None:
        typer.echo(f"Look at the trials: optuna-dashboard {plan.given['optuna']}")
    if plan.rounds.clock is not None:
        typer.echo(f"Values against time: fbo-flower report {directory} --x time")


class _Record(Callback):
    """The studies of the algorithms that have ended, saved after each of them so that none is lost."""

    def __init__(self, directory: Path, journal: bool, is_default: bool, wide: bool) -> None:
        self.directory = directory
        self.journal = journal
        self.is_default = is_default
        self.wide = wide or None
        self.replaces = holds_study(directory)
        self.studies: list[Study] = []

    @property
    def study(self) -> Study:
        from fbo_flower.study.study import Study

        return Study.merge(self.studies, name=self.directory.name)

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        self.studies.append(result)
        self.study.save(self.directory)
        if self.is_default:
            point_latest_at(self.directory)

    def draw(self) -> str:
        from fbo_flower.reports.figures import PICTURE, draw

        return draw(self.study, self.directory / PICTURE, wide=self.wide)

    def said(self) -> str:
        """Return a sentence that says what the directory holds, and how to continue."""
        more = ""
        if self.journal and (self.directory / PLAN).is_file():
            more = f"; continue with --resume {shlex.quote(str(self.directory))}"
        if self.studies:
            study = self.study
            rounds = {
                name: len(set(study.rounds.where(algorithm=name)["round"].tolist()))
                for name in study.algorithms
            }
            parts = [f"{name} {plural(number, 'round')}" for name, number in rounds.items()]
            so_far = f"{self.directory} holds the results so far: {', '.join(parts)}"
            return so_far + ("" if self.journal else "; only a run with --journal can be continued") + more
        if more:
            held = "settings and journals" if (self.directory / JOURNALS).is_dir() else "settings"
            return f"{self.directory} holds the {held} of the run{more}"
        if self.replaces and not holds_study(self.directory):
            return f"the study that was in {self.directory} is removed, {NOTHING}"
        return NOTHING
