"""`simulate`: run one algorithm on one problem, with every agent on this machine.

The strategy and the ClientApp are the same as on devices; only the grid between them differs, see
`simulation.engines`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import Algorithm, make_algorithm, with_secure_sums
from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.recommended import RECOMMENDED, RECOMMENDED_OPTIONS
from fbo_flower.algorithms.registry import register
from fbo_flower.clients.agent import Prior
from fbo_flower.clients.pruning import FEDERATED, Pruning
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.simulation.agents import check_initial, check_parallel, check_roles, problem_app
from fbo_flower.simulation.annotate import annotate
from fbo_flower.simulation.arguments import Arguments
from fbo_flower.simulation.clock import SimulatedClock
from fbo_flower.simulation.durations import Durations
from fbo_flower.simulation.engines import engine_name, run_on_engine
from fbo_flower.simulation.own_objective import (
    AgentData,
    OwnFunction,
    OwnObjective,
    agent_data,
    own_objective,
)
from fbo_flower.simulation.problems import Config, Problem, make_problem
from fbo_flower.simulation.settings import Checkpoint, Directory, PriorKnowledge, RayEngine
from fbo_flower.simulation.unequal_agents import FixedPerAgent, PerAgent, UnequalAgents
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.files import writable_directory
from fbo_flower.strategies import RoundProgress, TuningStrategy
from fbo_flower.study.directory import removed_if_empty, study_directory
from fbo_flower.study.study import Study
from fbo_flower.trackers import Callback, OptunaTracker

OnRound = Callable[[RoundProgress], None]
OnStudy = Callable[[Study], None]


def simulate(
    problem: str | Problem | None = None,
    algorithm: str | Algorithm[Any] | None = None,
    num_agents: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
    engine: str | RayEngine = "ray",
    options: Mapping[str, object] | None = None,
    problem_options: Mapping[str, object] | None = None,
    out: Directory | None = None,
    *,
    objective: OwnFunction | None = None,
    space: SearchSpace | None = None,
    agents: AgentData | None = None,
    minimize: bool = False,
    initial: Sequence[Config] = (),
    overwrite: bool = False,
    label: str | None = None,
    fraction: float = 1.0,
    quorum: float = 1.0,
    mode: str = "sync",
    max_staleness: int | None = None,
    durations: Durations | str | None = None,
    exchange_seconds: float = 0.0,
    num_parallel: int = 1,
    trial_timeout: float = 0.0,
    max_trials: PerAgent | None = None,
    participation: PerAgent | None = None,
    fixed: FixedPerAgent | None = None,
    pruning: Pruning | str | None = None,
    site_options: Mapping[str, object] | None = None,
    prior: PriorKnowledge | None = None,
    checkpoint: Checkpoint | None = None,
    on_round: OnRound | None = None,
    on_study: OnStudy | None = None,
    callbacks: Sequence[Callback] = (),
    optuna: object | None = None,
) -> Study:
    """Run a federated optimisation with simulated agents and return its study.

    Tune your own function with `simulate(objective=f, space=space, agents=data)`, or run a bundled problem
    by name, as in `simulate("digits-svm", "ts", num_agents=10)`.

    Parameters
    ----------
    problem : a name in `PROBLEMS`, or an instance of `Problem`; None: "digits-svm", unless there is an
        `objective`
    algorithm : a name that `fbo-flower algorithms` lists, or an object such as
        `algorithms.FTS(advice="portfolio")`, also of a class of your own. None: for `objective` the one that
        `algorithms.recommended` names, with its options; for a problem "fts"
    num_agents : number of agents; None: the problem's default, or one per item of `agents`
    num_rounds : the first round is the initial design; None: until the algorithm is finished, or 25 rounds if
        it never finishes
    seed : the same seed gives the same trials, bit for bit, on every engine
    engine : "ray", "inline" or "flower"; `RayEngine(...)` is "ray" with settings. On "ray" and "flower" the
        objective and the data are pickled
    options : options of the algorithm
    problem_options : options of the problem; None, like num_agents, if `problem` is an instance
    out : directory for the study's files, which are written also when the run is interrupted
    objective : your own function `f(config, data)`, which returns a number. `config` is a dict of `space`,
        `data` the agent's item of `agents`. With a third parameter `context` it gets the `ObjectiveContext`
        of its trial, for `context.report(step, value)` and `context.should_stop()`
    space : the search space of `objective`
    agents : the agents' data, for `objective`: a dict from each agent's name to its data, or a list with one
        item per agent. None: the data of agent i is the number i, for i below `num_agents`
    minimize : whether smaller values of `objective` are better; the study shows the values as they are
    initial : known good configurations. Every agent evaluates them as its first trials, before the initial
        design, whose size stays the same
    overwrite : replace a study that is in `out`; otherwise a directory with a study is refused
    label : name of this run in tables and pictures
    fraction : share of the agents that get a task in a round
    quorum : share of the answers that closes a round; on the simulated clock of `durations`
    mode : "sync": a round ends when its agents have answered. "async": each agent gets its next task as soon
        as it has answered, and a round is as many answers as there are agents
    max_staleness : in the mode "async", how many rounds may end between a task and its answer; what an older
        answer holds for other agents is dropped. None: any number
    durations : how long evaluations take on a simulated clock, which costs no time: seconds, or agent ->
        seconds (or a list of them, one per trial), or a function `(agent, trial, rng) -> seconds`, ready ones
        of which are in `simulation.durations`; or a text such as "lognormal:60,1", see
        `simulation.duration_texts`. The study's times are then simulated seconds. None: real time
    exchange_seconds : how long a task and its reply are on their way together, on the simulated clock of
        `durations`
    num_parallel : evaluations of an agent at the same time, in worker processes, see `client_app`; for the
        engine "inline" without `durations`. It takes effect where an agent has several trials in a round
    trial_timeout : seconds that one evaluation may take; then its process is killed and the trial fails. For
        the engine "inline" without `durations`. 0: any number
    max_trials : the agents' budgets of evaluations: one for all, a dict from agents to budgets (others have
        no limit), or a list with one per agent. The study ends when all are used up
    participation : share of the rounds in which agents get tasks, given like `max_trials`
    fixed : parameters that agents do not tune: a dict from agents to theirs, name -> value, or a list with
        those of each agent
    pruning : when `context.should_stop()` is true in an objective, see `clients.Pruning`; with the rule
        "federated" all agents share medians of their learning curves. A text: `Pruning` with this rule; None:
        `Pruning()`
    site_options : options of every site, for an algorithm with roles; on devices the operator sets them in
        `node_config`, see `clients.site_options`
    prior : what agents and server know before the study begins, see `PriorKnowledge`; None: nothing
    checkpoint : where the run keeps its journals and messages, and whether to resume, see `Checkpoint`
    on_round : called after every round
    on_study : called with the study once the run has ended, also if it was interrupted or failed
    callbacks : are told of disclosed trials, rounds and the end, see `fbo_flower.trackers`; an error of
        theirs is logged, and the run goes on
    optuna : where to write the trials at the end of every round for optuna-dashboard, such as
        "sqlite:///study.db"; short for `callbacks=[OptunaTracker(optuna)]`

    Returns
    -------
    Study
        With regret, if the problem's optimum is known.

    Raises
    ------
    ConfigError
        If a setting, option, problem, algorithm or engine is unknown or out of bounds, an argument has the
        wrong type, or `out` holds a study.
    JournalError
        If the study in the checkpoint's journals had other settings.
    KeyboardInterrupt
        After Ctrl-C, once the files of the finished rounds are written.

    Examples
    --------
    >>> from fbo_flower import Float, SearchSpace
    >>> space = SearchSpace({"x": Float(0, 1)})
    >>> study = simulate(objective=lambda config, centre: (config["x"] - centre) ** 2, space=space,
    ...                  agents={"north": 0.2, "south": 0.3}, minimize=True, num_rounds=6, engine="inline")
    >>> sorted(study.best), study.best["north"]["value"] < 0.1
    (['north', 'south'], True)
    """
    name = engine_name(engine)
    given = Arguments(options, problem_options, site_options, prior, checkpoint, out, on_round, on_study)
    given.check(problem, algorithm)
    prior, checkpoint, stopping = (
        prior or PriorKnowledge(),
        checkpoint or Checkpoint(),
        Pruning.read({}, pruning),
    )
    if num_rounds is not None:
        check_number("num_rounds", num_rounds, 1, integer=True)
    if objective is not None or space is not None:
        if problem is not None or problem_options:
            raise ConfigError("problem: expected either a problem or an objective with its space, got both")
        data = agent_data(agents, num_agents)
        problem = own_objective(objective, space, data, seed, minimize, initial)
    elif agents is not None or minimize or initial:
        raise ConfigError(
            "agents, minimize, initial: expected them with objective and space, got a bundled problem; "
            "leave them out, and pass the number of its agents as num_agents"
        )
    else:
        problem = _bundled(problem, num_agents, seed, problem_options)
    parallel = check_parallel(num_parallel, trial_timeout, problem, name, durations is not None)
    problem.check_data()
    made = _chosen(algorithm, options or {}, problem)
    check_roles(problem, made, site_options)
    if made.roles and prior.gives_observations:
        raise ConfigError(
            f"prior: expected none with {made.name}, because its sites begin without observations"
        )
    unequal = UnequalAgents.of(problem, made, max_trials, participation, fixed)
    clock = SimulatedClock(durations, seed, exchange_seconds, name)
    strategy = TuningStrategy(
        made.inner,
        num_agents=problem.num_agents,
        seed=seed,
        fraction=fraction,
        quorum=quorum,
        label=label,
        minimize=isinstance(problem, OwnObjective) and problem.minimize,
        on_round=on_round,
        callbacks=callbacks if optuna is None else [*callbacks, OptunaTracker(optuna)],
        pool_curves=stopping.rule == FEDERATED,
    )
    with ExitStack() as stack:
        directory = None if out is None else Path(out)
        if directory is not None:
            stack.enter_context(removed_if_empty(directory))
            study_directory(directory, overwrite=overwrite, resume=checkpoint.resume)
        held = _held_before(prior, made, problem, seed, engine, checkpoint)
        if made.roles and directory is not None:
            site_options = {"models": str(directory / "models"), **(site_options or {})}
        journals = (
            None if checkpoint.journals is None else writable_directory(checkpoint.journals, private=True)
        )
        app = problem_app(
            problem,
            made,
            seed,
            held,
            site_options,
            None if journals is None else journals / "agents",
            parallel,
            unequal,
            stopping,
        )
        prior_trials = {agent: len(values) for agent, (_, values) in held.items()}
        try:
            start = partial(
                strategy.start,
                num_rounds=num_rounds,
                journal=None if journals is None else journals / "study.db",
                resume=checkpoint.resume,
                warm_start=prior.warm_start,
                mode=mode,
                max_staleness=max_staleness,
            )
            run_on_engine(engine, strategy, clock.around(start), app, problem.num_agents)
        finally:
            if strategy.study is not None:
                study = annotate(strategy.study, problem, engine=name, prior_trials=prior_trials)
                study = clock.with_times(study)
                if directory is not None:
                    study.save(directory)
                _save_messages(strategy, checkpoint.messages or directory, label or made.name)
                if on_study is not None:
                    on_study(study)
    return study


def _bundled(
    problem: str | Problem | None,
    num_agents: int | None,
    seed: int,
    problem_options: Mapping[str, object] | None,
) -> Problem:
    """Return a bundled problem by name, or the instance that was passed."""
    if num_agents is not None and (not isinstance(num_agents, int) or isinstance(num_agents, bool)):
        raise ConfigError(
            f"num_agents: expected the number of agents, got {kind_of(num_agents)}; for your own data pass "
            "agents=data, with objective and space"
        )
    if not isinstance(problem, Problem):
        return make_problem(problem or "digits-svm", num_agents, seed, problem_options or {})
    if num_agents is not None or problem_options:
        raise ConfigError(
            "num_agents, problem_options: expected None, because the problem is an instance that has its own"
        )
    return problem


def _chosen(
    algorithm: str | Algorithm[Any] | None, options: Mapping[str, object], problem: Problem
) -> Algorithm[Any]:
    """Return the algorithm; known configurations do not shorten its initial design."""
    own = problem if isinstance(problem, OwnObjective) else None
    if isinstance(algorithm, Algorithm):
        register(type(algorithm))
        made = with_secure_sums(algorithm)
    elif algorithm is None and own is not None:
        made = make_algorithm(RECOMMENDED, {**RECOMMENDED_OPTIONS, **options})
    else:
        made = make_algorithm(algorithm or "fts", options)
    if own is not None and own.initial:
        check_initial(made)
        core: Any = made.inner
        made = with_secure_sums(replace(core, num_initial=core.num_initial + len(own.initial)))
    return made


def prior_study(
    problem: Problem,
    algorithm: str,
    num_rounds: int,
    seed: int,
    engine: str | RayEngine,
    checkpoint: Checkpoint | None = None,
) -> Study:
    """Run the study in which the agents tune before the study with this seed; it has other random draws."""
    if isinstance(problem, OwnObjective):
        problem = replace(problem, initial=())
    own_seed = int(np.random.SeedSequence([seed, 0x70726965]).generate_state(1)[0])
    return simulate(problem, algorithm, None, num_rounds, own_seed, engine, checkpoint=checkpoint)


def observations(study: Study, problem: Problem, without: tuple[str, ...] = ()) -> Prior:
    """Return what each agent observed in `study`, as points `(n, D)` and values `(n,)`, larger is better.

    Failed trials are left out, and so are the agents in `without`.
    """
    held = study.observations(problem.space, without)
    sign = -1.0 if study.any_minimizes else 1.0
    return {agent: (points, sign * values) for agent, (points, values) in held.items()}


def _held_before(
    prior: PriorKnowledge,
    algorithm: Algorithm[Any],
    problem: Problem,
    seed: int,
    engine: str | RayEngine,
    checkpoint: Checkpoint,
) -> Prior:
    """Return the observations that each agent holds before the study; the algorithm's `targets` hold none."""
    known = prior.observations
    if prior.rounds:
        journals = None if checkpoint.journals is None else Path(checkpoint.journals) / "prior"
        earlier = Checkpoint(journals, resume=checkpoint.resume)
        known = prior_study(problem, prior.algorithm, prior.rounds, seed, engine, earlier)
    if isinstance(known, Study):
        core = algorithm.inner
        targets = core.targets
        return observations(known, problem, without=() if targets == "all" else tuple(targets))
    if known and isinstance(problem, OwnObjective) and problem.minimize:
        return {agent: (points, -np.asarray(values)) for agent, (points, values) in known.items()}
    return known or {}


def _save_messages(strategy: TuningStrategy, directory: Directory | None, label: str) -> None:
    if directory is not None and (messages := strategy.export_messages()) is not None:
        messages.save(Path(directory), label)
