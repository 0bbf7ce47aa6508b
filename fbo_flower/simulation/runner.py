"""`simulate`: run one algorithm on one problem, with every agent on this machine.

The strategy and the ClientApp are the same as on devices; only the grid between them differs, see
`simulation.engines`.

`annotate` adds regret to a study. `f*` is the largest noiseless value of the agent's objective, if that is
known. The regret of a trial is `f* - f(x)` without noise; cumulative regret is the sum over trials, simple
regret the smallest so far [Dai2020, section 2]. In the sum, a failed trial counts as much as its agent's
worst trial, because it cost an evaluation and gave nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from flwr.serverapp import Grid

from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims, Limit
from fbo_flower.algorithms.protocol import with_budget
from fbo_flower.algorithms.registry import RECOMMENDED, register
from fbo_flower.clients.agent import Prior
from fbo_flower.clients.pruning import FEDERATED, Pruning
from fbo_flower.errors import ConfigError, check_names, kind_of
from fbo_flower.numerics import finite
from fbo_flower.reports.selection import selections
from fbo_flower.simulation.agents import (
    AgentData,
    OwnFunction,
    OwnObjective,
    check_agents,
    check_initial,
    own_objective,
    problem_app,
)
from fbo_flower.simulation.durations import duration_of
from fbo_flower.simulation.engines import engine_name, run_on_engine
from fbo_flower.simulation.grids import ClockedGrid, LocalGrid
from fbo_flower.simulation.problems import PROBLEMS, Problem, make_problem
from fbo_flower.simulation.settings import Agents, Async, RayEngine, Start, Sync, check_groups, places
from fbo_flower.space.checks import as_real, check_integer
from fbo_flower.space.copies import own
from fbo_flower.space.space import Config, SearchSpace
from fbo_flower.storage import StudyJournal
from fbo_flower.storage.files import writable_directory
from fbo_flower.storage.paths import path_of
from fbo_flower.strategies import RoundProgress, TuningStrategy
from fbo_flower.strategies.process import uninterrupted
from fbo_flower.strategies.settings import TuningResult, check_extent
from fbo_flower.study.directory import Directory, Keep, holds_study, removed_if_empty, study_directory
from fbo_flower.study.schema import REGRET, TIMES
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table
from fbo_flower.trackers import Callback, InlineProgress
from fbo_flower.trackers.callback import wants_progress


def annotate(study: Study, problem: Problem, **description: object) -> Study:
    """Return the study of one run with the facts that its strategy does not know.

    Parameters
    ----------
    problem : its name, options and metric go into the run's settings; the trials get regret if its optimum
        is known
    description : further entries of the run's settings, such as `engine="inline"`
    """
    (run,) = study.settings["runs"]
    named = [name for name, _ in run.get("objectives", [])]
    metric = "hypervolume" if len(named) > 1 else next(iter(named), problem.metric)
    known: dict[str, Any] = {
        "problem": problem.title(),
        "problem_options": {name: getattr(problem, name) for name in problem.options()},
        "metric": metric,
    }
    if len(study.models):
        volumes = selections(study)[0].volumes
        known["hypervolume"] = {name: v if np.isfinite(v) else None for name, v in volumes.items()}
    if "noise_from" in run.get("privacy", {}):  # agents of a problem draw from the study's seed, too
        known["privacy"] = {**run["privacy"], "noise_from": "seed"}
    settings = {**study.settings, "runs": [{**run, **known, **description}]}
    study = replace(study, settings=settings)
    return with_regret(study, problem)


def with_regret(study: Study, problem: Problem) -> Study:
    """Return the study with the regret of every trial.

    The study is unchanged if the optimum is unknown or the agents' names are not partition numbers.
    """
    if problem.optimum(0) is None or len(study.trials) == 0:
        return study
    rows = list(study.trials)
    if not all(row["agent"].isdigit() for row in rows):
        return study
    optima = {agent: problem.optimum(int(agent)) for agent in {row["agent"] for row in rows}}
    for row in rows:
        value, optimum = problem.true_value(own(row["config"]), int(row["agent"])), optima[row["agent"]]
        if value is not None and optimum is not None and not row["failure"]:
            row["regret"] = float(finite.difference(optimum, value))
    trials = Table.from_rows(rows, study.trials.kinds)  # with optional columns
    return replace(study, trials=trials, regret=regret_table(trials))


def regret_table(trials: Table) -> Table:
    """Return a table of the cumulative and simple regret after every evaluation of every agent."""
    parts = [Table.from_rows([], REGRET)]
    for algorithm, agent in dict.fromkeys(zip(trials["algorithm"], trials["agent"], strict=True)):
        of_agent = (trials["algorithm"] == algorithm) & (trials["agent"] == agent)
        regret, pulls = trials["regret"][of_agent], trials["pulls"][of_agent]
        known = np.isfinite(regret)
        if known.any():
            simple = np.minimum.accumulate(np.where(known, regret, np.inf))
            columns: dict[str, Any] = {
                "algorithm": [algorithm] * len(pulls),
                "agent": [agent] * len(pulls),
                "evaluations": np.cumsum(pulls),
                "cumulative": finite.running_sum(np.where(known, regret, np.nanmax(regret)) * pulls),
                "simple": np.where(np.isfinite(simple), simple, np.nan),
            }
            parts.append(Table(columns, REGRET))
    return Table.concatenate(parts)


OnRound = Callable[[RoundProgress], None]
SYNC = Sync()
P = ParamSpec("P")
R = TypeVar("R")


def _explaining(function: Callable[P, R]) -> Callable[P, R]:
    """Let `simulate` name the argument that is meant by an unknown one, and what an interrupted run left."""
    signature = inspect.signature(function)
    known = signature.parameters

    @wraps(function)
    def checked(*args: P.args, **given: P.kwargs) -> R:
        if not given.keys() <= known.keys():
            usual = {key: value for key, value in given.items() if key in known}
            algorithm = signature.bind_partial(*args, **usual).arguments.get("algorithm", RECOMMENDED)
            check_names(given, known, "simulate", places(algorithm))
        keep = kept if isinstance(kept := given.get("keep"), Keep) else Keep()
        held = keep.out is not None and holds_study(keep.out)
        try:
            return function(*args, **given)
        except KeyboardInterrupt:  # not with the long traceback of whatever ran just then
            said = keep.how_to_continue(held)
            raise KeyboardInterrupt(f"simulate was interrupted; {said}") from None

    return checked


@_explaining
def simulate(
    objective: OwnFunction | str | Problem,
    space: SearchSpace | None = None,
    agents: AgentData | int | Agents | None = None,
    algorithm: str | Algorithm[Any] = RECOMMENDED,
    num_rounds: int | None = None,
    *,
    num_trials: int | None = None,
    seed: int = 0,
    minimize: bool = False,
    objectives: Mapping[str, str] | None = None,
    limits: Mapping[str, Limit] | None = None,
    reference: Mapping[str, float] | None = None,
    engine: str | RayEngine = "ray",
    rounds: Sync | Async = SYNC,
    start: Start | None = None,
    keep: Keep | None = None,
    callbacks: Sequence[Callback | OnRound] = (),
    verbose: bool | None = None,
) -> Study:
    """Run a federated optimisation with simulated agents and return its study.

    Parameters
    ----------
    objective : your own function `f(config, data)`, which returns a number, or a dict of numbers by the names
        in `objectives` and `limits`. `config` is a dict of `space`,
        `data` the agent's item of `agents`. With a third parameter `context` it gets the `ObjectiveContext`
        of its trial, for `context.report(step, value)` and `context.should_stop()`. Or a bundled problem: its
        name in `PROBLEMS`, or an instance of `Problem`
    space : the search space of your function; None for a problem, which has its own
    agents : the agents' data: a dict from each agent's name to its data, a list with one item per agent, or
        the number of agents; `Agents(...)` is the same with budgets, pruning and more. None: as many agents
        as a bundled problem has
    algorithm : a name that `fbo-flower algorithms` lists, or an object such as
        `algorithms.FTS(advice="portfolio")`, also of a class of your own
    num_rounds : number of rounds, for those who count rounds; the first is the initial design
    num_trials : evaluations of each agent, whatever the algorithm's rounds are, in place of `num_rounds`.
        With neither there are 25, or as many as the algorithm's own budget allows
    seed : the same seed gives the same trials, bit for bit, on every engine
    minimize : whether smaller values of your function are better; the study shows the values as they are
    objectives : name -> "max" or "min", of one to three of the numbers that your function returns. The first
        is the `value` of a trial; None: it returns one number
    limits : name -> the largest value that a configuration may have, or a text such as ">= 0.9".
        `Agents(limits=...)` gives agents bounds of their own. Algorithms for several outputs are `random`,
        `ei` and `fed-ei`
    reference : name -> value of some of several objectives, from which improvement counts. Worse
        configurations gain nothing; without it the ends of an agent's front are explored too
    engine : "ray", "inline" or "flower"; `RayEngine(...)` is "ray" with settings. On "ray" and "flower" the
        objective and the data are pickled
    rounds : `Sync(...)`: a round ends when its agents have answered. `Async(...)`: each agent gets its next
        task as soon as it has answered
    start : what agents and server know before the study begins, see `Start`; None: nothing
    keep : what is kept on disk, and whether to resume, see `Keep`; None: nothing
    callbacks : are told of disclosed trials, rounds and the end, see `fbo_flower.trackers`; an error of
        theirs is logged, and the run goes on. A function is called with the `RoundProgress` of every round
    verbose : whether to show the last trial and the best value in one line instead of Flower's lines about
        rounds; None: at a terminal and in notebooks

    Returns
    -------
    Study
        With regret, if the problem's optimum is known.

    Raises
    ------
    ConfigError
        If a setting, option, problem, algorithm or engine is unknown or out of bounds, an argument has the
        wrong type, or the directory to write holds a study.
    JournalError
        If the study in the journals had other settings.
    KeyboardInterrupt
        After Ctrl-C, once the files of the finished rounds are written. Its text says where they are, and how
        to continue.

    Examples
    --------
    >>> from fbo_flower import Float, SearchSpace
    >>> space = SearchSpace({"x": Float(0, 1)})
    >>> study = simulate(lambda config, centre: (config["x"] - centre) ** 2, space,
    ...                  {"north": 0.2, "south": 0.3, "east": 0.25}, num_trials=6, minimize=True,
    ...                  engine="inline")
    >>> sorted(study.best), study.best["north"]["value"] < 0.1
    (['east', 'north', 'south'], True)
    """
    name = engine_name(engine)
    check_groups(rounds, start, keep)
    start, keep = start or Start(), keep or Keep()
    owners = agents if isinstance(agents, Agents) else Agents(agents)
    num_rounds, num_trials = check_extent(num_rounds, num_trials)
    seed = check_integer("seed", seed, 0)
    aims = Aims.of(minimize, objectives, limits, reference)
    problem = _problem(objective, space, owners.data, seed, aims, start.initial)
    duration = duration_of(rounds.clock, name)
    problem.check_data()
    made = _chosen(algorithm, problem, num_trials)
    check_agents(problem, made, owners, name, duration is not None)
    inline = [InlineProgress()] if wants_progress(verbose) else []
    synchronous = rounds if isinstance(rounds, Sync) else SYNC
    if synchronous.quorum < 1.0 and name == "inline" and duration is None:
        raise ConfigError(
            f'quorum: expected 1 on the engine "inline", where agents answer one after another, got '
            f'{synchronous.quorum:g}; pass Sync(quorum=..., clock=Clock(...)), or the engine "ray"'
        )
    strategy = TuningStrategy(
        made,
        num_agents=problem.num_agents,
        seed=seed,
        fraction=synchronous.fraction,
        quorum=synchronous.quorum,
        label=keep.label,
        callbacks=[*callbacks, *inline] if inline else callbacks,
        pool_curves=Pruning.read({}, owners.pruning).rule == FEDERATED,
    )
    with ExitStack() as stack:
        for progress in inline:
            stack.enter_context(progress.shown())
        journals = _journals(keep)  # before the study in `out` is removed
        directory = None if keep.out is None else path_of(keep.out)
        if directory is not None:
            stack.enter_context(removed_if_empty(directory))
            study_directory(directory, overwrite=keep.overwrite, resume=keep.resume)
        if keep.messages is not None:  # they are written when the run has ended
            stack.enter_context(removed_if_empty(path_of(keep.messages)))
            writable_directory(keep.messages, name="messages")
        held = _held_before(start, made, problem, seed, engine, keep)
        if made.roles and directory is not None:
            sites = {"models": str(directory / "models"), **(owners.site_options or {})}
            owners = replace(owners, site_options=sites)
        app = problem_app(
            problem, made, seed, held, replace(owners, data=None), journals and journals / "agents"
        )
        clocked: list[ClockedGrid] = []

        def run(grid: Grid) -> TuningResult:
            if duration is not None and rounds.clock is not None:
                assert isinstance(grid, LocalGrid), "the engine 'flower' was refused"
                grid = ClockedGrid(grid, duration, seed, float(rounds.clock.exchange_seconds))
                clocked.append(grid)
            return strategy.start(
                grid,
                num_rounds=num_rounds,
                num_trials=num_trials,
                journal=journals and journals / "study.db",
                resume=keep.resume,
                warm_start=start.warm_start,
                mode="async" if isinstance(rounds, Async) else "sync",
                max_staleness=rounds.max_staleness if isinstance(rounds, Async) else None,
            )

        def complete(study: Study) -> Study:
            prior_trials = {agent: len(points) for agent, (points, _) in held.items()}
            study = annotate(study, problem, engine=name, prior_trials=prior_trials)
            return _with_times_of(clocked[0], study) if clocked else study

        strategy.complete = complete
        try:
            run_on_engine(engine, strategy, run, app, problem.num_agents)
        finally:
            with uninterrupted():
                study = _saved(strategy, directory, keep.messages or directory, keep.label or made.name)
    assert study is not None, "the run has ended without an error"
    return study


def _journals(keep: Keep) -> Path | None:
    """Return the directory of the journals; ConfigError if it holds a study that is not to be resumed."""
    if keep.journals is None:
        return None
    journals = writable_directory(keep.journals, private=True, name="journals")
    if (journals / "study.db").exists():
        with StudyJournal(journals / "study.db") as journal:
            journal.begun(keep.resume)
    return journals


def _with_times_of(grid: ClockedGrid, study: Study) -> Study:
    """Return the study with simulated times of its disclosed trials, not measured ones."""
    times, label, trials = grid.times, study.algorithms[0], study.trials
    rows = [
        {"algorithm": label, "agent": agent, "trial": trial, "started": start, "ended": end}
        for agent, trial in zip(trials["agent"].tolist(), trials["trial"].tolist(), strict=True)
        if (agent, trial) in times
        for start, end in [times[agent, trial]]
    ]
    return replace(study, times=Table.from_rows(rows, TIMES))


def _saved(
    strategy: TuningStrategy, out: Directory | None, place: Directory | None, label: str
) -> Study | None:
    """Save a run's study in `out` and its messages in `place`, as far as there are any; return the study."""
    if strategy.study is not None:
        if out is not None:
            strategy.study.save(out)
        messages = strategy.export_messages()
        if place is not None and messages is not None:
            messages.save(path_of(place), label)
    return strategy.study


def _problem(
    objective: object, space: object, agents: Any, seed: int, aims: Aims, initial: Sequence[Config]
) -> Problem:
    """Return the problem of a user's function, or a bundled one."""
    if isinstance(objective, str) and objective not in PROBLEMS and space is not None:
        file, colon, function = objective.rpartition(":")
        file, function = (file, function) if colon else (objective, "score")
        raise ConfigError(
            f"objective: expected a function f(config, data), got the text {objective[:40]!r}; import it, as "
            f"in from {Path(file).stem} import {function}, and pass simulate({function}, ...)"
        )
    if isinstance(objective, str | Problem):
        if space is not None or aims != NUMBER or initial:
            raise ConfigError(
                "space, minimize, objectives, initial: expected none with a bundled problem, which has its "
                "own"
            )
        if isinstance(objective, Problem):
            if agents is not None:
                raise ConfigError("agents: expected None, because the problem is an object that has its own")
            return objective
        if agents is not None and not isinstance(as_real(agents), int):
            raise ConfigError(
                f"agents: expected the number of the problem's agents, got {kind_of(agents)}; data belong to "
                "a function of your own"
            )
        return make_problem(objective, agents, seed, {})
    if isinstance(as_real(agents), int):
        agents = range(check_integer("agents", agents, 1))
    return own_objective(objective, space, agents, seed, aims, initial)


def _chosen(algorithm: str | Algorithm[Any], problem: Problem, num_trials: int | None) -> Algorithm[Any]:
    """Return the algorithm with this budget; known configurations do not shorten its initial design."""
    if isinstance(algorithm, Algorithm):
        register(type(algorithm))
        made = algorithm
    elif isinstance(algorithm, str):
        made = make_algorithm(algorithm, {})
    else:
        raise ConfigError(
            "algorithm: expected a name such as 'fts', or an object such as algorithms.FTS(), got "
            f"{kind_of(algorithm)}"
        )
    if isinstance(problem, OwnObjective) and problem.initial:
        check_initial(made)
        core: Any = made
        made = replace(core, num_initial=core.num_initial + len(problem.initial))
    return with_budget(made, num_trials)


def prior_study(
    problem: Problem,
    algorithm: str,
    num_rounds: int,
    seed: int,
    engine: str | RayEngine,
    keep: Keep | None = None,
) -> Study:
    """Run the study in which the agents tune before the study with this seed; it has other random draws."""
    if isinstance(problem, OwnObjective):
        problem = replace(problem, initial=())
    own_seed = int(np.random.SeedSequence([seed, 0x70726965]).generate_state(1)[0])
    return simulate(
        problem,
        algorithm=algorithm,
        num_rounds=num_rounds,
        seed=own_seed,
        engine=engine,
        keep=keep,
        verbose=False,
    )


def observations(study: Study, problem: Problem, without: tuple[str, ...] = ()) -> Prior:
    """Return what each agent observed in `study`, as points `(n, D)` and values `(n,)` as measured.

    Values of several outputs are a dict, name -> `(n,)`. Failed trials are left out, and so are the agents in
    `without`.
    """
    held = study.observations(problem.space, without)
    sign = -1.0 if study.any_minimizes != problem.aims.minimize else 1.0
    for agent, (points, values) in held.items():
        if not isinstance(values, Mapping):
            held[agent] = points, sign * values
    return held


def _held_before(
    start: Start, algorithm: Algorithm[Any], problem: Problem, seed: int, engine: str | RayEngine, keep: Keep
) -> Prior:
    """Return the observations that each agent holds before the study; the algorithm's `targets` hold none."""
    if start.gives_observations and algorithm.roles:
        raise ConfigError(
            f"start: expected no observations with {algorithm.name}, because its sites begin without any"
        )
    known = start.observations
    if start.prior_rounds:
        earlier = Keep(
            journals=None if keep.journals is None else path_of(keep.journals) / "prior", resume=keep.resume
        )
        known = prior_study(problem, start.prior_algorithm, start.prior_rounds, seed, engine, earlier)
    if isinstance(known, Study):
        targets = algorithm.targets
        known = observations(known, problem, without=() if targets == "all" else tuple(targets))
    for _, values in (known or {}).values():
        problem.aims.observed(values)
    return known or {}
