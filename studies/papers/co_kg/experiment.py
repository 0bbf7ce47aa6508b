"""Run Co-KG in the paper's settings, with all comparators and random search [Zhan2025, section IV].

There are two metrics, both without noise: the value of the configuration that the server would return (the
paper's rule), and that of the best configuration tried, which the paper's curves resemble. A job runs several
frameworks on one problem with one seed. They are paired: all frameworks of Co-KG start from the same points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems import Problem, make_problem
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, has, job, load, open_directory, run_jobs
from studies.papers.co_kg import report as tables
from studies.papers.co_kg.report import metrics_of
from studies.papers.co_kg.special import (
    MESH,
    NUM_AGENTS,
    NUM_INITIAL,
    differences,
    odd_agents,
    privacy,
    server_time,
)
from studies.problems import CaliforniaMLP
from studies.report import shown, table, write_results

Options = Mapping[str, Any]

RANDOM = "random"
FRAMEWORKS: dict[str, Options] = {
    "co-kg": {},
    "co-ei": {"acquisition": "ei"},
    "co-es": {"acquisition": "es"},
    "barycenter-qkg": {"framework": "barycenter-qkg"},
    "no-collaboration": {"framework": "no-collaboration"},
    "data-communication": {"framework": "data-communication"},
    "product": {"central": "product"},
    "product, beta 0": {"central": "product", "beta": 0.0},
    RANDOM: {},
}
KNOWN = {"noise_variance": 0.02}
FUNCTIONS: dict[str, tuple[str, Options]] = {
    "f1": ("f1", {}),
    "rosenbrock, log": ("rosenbrock", {"transform": "log"}),
    "rosenbrock, known noise": ("rosenbrock", KNOWN),
    "rosenbrock": ("rosenbrock", {}),
    "f1, known noise": ("f1", KNOWN),
}
FEWER = ("rosenbrock", "f1, known noise")  # settings with fewer frameworks
SWEPT = ("f1", "rosenbrock, log")
SWEPT_FRAMEWORKS = ("co-kg", "data-communication")
FEWER_FRAMEWORKS = ("co-kg", "barycenter-qkg", "no-collaboration", "data-communication", RANDOM)
BETAS = ("constant", "exp")  # "log" is the default
NETWORKS = ("breast-cancer-mlp", "california-mlp")
DRAWN = ("f1", "rosenbrock, known noise", "rosenbrock, log")
NETWORK_FRAMEWORKS = (
    "co-kg", "barycenter-qkg", "no-collaboration", "data-communication", "product", RANDOM,
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The size of the experiment.

    Parameters
    ----------
    num_rounds, num_network_rounds : rounds after the warm-up
    num_f1_seeds, num_seeds : repetitions on `f1`, and on the other functions in the first part
    num_swept_seeds : repetitions with other `beta`, mesh or number of agents
    num_network_seeds, num_epochs : repetitions on the networks; epochs, None: the problem's default
    num_odd_seeds, num_private_seeds : repetitions of the runs with an odd agent, and of the attack
    meshes, agents : other numbers of points per axis, other numbers of agents
    timed : meshes for which the server is timed
    num_draws : number of draws of the central acquisition
    """

    num_rounds: int = 30
    num_network_rounds: int = 20
    num_f1_seeds: int = 40
    num_seeds: int = 12
    num_swept_seeds: int = 12
    num_network_seeds: int = 12
    num_epochs: int | None = None
    num_odd_seeds: int = 12
    num_private_seeds: int = 12
    meshes: tuple[int, ...] = (10, 30)
    agents: tuple[int, ...] = (2, 8)
    timed: tuple[int, ...] = (10, 20, 30)
    num_draws: int = 64


QUICK = Size(3, 3, 2, 2, 2, 2, 1, 2, 2, (6,), (2,), (8,), 8)


def settings(size: Size) -> dict[str, Any]:
    """Return the settings that identify the experiment's directory, as JSON values."""
    own = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(size).items()}
    return {"experiment": "co-kg", **own}


def has_california() -> bool:
    """Return whether the data of `california-mlp` are available."""
    try:
        CaliforniaMLP(1, 0).check_data()
    except ConfigError:
        return False
    return True


def networks() -> tuple[str, ...]:
    """Return the networks whose data are available."""
    return NETWORKS if has_california() else NETWORKS[:1]


def num_seeds(size: Size, setting: str) -> int:
    """Return the number of seeds of a function."""
    return size.num_f1_seeds if setting == "f1" else size.num_seeds


def frameworks(setting: str) -> tuple[str, ...]:
    """Return the frameworks that are compared on a function."""
    return FEWER_FRAMEWORKS if setting in FEWER else tuple(FRAMEWORKS)


def stages(size: Size) -> dict[str, list[Job]]:
    """Return the jobs by stage, the functions first."""
    common: dict[str, Any] = {"num_rounds": size.num_rounds, "num_draws": size.num_draws}
    sweep: dict[str, Any] = {"meshes": size.meshes, "agents": size.agents, **common}
    trained = {**common, "num_rounds": size.num_network_rounds, "num_epochs": size.num_epochs}
    return {
        "server time": [job(server_time, mesh, **common) for mesh in size.timed],
        "functions": [
            job(run_function, s, seed, **common) for s in FUNCTIONS for seed in range(num_seeds(size, s))
        ],
        "networks": [
            job(run_network, p, seed, **trained) for seed in range(size.num_network_seeds) for p in networks()
        ],
        "odd agents": [job(odd_agents, seed, **common) for seed in range(size.num_odd_seeds)],
        "privacy": [job(privacy, seed, **common) for seed in range(size.num_private_seeds)],
        "beta, mesh, agents": [
            job(run_swept, s, seed, **sweep) for seed in range(size.num_swept_seeds) for s in SWEPT
        ],
    }


def swept_label(framework: str, what: str, value: object) -> str:
    """Return the name of a run in the result of a swept job, for example `co-kg, mesh 10`."""
    return f"{framework}, {what} {value}"


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    If the California data are missing, that network is left out, and `results.md` says so.

    Parameters
    ----------
    quick : True: the size `QUICK`, half a minute on one core; False: `Size()`, more than an hour
    """
    size = QUICK if quick else Size()
    path = open_directory(directory, settings(size))
    for stage, jobs in stages(size).items():
        run_jobs(jobs, path, num_workers, on_job, stage)
    return report(path, size)


def report(directory: Path, size: Size) -> list[Path]:
    """Write the tables and pictures from the finished jobs, also if the run was stopped.

    Each part uses its seeds up to the first that is missing; a part with fewer than two seeds is left out.
    """

    def found(number: int, function: Callable[..., Arrays], *row: str) -> list[Arrays]:
        seeds = list(takewhile(partial(has, directory, function, *row), range(number)))
        return [load(directory, function, *row, seed) for seed in seeds] if len(seeds) > 1 else []

    on_functions = {s: r for s in FUNCTIONS if (r := found(num_seeds(size, s), run_function, s))}
    on_networks = {p: r for p in networks() if (r := found(size.num_network_seeds, run_network, p))}
    swept = {s: r for s in SWEPT if (r := found(size.num_swept_seeds, run_swept, s))}
    odd, private = found(size.num_odd_seeds, odd_agents), found(size.num_private_seeds, privacy)
    pictures = [directory / "functions.png", directory / "networks.png"]
    drawn = {s: metrics_of(on_functions[s]) for s in DRAWN if s in on_functions}
    tables.draw(drawn, pictures[0], paired=False)
    tables.draw({p: metrics_of(r) for p, r in on_networks.items()}, pictures[1], paired=True)
    text = [
        f"{NUM_AGENTS} agents, {NUM_INITIAL} points each, then {size.num_rounds} rounds with one "
        f"({size.num_network_rounds} for the networks); a mesh of {MESH} x {MESH} unless another "
        "is stated. `±` is the standard error over seeds; for differences, that of the paired difference.\n",
        "## Functions\n",
        *(tables.function_table(s, r) for s, r in on_functions.items()),
        "## Acceptance\n",
        tables.acceptance(on_functions),
        "## Beta, mesh, number of agents\n",
        *(swept_table(s, on_functions[s], r, size) for s, r in swept.items()),
        "## Networks\n",
        *(tables.network_table(p, r) for p, r in on_networks.items()),
        "" if has_california() else "The California data are missing; that network is left out.\n",
        "## Server time\n",
        tables.time_table({mesh: load(directory, server_time, mesh) for mesh in size.timed}),
        "## One odd agent\n",
        tables.odd_table(odd) if odd else "",
        "## Noise on the reported means\n",
        tables.private_table(private) if private else "",
    ]
    return [write_results(directory, text), *pictures]


def swept_table(setting: str, usual: Sequence[Arrays], runs: Sequence[Arrays], size: Size) -> str:
    """Return a table of both metrics at the end under other settings.

    Parameters
    ----------
    usual : runs of the usual setting; those with the same seeds are compared
    """
    swept = metrics_of(runs)
    same = {m: {n: c[: len(runs)] for n, c in found.items()} for m, found in metrics_of(usual).items()}
    rows = []

    def row(varied: str, framework: str, label: str, metrics: Mapping[str, Any]) -> None:
        finals = [shown(metrics[m][label][:, -1]) for m in ("recommended", "best")]
        rows.append([varied, framework, *finals])

    row("beta log(2t + 1)", "co-kg", "co-kg", same)
    for beta, name in (("constant", "beta 1"), ("exp", "beta exp(-t/2)")):
        row(name, "co-kg", swept_label("co-kg", "beta", beta), swept)
    for what, values, default in (("mesh", size.meshes, MESH), ("N", size.agents, NUM_AGENTS)):
        for value in sorted({*values, default}):
            for name in SWEPT_FRAMEWORKS:
                known = value == default
                label = name if known else swept_label(name, what, value)
                row(f"{what} {value}", name, label, same if known else swept)
    head = ["setting", "framework", "returned", "best tried"]
    return f"### {setting}, {len(runs)} seeds, at the end\n\n" + table(head, rows)


# -- jobs --------------------------------------------------------------------------------------


def run_function(setting: str, seed: int, num_rounds: int, num_draws: int) -> Arrays:
    """Run all frameworks on a function; return differences as `name/recommended` and `name/best`."""
    problem, shared = FUNCTIONS[setting]
    found: Arrays = {}
    for name in frameworks(setting):
        made = make_problem(problem, NUM_AGENTS, seed, {})
        found |= run_one(name, name, made, seed, num_rounds, {**shared, "num_draws": num_draws})
    return found


def run_swept(
    setting: str, seed: int, num_rounds: int, num_draws: int, meshes: Sequence[int], agents: Sequence[int]
) -> Arrays:
    """Run other `beta` sequences, meshes and numbers of agents, changing one at a time."""
    problem, shared = FUNCTIONS[setting]
    shared = {**shared, "num_draws": num_draws}
    four = make_problem(problem, NUM_AGENTS, seed, {})
    found: Arrays = {}
    for beta in BETAS:
        label = swept_label("co-kg", "beta", beta)
        found |= run_one(label, "co-kg", four, seed, num_rounds, {**shared, "beta": beta})
    for name in SWEPT_FRAMEWORKS:
        for mesh in meshes:
            label = swept_label(name, "mesh", mesh)
            found |= run_one(label, name, four, seed, num_rounds, {**shared, "mesh": mesh})
        for n in agents:
            made = make_problem(problem, n, seed, {})
            found |= run_one(swept_label(name, "N", n), name, made, seed, num_rounds, shared)
    return found


def run_network(problem: str, seed: int, num_rounds: int, num_draws: int, num_epochs: int | None) -> Arrays:
    """Run the frameworks on a network, whose split of rows depends on the seed; return losses."""
    options = {} if num_epochs is None else {"num_epochs": num_epochs}
    made = make_problem(problem, NUM_AGENTS, seed, options)
    found: Arrays = {}
    for name in NETWORK_FRAMEWORKS:
        found |= run_one(name, name, made, seed, num_rounds, {"num_draws": num_draws})
    return found


def run_one(
    label: str, framework: str, problem: Problem, seed: int, num_rounds: int, shared: Options
) -> Arrays:
    """Run one framework: the warm-up, then `num_rounds` rounds with one trial per agent.

    Returns
    -------
    `label/recommended`, `label/best` : `(num_rounds + 1,)`, noiseless differences to the optimum, of the
        configuration that the server would return after each round and of the best one tried so far; for
        networks, their losses. NaN after the first round, which recommends nothing.
    """
    rounds = num_rounds + 1
    options: Options = {"num_initial": NUM_INITIAL}
    if framework != RANDOM:
        options = {"mesh": MESH, **options, **shared, **FRAMEWORKS[framework]}
    algorithm = RANDOM if framework == RANDOM else "co-kg"
    study = runs.run(problem, algorithm, options, rounds, seed)
    recommended, best = differences(study, problem, rounds)
    return {f"{label}/recommended": recommended, f"{label}/best": best}
