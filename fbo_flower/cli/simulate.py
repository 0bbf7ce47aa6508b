"""`fbo-flower simulate`: run one or several algorithms on one problem with simulated agents."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.cli.common import plural
from fbo_flower.cli.interruption import NOTHING, in_order
from fbo_flower.cli.plan import JOURNALS, PLAN, SimulationPlan, parse_options, point_latest_at, read_plan
from fbo_flower.cli.report import print_selections, print_table
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.settings import Agents, Clock, RayEngine, Start, Sync
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
    function: str | None = None,
    *,
    data: str | None = None,
    space: Path | None = None,
    minimize: bool = False,
    objectives: str | None = None,
    limits: list[str] | None = None,
    problem: str = "digits-svm",
    algorithm: str = RECOMMENDED,
    compare: list[str] | None = None,
    agents: int | None = None,
    trials: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
    engine: str = "ray",
    address: str | None = None,
    client_resources: list[str] | None = None,
    option_: list[str] | None = None,
    problem_option: list[str] | None = None,
    prior_rounds: int = Start.prior_rounds,
    prior_algorithm: str = Start.prior_algorithm,
    site_option: list[str] | None = None,
    fraction: float = Sync.fraction,
    quorum: float = Sync.quorum,
    mode: str = "sync",
    max_staleness: int | None = None,
    durations: str | None = None,
    exchange_seconds: float = Clock.exchange_seconds,
    num_parallel: int = Agents.num_parallel,
    trial_timeout: float = Agents.trial_timeout,
    label: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    warm_start: Path | None = None,
    journal: bool = False,
    optuna: str | None = None,
    resume: Path | None = None,
    wide: bool = False,
    quiet: bool = False,
    debug: bool = False,
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

    Parameters
    ----------
    function : `[FILE.py:FUNCTION]`: A function of your own, `f(config, path)`, instead of a bundled problem;
        with --data and --space.
    data : `PATTERN`: Files of the agents, one each: 'sites/*.csv'.
    space : `FILE.toml`: What FUNCTION's configurations may be: `C = {low = 0.1, high = 100.0, log = true}`,
        `kernel = ["rbf", "poly"]`, `degree = {low = 2, high = 4, active_when = {kernel = "poly"}}`.
    minimize : Smaller values of FUNCTION are better.
    objectives : Up to three names of the dict that FUNCTION returns, or of the problem's outputs:
        'accuracy max, kilobytes min'.
    limits : Limits of outputs: 'latency_ms <= 20, recall >= 0.9', or of one agent: 'north: latency_ms
        <= 15'; repeatable.
    problem : Problem, see `fbo-flower problems`; or table:FILE.
    algorithm : Name of the algorithm, see `fbo-flower algorithms`.
    compare : Another algorithm to run with the same starting points, seed and evaluations of each agent:
        "NAME key=value ... label=TEXT"; repeatable.
    agents : Number of agents; default: the problem's.
    trials : Evaluations of each agent, whatever the algorithm's rounds are. Default: 25, or the budget of
        --algorithm, if it has one.
    rounds : Rounds of --algorithm, in place of --trials; the first is the initial design. The others make as
        many evaluations.
    seed : Seed of all random numbers: the same seed gives the same trials.
    engine : ray (on all cores), inline (in this process) or flower (Flower's simulation engine).
    address : Address of a Ray cluster, for --engine ray; auto: this machine's; default: start one.
    client_resources : What each worker of --engine ray takes of the machine or cluster: num_cpus=NUMBER
        (default 1) or num_gpus=NUMBER (default 0); repeatable.
    option_ : key=value, an option of --algorithm; the value is JSON or text; repeatable.
    problem_option : key=value, an option of --problem; repeatable.
    site_option : key=value, a setting of every site, for algorithms with roles; repeatable.
    mode : sync: a round ends when its agents have answered. async: each agent gets its next task as soon as
        it has answered.
    durations : `SPEC`:
    out : Directory for the results; default: runs/PROBLEM-ALGORITHMS-seedSEED-TIME, and runs/latest points at
        it.
    journal : Record every task, reply and evaluation on disk, so that a run that dies can be resumed.
    optuna : `STORAGE`: Write the trials at the end of every round into this Optuna storage, for
        optuna-dashboard: sqlite:///study.db or another URL, or a file that ends in .db or .log.
    resume : Resume the run with --journal in this directory, with the settings it had; only --engine,
        --address, --client-resources, --wide, --quiet and --debug may be given as well.
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
    resources = parse_options(client_resources or (), "--client-resources")
    ray = RayEngine(address=address, client_resources=resources or None)
    if plan.given["engine"] != "ray" and ray != RayEngine():
        names = " and ".join(f"--{name.replace('_', '-')}" for name in _RAY if getattr(ray, name))
        raise ConfigError(
            f"{names}: expected --engine ray, which alone uses this, got --engine {plan.given['engine']}; "
            "leave it out"
        )
    _run(plan, ray, _Record(plan, resume or out, journal, wide), **context.params)


def _run(
    plan: SimulationPlan, ray: RayEngine, record: _Record, *, resume: Path | None, overwrite: bool,
    quiet: bool, debug: bool, **_others: object,
) -> None:  # fmt: skip
    """Run the algorithms of a plan, write their studies, and print the results."""
    from fbo_flower.cli.progress import Display
    from fbo_flower.simulation.ray_workers import ray_running
    from fbo_flower.simulation.runner import prior_study, simulate
    from fbo_flower.study.directory import removed_if_empty, study_directory
    from fbo_flower.trackers import OptunaTracker

    engine = ray if plan.given["engine"] == "ray" else plan.given["engine"]
    problem = plan.check()  # finds every wrong setting before the first evaluation
    directory, resumed = record.directory, resume is not None
    journals = directory / JOURNALS if record.journal else None
    with in_order(record.how_to_continue), ExitStack() as stack:
        stack.enter_context(removed_if_empty(directory))
        study_directory(directory, overwrite=overwrite, resume=resumed)
        if journals is not None and not resumed:
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
            observations, start, agents, optuna = None, plan.start, plan.agents, plan.given["optuna"]
            if start.prior_rounds:
                display.announce(f"prior {start.prior_algorithm}")
                earlier = Keep(journals=None if journals is None else journals / "prior", resume=resumed)
                settings = start.prior_algorithm, start.prior_rounds, plan.given["seed"], engine
                observations = prior_study(problem, *settings, earlier)
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
                    keep=Keep(journals=own, resume=resumed, messages=directory, label=contestant.label),
                    callbacks=[record, display.advance, *trackers],
                    verbose=False,
                )
        except BaseException as error:
            if record.studies:
                record.draw()
            error.add_note(record.how_to_continue())
            raise
        no_picture = record.draw()
        stack.close()
        if not quiet:
            record.show(no_picture)


class _Record(Callback):
    """The studies of the algorithms that have ended, saved after each of them so that none is lost."""

    def __init__(self, plan: SimulationPlan, out: Path | None, journal: bool, wide: bool) -> None:
        """Without `out`, results are in the plan's own directory, and `runs/latest` points at it."""
        self.plan = plan
        self.directory = plan.directory() if out is None else path_of(out, "out")
        self.journal, self.is_default, self.wide = journal, out is None, wide or None
        self.replaces = holds_study(self.directory)
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

    def show(self, no_picture: str) -> None:
        from fbo_flower.reports.figures import PICTURE
        from fbo_flower.reports.summary import summarise

        directory, given = self.directory, self.plan.given
        print_table(summarise(self.study), wide=bool(self.wide))
        print_selections(self.study)
        if given["function"] is None:
            why = "because nobody owns the data of a bundled problem"
            typer.echo(f"Simulated agents disclosed their trials, {why}.")
        typer.echo(f"No picture: {no_picture}" if no_picture else f"Picture: {directory / PICTURE}")
        typer.echo(f"Results: {directory}")
        if given["optuna"] is not None:
            typer.echo(f"Look at the trials: optuna-dashboard {given['optuna']}")
        if self.plan.rounds.clock is not None:
            typer.echo(f"Values against time: fbo-flower report {directory} --x time")

    def how_to_continue(self) -> str:
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
