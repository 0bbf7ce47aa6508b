"""Measure speed: a function for each table of `docs/results/benchmarks.md` and of the pages that quote one.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.speed NAME [--help]

`make bench` runs `whole-runs` and `libraries`. Rounds are measured in processes of their own.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np
import typer
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.aggregation import bures
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import hct, partition
from fbo_flower.numerics.optim.functions import sample_paths
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.optim.sobol import mesh, sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp, pivots
from fbo_flower.numerics.threads import single_thread
from fbo_flower.secure import keys
from fbo_flower.secure.rounds import BOX_BYTES
from fbo_flower.simulation import InProcessGrid, Start, simulate
from fbo_flower.simulation.problems import Config, Himmelblau, Problem, number
from fbo_flower.simulation.ray_grid import RayGrid
from fbo_flower.strategies.exchange import send_and_receive
from studies.attacks.equivocation import Group, exchanged, total
from studies.experiment import head, row, run
from studies.papers.local_peers import fitted_process

ROOT = Path(__file__).parents[2]
PACKAGES = ("flwr", "ray", "numpy", "scipy", "scikit-learn", "PyXAB", "POT", "botorch", "torch", "optuna")

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


def say(*cells: object) -> None:
    """Print a line of a Markdown table at once."""
    print(row(cells), flush=True)


# -- rounds, in a process of their own ---------------------------------------------------------------

PRIOR = 20  # observations that an agent holds
NUM_FLOATS = 100  # that the app that does nothing gets and returns
SQUARE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
ENVIRONMENT = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 would let other processes go first
    "PYTHONPATH": str(ROOT),
}


@dataclass(frozen=True)
class Hill(Problem):
    """A hill whose top is another one for each agent; a value takes some microseconds."""

    name: ClassVar[str] = "hill"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = 20

    @property
    def space(self) -> SearchSpace:
        return SQUARE

    def true_value(self, config: Config, partition: int) -> float:
        x, y = number(config, "x"), number(config, "y")
        return -((x - partition / self.num_agents) ** 2) - (y - 0.3) ** 2

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def repeated(self, config: Config, context: ObjectiveContext, repeats: int) -> Array:
        """Return several evaluations at once, which bandits ask for."""
        noise = context.rng.uniform(-0.05, 0.05, repeats)
        return np.asarray(self.true_value(config, context.partition) + noise)

    def prior(self, size: int) -> dict[str, tuple[Array, Array]]:
        """Return the agents' earlier observations: agent -> points `(n, 2)` and values `(n,)`."""
        held = {}
        for agent in range(self.num_agents if size else 0):
            rng = generator(self.seed, "hill", agent)
            points = rng.random((size, 2))
            values = [self.true_value(self.space.decode(point), agent) for point in points]
            held[str(agent)] = points, np.array(values) + 0.05 * rng.standard_normal(size)
        return held


def used(memory: bool = False) -> dict[str, float]:
    """Return CPU seconds so far of this process ("grid"), of Ray's workers and of Ray, and bytes of all."""
    found = {"grid": time.process_time(), "workers": 0.0, "ray": 0.0}
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # of Linux
    found["bytes"] = 1024.0 * int(status.partition("VmHWM:")[2].split()[0])
    psutil: Any = sys.modules.get("psutil")  # Ray has imported its own
    for process in psutil.Process().children(recursive=True) if psutil else ():
        with contextlib.suppress(psutil.Error):  # it has ended
            times = process.cpu_times()
            who = "workers" if "ray::_Worker" in " ".join(process.cmdline()) else "ray"
            found[who] += times.user + times.system
            found["bytes"] += process.memory_full_info().pss if memory else 0.0
    return found


def cell(
    what: str, engine: str, agents: int, rounds: int, prior: int = 0, options: dict[str, Any] | None = None
) -> None:
    """Run rounds, and print their seconds and what had been used after each as JSON."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    seconds, spent = list[float](), [used()]
    if what != "idle":
        problem = Hill(agents, 0)

        def note(progress: Any) -> None:
            print(f"round {progress.server_round}: {progress.seconds:.2f} s", file=sys.stderr, flush=True)
            seconds.append(progress.seconds)
            spent.append(used(progress.server_round == rounds))

        simulate(
            problem, algorithm=make_algorithm(what, options or {}), num_rounds=rounds, engine=engine,
            start=Start(observations=problem.prior(prior)), callbacks=[note],
        )  # fmt: skip
    else:

        def exchange(grid: Grid) -> None:
            nodes = sorted(grid.get_node_ids())
            for number in range(1, rounds + 1):
                begin = time.perf_counter()
                messages = (idle_message(node, number) for node in nodes)  # made while the first are answered
                replies = send_and_receive(grid, messages, 3600.0, threading.Event())
                if len(replies) < agents or any(reply.has_error() for reply in replies.values()):
                    raise SystemExit(f"{len(replies)} of {agents} nodes answered, or some with an error")
                seconds.append(time.perf_counter() - begin)
                spent.append(used(number == rounds))

        on_engine(engine, agents, exchange)
    print(json.dumps({"seconds": seconds, "used": spent}))


def idle_message(node: int, server_round: int) -> Message:
    """Return a message of an array."""
    arrays = ArrayRecord([np.full(NUM_FLOATS, float(node % 1000))])
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"round": server_round})})
    return Message(content, node, MessageType.TRAIN, group_id=str(server_round))


def on_engine(engine: str, agents: int, work: Callable[[Grid], None]) -> None:
    """Work on a grid of agents whose app returns what it receives."""
    idle = ClientApp()

    @idle.train()
    def train(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    if engine == "inline":
        work(InProcessGrid(idle, agents))
    elif engine == "ray":
        with RayGrid(idle, agents) as grid:
            work(grid)
    else:
        from flwr.simulation import run_simulation

        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            while len(list(grid.get_node_ids())) < agents:
                time.sleep(0.1)
            work(grid)

        resources: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        resources["init_args"] = {"log_to_driver": False}
        run_simulation(server, idle, agents, backend_config=resources)


def measured(limit: float | None = None, **asked: Any) -> dict[str, Any] | None:
    """Return the seconds of rounds and what they have used; None if they take longer than the limit."""
    script = f"from studies.benchmarks.speed import cell; cell(**{asked!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # not in the checkout: Ray's workers would import the package from the working directory
        cwd=Path(__file__).parent, env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=limit)
    except BaseException as error:  # Ctrl-C, too: the processes of a session of its own would go on
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        raise SystemExit(errors)
    found: dict[str, Any] = json.loads(lines[-1])
    return found


COUNTS = {100: 5, 1000: 4, 5000: 3, 10_000: 3}  # agents -> rounds
ENGINES = ("ray", "inline", "flower")


@app.command()
def whole_runs(quick: bool = False, limit: float = 150.0) -> None:
    """Measure seconds per round and memory, by engine and number of agents.

    Seconds are the median of the rounds after the first. An engine that takes longer than the limit (seconds)
    gets no larger federations. `--quick` takes 20 agents.
    """
    print(machine())
    columns = ["agents", *(f"{engine}, s" for engine in ENGINES), *(f"{engine}, GB" for engine in ENGINES)]
    for what, title in (("idle", "App that does nothing"), ("fts", "FTS, free objective")):
        print(f"\n### {title}\n\n{head(columns)}", flush=True)
        late = set[str]()
        for agents, most in ({20: 2} if quick else COUNTS).items():
            seconds, memory = dict.fromkeys(ENGINES, "-"), dict.fromkeys(ENGINES, "-")
            for engine in (e for e in ENGINES if e not in late):
                rounds = min(most, 2 if engine == "flower" else 3 if what == "fts" else most)
                prior = PRIOR if what == "fts" else 0
                found = measured(limit, what=what, engine=engine, agents=agents, rounds=rounds, prior=prior)
                if found is None:
                    late.add(engine)
                    seconds[engine] = f"over {limit:g} s"
                else:
                    seconds[engine] = f"{np.median(found['seconds'][1:]):.2f}"
                    memory[engine] = f"{found['used'][-1]['bytes'] / 1e9:.2f}"
            say(agents, *seconds.values(), *memory.values())


def machine() -> str:
    """Return a description of the machine, and the versions of what is measured."""
    versions = []
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.platform()}, {date.today()}; {python}; {', '.join(versions)}."


COHORTS: dict[str, dict[str, Any]] = {
    "no-op": {"what": "idle"},
    **{name: {"what": name, "prior": PRIOR} for name in ("random", "ts", "fts", "ei", "rgpe", "taf")},
    "fed-ei": {"what": "fed-ei", "prior": PRIOR, "options": {"secure_sums": 0}},
    "fed-ei, secure sums": {"what": "fed-ei", "prior": PRIOR},
    "pf-pne": {"what": "pf-pne", "options": {"budget": 400, "max_evaluations_per_round": 100}},
}


@app.command()
def cohort_rounds(
    only: list[str] = [*COHORTS],  # noqa: B006  # read only
    agents: int = 1000, rounds: int = 3, repeats: int = 2, engine: str = "inline",
) -> None:  # fmt: skip
    """Measure the CPU time of an agent's round when all agents are in one process, by algorithm.

    Everything counts: the agents' steps and the server's work (engine `inline`, an objective that costs
    nothing). With `--engine ray` the workers and Ray's own processes count, too; the last columns are the
    shares. CPU time hardly depends on what else the machine does, unless it is very busy; the smallest round
    of a run counts. The first is left out, of `fed-ei` the first four: random trials, an exchange without a
    trial, and two rounds that repeat others' rows.
    """
    print(head(["algorithm", "agents", "CPU ms per agent and round", "GB", "grid", "workers", "Ray"]))
    for name in only:
        left_out = 4 if name.startswith("fed-ei") else 1
        best, memory = list[list[float]](), 0.0
        for _ in range(repeats):
            found = measured(engine=engine, agents=agents, rounds=rounds + left_out, **COHORTS[name])
            assert found is not None, "it has no limit"
            memory = found["used"][-1]["bytes"] / 1e9
            for a, b in pairwise(found["used"][left_out:]):
                best.append([1e3 * (b[who] - a[who]) / agents for who in ("grid", "workers", "ray")])
        least = min(best, key=sum)
        say(name, agents, f"{sum(least):.2f}", f"{memory:.2f}", *(f"{part:.2f}" for part in least))


# -- parts that other libraries have too -------------------------------------------------------------

NUM_POINTS, AGENTS, SIDE, OBSERVATIONS = 50, 10, 20, 20
HYPERPARAMETERS = gp.Hyperparameters("rbf", np.array([0.2, 0.2]), 1.0, 0.02)
POT_TOLERANCE = 1e-5  # relative to the covariance; POT's own is absolute
Work = Callable[[int], object]  # of a repetition


@app.command()
def libraries(quick: bool = False) -> None:
    """Measure CPU milliseconds on one thread of work that other libraries do too.

    A library that is not installed (`pip install fbo-flower[bench]`) is left out, and named.
    """
    some, few, pulls = (2, 1, 500) if quick else (10, 3, 4000)
    dense, by_pivots = posteriors()
    groups: dict[str, dict[str, tuple[int, Work]]] = {
        "Thompson sampling: fit, draw, maximise; 50 points": {
            "fbo-flower": (some, thompson),
            "Optuna TPESampler": (some, partial(optuna_suggests, "TPESampler")),
            "Optuna GPSampler": (some, partial(optuna_suggests, "GPSampler")),
            "BoTorch": (some, botorch_thompson),
        },
        f"HCT: {pulls} pulls of Himmelblau, the same ones": {
            "fbo-flower": (few, partial(hct_regret, pulls, True)),
            "PyXAB": (few, partial(hct_regret, pulls, False)),
        },
        "Wasserstein barycenter: 10 posteriors on 400 points": {
            "fbo-flower, from pivots": (few, by_pivots),
            "fbo-flower, dense": (few, lambda number: bures.barycenter(dense, tolerance=1e-6)),
            **({} if quick else {"POT": (1, partial(pot_barycenter, dense))}),
        },
    }
    print(head(["work", "library", "CPU ms"]))
    for group, makers in groups.items():
        for who, (repeats, work) in makers.items():
            try:
                with single_thread(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    if repeats > 1:
                        work(0)  # imports and fills caches before the measurement
                    begin = time.process_time()
                    for number in range(repeats):
                        work(number)
                    spent = 1e3 * (time.process_time() - begin) / repeats
            except ImportError as error:
                print(f"# {who} is left out: {error}", flush=True)
            else:
                say(group, who, f"{spent:.3g}")


def observations(seed: int) -> tuple[Array, Array]:
    """Return points `(n, 2)` and values `(n,)` of a function with two modes, roughly standardised."""
    rng = np.random.default_rng(seed)
    x = rng.random((NUM_POINTS, 2))
    y = np.square(x).sum(axis=1) + np.sin(2 * np.pi * x[:, 0]) + np.cos(2 * np.pi * x[:, 1])
    return x, (y - 0.67) / 1.1 + 0.1 * rng.standard_normal(NUM_POINTS)


def thompson(number: int) -> object:
    """Fit, draw and maximise with our own parts."""
    x, y = observations(number)
    y, rng = (y - y.mean()) / y.std(), generator(number, "peer")
    fitted = fitting.fit_one(x, y, "rbf")
    (path,) = sample_paths(x[None], y[None], [fitted], 256, [rng])
    return maximise([path], sobol(512, 2, rng)[None], np.arange(2))


def torch_with_one_thread(seed: int) -> Any:
    """Return the module torch."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(seed)
    return torch


def botorch_thompson(number: int) -> object:
    """Do the same with BoTorch."""
    torch = torch_with_one_thread(number)
    from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
    from botorch.optim import optimize_acqf

    x, y = observations(number)
    model = fitted_process(x, (y - y.mean()) / y.std())
    square = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return optimize_acqf(PathwiseThompsonSampling(model), bounds=square, q=1, num_restarts=4, raw_samples=512)


def optuna_suggests(sampler: str, number: int) -> object:
    """Return a suggestion of one of Optuna's samplers after the same observations."""
    import optuna

    if sampler == "GPSampler":
        torch_with_one_thread(number)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(2)}
    made = getattr(optuna.samplers, sampler)(seed=number, n_startup_trials=0)
    study = optuna.create_study(direction="maximize", sampler=made)
    for x, y in zip(*observations(number), strict=True):
        params = {f"x{i}": float(x[i]) for i in range(2)}
        study.add_trial(optuna.create_trial(params=params, distributions=axes, value=float(y)))
    return study.ask(axes)


def hct_regret(pulls: int, ours: bool, number: int) -> float:
    """Pull Himmelblau with HCT; return the regret, which is the same for both libraries."""
    problem = Himmelblau(1, 0)
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, pulls)
    known: dict[tuple[float, ...], float] = {}

    def value(point: Array) -> float:
        key = tuple(point)
        if key not in known:
            known[key] = float(problem.values(np.array([point]), 0)[0])
        return known[key]

    if ours:
        tree, values = hct.Tree(hct.HCTOptions(problem.dimension)), np.empty(pulls)
        for t, e in enumerate(noise.tolist()):
            cell = tree.select()
            centre = partition.centre(tree.depth[cell], [tree.index[cell]], problem.dimension)[0]
            values[t] = value(centre)
            tree.learn(cell, values[t] + e)
    else:
        algorithm, values = pyxab_hct(problem.dimension), np.empty(pulls)
        for t, e in enumerate(noise.tolist()):
            values[t] = value(algorithm.pull(t + 1))
            algorithm.receive_reward(t + 1, values[t] + e)
    return float((problem.optimum(0) - values).sum())


def pyxab_hct(dim: int) -> Any:
    """Return PyXAB's HCT, which splits a random axis and drops subtrees, made to pull what ours pulls."""
    from PyXAB.algos.HCT import HCT  # type: ignore[import-not-found]  # optional, without types
    from PyXAB.partition.BinaryPartition import BinaryPartition  # type: ignore[import-not-found]

    class CyclicPartition(BinaryPartition):  # type: ignore[misc]  # PyXAB has no types
        def make_children(self, parent: Any, newlayer: bool = False) -> None:
            axis = parent.get_depth() % dim
            children = []
            for j in (0, 1):
                domain = copy.deepcopy(parent.get_domain())
                low, high = domain[axis]
                domain[axis] = [(low + high) / 2, high] if j else [low, (low + high) / 2]
                depth, index = parent.get_depth() + 1, 2 * parent.get_index() - 1 + j
                children.append(self.node(depth=depth, index=index, parent=parent, domain=domain))
            parent.update_children(children)
            if newlayer:
                self.node_list.append(list(children))  # a copy, because it grows
                self.depth += 1
            else:
                self.node_list[parent.get_depth() + 1] += children

    class LeafOnlyHCT(HCT):  # type: ignore[misc]  # PyXAB has no types
        def expand(self, parent: Any) -> None:
            if parent.get_children() is None:
                super().expand(parent)

    return LeafOnlyHCT(domain=[[0, 1]] * dim, partition=CyclicPartition)


def posteriors() -> tuple[Array, Work]:
    """Return the dense posterior covariances of agents with random observations, and our work on pivots."""
    points, rng = mesh(SIDE, 2, 2**28), np.random.default_rng(0)
    chosen = pivots.choose_pivots(points, HYPERPARAMETERS, 1e-8)
    factor = pivots.pivot_factor(points[chosen.index], HYPERPARAMETERS)
    directions, scale = pivots.principal(chosen.basis)
    dense, whitened = [], []
    for _ in range(AGENTS):
        x = points[rng.integers(0, len(points), OBSERVATIONS)]
        known = gp.posterior(x, np.zeros(len(x)), HYPERPARAMETERS)
        dense.append(known.covariance(points))
        at_pivots = known.covariance(points[chosen.index])
        whitened.append(pivots.whiten(np.zeros(len(chosen.index)), at_pivots, factor)[1])

    def by_pivots(number: int) -> object:
        found = bures.barycenter(scale @ np.array(whitened) @ scale.T, tolerance=1e-6).covariance
        return directions @ found @ directions.T

    return np.array(dense), by_pivots


def pot_barycenter(covariances: Array, number: int) -> object:
    """Return POT's barycenter, with the jitter with which its square roots are not NaN."""
    import ot

    largest = float(np.linalg.eigvalsh(covariances.mean(axis=0))[-1])
    eps = POT_TOLERANCE * float(np.linalg.norm(covariances.mean(axis=0)))
    means, problem = np.zeros(covariances.shape[:2]), covariances + 1e-7 * largest * np.eye(SIDE**2)
    found = ot.gaussian.bures_wasserstein_barycenter(means, problem, eps=eps, num_iter=100)
    assert np.isfinite(found[1]).all()
    return found


# -- the path of a trial ---------------------------------------------------------------------------

STEADY, LAST, OURS = 10, 14, "/fbo_flower/"  # rounds; part of the path of the package's files


@app.command()
def trial_path(only: list[str] = [*ALGORITHMS], every: bool = False) -> None:  # noqa: B006  # read only
    """Count what a trial runs after the tenth round: files, functions, calls and types, and their depth.

    With `--every`, also list every function with its calls per trial.
    """
    trials = 20 * (LAST - STEADY)
    print(head(["algorithm", "files", "functions", "calls", "depth", "types"]))
    for name in only:
        calls, depth, types = traced(name)
        files = {file for file, _ in calls}
        say(name, len(files), len(calls), f"{calls.total() / trials:.0f}", depth, types)
        for (file, function), times in calls.most_common() if every else ():
            print(f"{times / trials:8.2f} {file} {function}")


def hill(config: Mapping[str, Any], centre: int) -> float:
    """Return a value that is largest at a point of the agent's own."""
    return -((config["x"] - centre / 20) ** 2) - (config["y"] - 0.3) ** 2


def traced(algorithm: str) -> tuple[Counter[tuple[str, str]], int, int]:
    """Return the calls by file and function of 20 agents' steady rounds, their depth, and how many types."""
    from greenlet import getcurrent  # type: ignore[import-untyped]  # it has no types

    calls, deepest, types, steady = Counter[tuple[str, str]](), 0, set[type](), False

    def note(progress: Any) -> None:
        nonlocal steady
        steady = STEADY <= progress.server_round < LAST

    def called(frame: FrameType | None, event: str, argument: object) -> None:
        nonlocal deepest
        if not steady or event != "call" or frame is None:
            return
        code = frame.f_code
        if code.co_name == "__init__":  # named tuples have none
            kind = type(frame.f_locals.get("self"))
            types.update({kind} if kind.__module__.startswith("fbo_flower") else ())
        if OURS in code.co_filename:
            calls[code.co_filename.split(OURS)[1], f"{code.co_qualname}:{code.co_firstlineno}"] += 1
            depth, stack = 0, getcurrent()
            while frame is not None:  # an agent's driver has a stack of its own
                depth += OURS in frame.f_code.co_filename
                frame = frame.f_back
                if frame is None and stack.parent is not None:
                    frame, stack = stack.parent.gr_frame, stack.parent
            deepest = max(deepest, depth)

    sys.setprofile(called)
    try:
        run(hill, algorithm, {}, LAST, space=SQUARE, agents=20, callbacks=[note])
    finally:
        sys.setprofile(None)
    return calls, deepest, len(types)


# -- secure sums -----------------------------------------------------------------------------------

LEAST = 3
GROUPS = ((4, 100), (6, 100), (10, 100), (12, 100), (12, 10_000))  # agents, numbers of each


@app.command()
def secure_sums(quick: bool = False) -> None:
    """Measure what secure sums cost an agent and the server: CPU milliseconds of each, bytes of an agent."""
    print(f"One group, sums of at least {LEAST}; a group has at most {keys.largest_group(LEAST)}.\n")
    print(head(["group", "numbers", "agent, ms", "server per agent, ms", "bytes up", "bytes down"]))
    for agents, size in GROUPS[: 2 if quick else None]:
        names = [str(i) for i in range(agents)]
        group, times = Group.draw(names, np.random.default_rng(0), size, LEAST), [time.process_time()]
        done = exchanged(group, 1, "work")
        times.append(time.process_time())
        assert done is not None
        statement = done.after[names[0]].statement()
        identities = {name: keys.identity_of(member.card()) for name, member in group.agents.items()}
        assert all(keys.is_signed(identities[n], statement, done.signatures[n]) for n in names)
        total(group, done)
        times.append(time.process_time())
        up = done.sent["0"].words.nbytes + done.sent["0"].boxes.nbytes + keys.SEED_BYTES
        up += 2 * keys.SIGNATURE_BYTES + len(done.revealed["0"])
        down = (agents - 1) * (keys.CARD_BYTES + 1 + BOX_BYTES + keys.SIGNATURE_BYTES)
        say(agents, size, *(f"{1e3 * (b - a) / agents:.1f}" for a, b in pairwise(times)), up, down)


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    app()
