"""`simulate`: one algorithm on one problem, with every agent on this machine.

The strategy and the ClientApp are those that run on devices; only the grid between them differs:

- `inline`: in this process, one agent after the other;
- `ray`: on Ray workers that take messages in batches, one per CPU, or on a Ray cluster;
- `flower`: Flower's own simulation engine, on Ray.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.capabilities import HasTargets, roles, unwrapped
from fbo_flower.algorithms.options import check_number
from fbo_flower.clients.agent import Prior
from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.reports.selection import selections
from fbo_flower.simulation.agents import check_roles, problem_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.simulation.ray_grid import RayGrid
from fbo_flower.simulation.regret import with_regret
from fbo_flower.storage.files import writable_directory
from fbo_flower.strategies import STRATEGIES, RoundProgress, TuningStrategy
from fbo_flower.strategies.send_and_receive import Stopped
from fbo_flower.study.study import Study

ENGINES = ("ray", "inline", "flower")
OnRound = Callable[[RoundProgress], None]
OnStudy = Callable[[Study], None]


def simulate(
    problem: str | Problem = "digits-svm",
    algorithm: str = "fts",
    num_agents: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
    engine: str = "ray",
    options: Mapping[str, object] | None = None,
    problem_options: Mapping[str, object] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    label: str | None = None,
    fraction: float = 1.0,
    prior_rounds: int = 0,
    prior_algorithm: str = "ts",
    prior: Study | Prior | None = None,
    site_options: Mapping[str, object] | None = None,
    on_round: OnRound | None = None,
    on_study: OnStudy | None = None,
    engine_options: Mapping[str, object] | None = None,
    journals: str | os.PathLike[str] | None = None,
    resume: bool = False,
    warm_start: str | os.PathLike[str] | None = None,
    messages: str | os.PathLike[str] | None = None,
) -> Study:
    """Run a federated optimisation with simulated agents.

    Parameters
    ----------
    problem : a name in `PROBLEMS`, or a problem of one's own
    algorithm : a name that `fbo-flower algorithms` lists
    num_agents : None: as many as the problem has
    num_rounds : the first is the initial design; None: until the algorithm is finished, 25
        for those that never are
    seed : of everything; the same seed gives the same trials, bit for bit, on every engine
    engine : "ray", "inline" or "flower"
    options : the algorithm's
    problem_options : the problem's; None, as num_agents, with a problem that was made already
    out : directory for the study's files, written also when the run is interrupted
    label : name of this run in tables and pictures
    fraction : share of agents that get a task in a round
    prior_rounds, prior_algorithm : let the agents tune for themselves before the study begins. With a
        list of `targets` the targets start from nothing and only the others hold observations
    prior : a study whose trials the agents hold before this one begins, instead of `prior_rounds`; or
        agent -> `(points (n, D), values (n,))`
    site_options : of every site, for an algorithm with roles: what operators set in `node_config` on devices,
        see `clients.site_options`
    on_round : called after every round
    on_study : called with the study once the run has ended, also when it was interrupted or failed
    engine_options : of the engine "ray": `num_workers`, `address` of a cluster, `timeout` of one message, see
        `RayGrid`
    journals : directory for the journals of the study and of every agent, so that a run that dies can be
        resumed; it costs some milliseconds per agent and round
    resume : go on where the study in `journals` was cut off; what it holds is not evaluated again
    warm_start : directory of an earlier study with this algorithm; this one starts from its messages
    messages : directory whose folder `messages` gets those that this study's server has; None: `out`

    Returns
    -------
    Study
        With regret, where the problem's optimum is known.

    Raises
    ------
    ConfigError
        If a setting, option, problem, algorithm or engine is unknown or out of bounds.
    JournalError
        If the study in `journals` had other settings.
    KeyboardInterrupt
        After Ctrl-C, once the files of what was done are written.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    if num_rounds is not None:
        check_number("num_rounds", num_rounds, 1, integer=True)
    check_number("prior_rounds", prior_rounds, 0, integer=True)
    if isinstance(problem, str):
        problem = make_problem(problem, num_agents, seed, problem_options or {})
    elif num_agents is not None or problem_options:
        raise ConfigError("num_agents, problem_options: expected None with a problem that was made already")
    problem.check_data()
    options = dict(options or {})
    made = make_algorithm(algorithm, options)
    core = unwrapped(made)
    targets = core.targets if isinstance(core, HasTargets) else "all"
    without: tuple[str, ...] = () if targets == "all" else tuple(targets)
    check_roles(problem, made, site_options)
    if roles(made) and (prior is not None or prior_rounds):
        raise ConfigError(f"prior: expected none with {algorithm}, whose sites begin with nothing")
    settings: dict[str, Any] = options  # their types are the algorithm's to check
    strategy = STRATEGIES[algorithm](
        num_agents=problem.num_agents,
        seed=seed,
        fraction=fraction,
        label=label,
        on_round=on_round,
        **settings,
    )
    directory = None if out is None else writable_directory(out)
    if prior is None and prior_rounds > 0:
        earlier = None if journals is None else Path(journals) / "prior"
        prior = prior_study(problem, prior_algorithm, prior_rounds, seed, engine, earlier, resume)
    held: Prior = observations(prior, problem, without) if isinstance(prior, Study) else prior or {}
    if roles(made) and directory is not None:
        site_options = {"models": str(directory / "models"), **(site_options or {})}
    agents, book = (None, None) if journals is None else _journals(journals)
    app = problem_app(problem, made, seed, held, site_options, agents)
    prior_trials = {agent: len(values) for agent, (_, values) in held.items()}
    try:
        start = partial(
            strategy.start, num_rounds=num_rounds, journal=book, resume=resume, warm_start=warm_start
        )
        _ENGINES[engine](strategy, start, app, problem.num_agents, dict(engine_options or {}))
    finally:
        if strategy.study is not None:
            study = on_problem(strategy.study, problem, engine=engine, prior_trials=prior_trials)
            if directory is not None:
                study.save(directory)
            _save_messages(strategy, messages if messages is not None else directory, label or algorithm)
            if on_study is not None:
                on_study(study)
    return study


def _save_messages(strategy: TuningStrategy, directory: str | os.PathLike[str] | None, label: str) -> None:
    kept = None if directory is None else strategy.export_messages()
    if kept is not None and directory is not None:
        kept.save(Path(directory), label)


def on_problem(study: Study, problem: Problem, **description: object) -> Study:
    """Return the study of one run with what its strategy did not know: the problem, and regret."""
    (run,) = study.settings["runs"]
    known: dict[str, Any] = {
        "problem": problem.name,
        "problem_options": {name: getattr(problem, name) for name in problem.options()},
        "metric": problem.metric,
    }
    if len(study.models):
        volumes = selections(study)[0].volumes
        known["hypervolume"] = {name: v if np.isfinite(v) else None for name, v in volumes.items()}
    settings = {**study.settings, "runs": [{**run, **known, **description}]}
    study = Study(
        settings,
        study.trials,
        study.rounds,
        recommendations=study.recommendations,
        models=study.models,
        judgements=study.judgements,
    )
    return with_regret(study, problem)


def prior_study(
    problem: Problem,
    algorithm: str,
    num_rounds: int,
    seed: int,
    engine: str,
    journals: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> Study:
    """Let the agents tune before a study with this seed begins; the draws are not those of the study."""
    own_seed = int(np.random.SeedSequence([seed, 0x70726965]).generate_state(1)[0])
    return simulate(problem, algorithm, None, num_rounds, own_seed, engine, journals=journals, resume=resume)


def _journals(directory: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return the directory of the agents' journals, and the study's journal."""
    path = writable_directory(directory)
    return path / "agents", path / "study.db"


def observations(study: Study, problem: Problem, without: tuple[str, ...] = ()) -> Prior:
    """Return what each agent observed in `study`, as points `(n, D)` and values `(n,)`."""
    held: dict[str, tuple[Any, Any]] = {}
    trials = study.trials
    succeeded = np.isfinite(trials["value"])
    for agent in dict.fromkeys(trials["agent"].tolist()):
        rows = (trials["agent"] == agent) & succeeded
        if agent not in without and rows.any():
            points = np.array([problem.space.encode(config) for config in trials["config"][rows]])
            held[agent] = (points, np.asarray(trials["value"][rows], dtype=np.float64))
    return held


# -- engines -----------------------------------------------------------------------------------


_Options = dict[str, Any]
_Start = Callable[[Grid], Study]


def _run_inline(
    strategy: TuningStrategy, start: _Start, app: ClientApp, num_agents: int, options: _Options
) -> None:
    _expect_options("inline", options, ())
    start(InProcessGrid(app, num_agents))


def _run_ray(
    strategy: TuningStrategy, start: _Start, app: ClientApp, num_agents: int, options: _Options
) -> None:
    _expect_options("ray", options, ("num_workers", "address", "timeout"))
    with RayGrid(app, num_agents, **options) as grid:
        start(grid)


def _expect_options(engine: str, options: _Options, known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            listing = ", ".join(known) or "none"
            raise ConfigError(f"engine_options: {engine} has no option {name!r}; expected {listing}")


def _run_flower(
    strategy: TuningStrategy, start: _Start, app: ClientApp, num_agents: int, options: _Options
) -> None:
    """Run on Flower's simulation engine, which starts the ServerApp in a thread of its own."""
    _expect_options("flower", options, ())
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray  # noqa: F401  # Flower ends the process without it
        from flwr.simulation import run_simulation
    except ImportError as error:
        raise ConfigError("engine: flower needs Ray; install fbo-flower[simulation] or use inline") from error
    server = ServerApp()
    failure: list[BaseException] = []
    idle = threading.Event()
    idle.set()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        idle.clear()
        try:
            start(grid)
        except (FBOError, Stopped) as error:  # Flower would wrap it in a traceback of its own
            failure.append(error)
        finally:
            idle.set()

    resources: Any = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"log_to_driver": False},
    }
    with _interruptible(strategy) as interrupted:
        try:
            run_simulation(server, app, num_agents, backend_config=resources)
        except BaseException:
            strategy.stop()
            idle.wait(timeout=10.0)  # the strategy writes its study down before it ends
            raise
    if interrupted.is_set():
        raise KeyboardInterrupt
    if failure:
        raise failure[0]


@contextmanager
def _interruptible(strategy: TuningStrategy) -> Iterator[threading.Event]:
    """Let Ctrl-C stop the strategy, after which the engine ends in order; a second one breaks off.

    Flower's engine would wait for the ServerApp to finish all its rounds.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # signals arrive elsewhere
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        interrupted.set()
        strategy.stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


_ENGINES: dict[str, Callable[[TuningStrategy, _Start, ClientApp, int, _Options], None]] = {
    "ray": _run_ray,
    "inline": _run_inline,
    "flower": _run_flower,
}
