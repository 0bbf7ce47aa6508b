"""The work of the Co-KG experiment: its size, its frameworks and its jobs.

A job runs several frameworks on one problem with one seed. They are paired: all frameworks of Co-KG start
from the same points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fbo_flower.algorithms import make_algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import Problem, make_problem
from studies.jobs import Arrays, Job
from studies.papers.co_kg.odd_agents import odd_agents
from studies.papers.co_kg.runs import MESH, NUM_AGENTS, NUM_INITIAL, differences
from studies.papers.co_kg.server import privacy, server_time
from studies.problems import CaliforniaMLP

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
    common = {"num_rounds": size.num_rounds, "num_draws": size.num_draws}
    functions = [
        Job(job_name(s, seed), run_function, {**common, "setting": s, "seed": seed})
        for s in FUNCTIONS
        for seed in range(num_seeds(size, s))
    ]
    swept = [
        Job(
            swept_name(s, seed),
            run_swept,
            {**common, "setting": s, "seed": seed, "meshes": size.meshes, "agents": size.agents},
        )
        for seed in range(size.num_swept_seeds)
        for s in SWEPT
    ]
    trained = [
        Job(
            job_name(p, seed),
            run_network,
            {
                "num_rounds": size.num_network_rounds,
                "num_draws": size.num_draws,
                "problem": p,
                "num_epochs": size.num_epochs,
                "seed": seed,
            },
        )
        for seed in range(size.num_network_seeds)
        for p in networks()
    ]
    odd = [Job(f"odd-{seed}", odd_agents, {**common, "seed": seed}) for seed in range(size.num_odd_seeds)]
    private = [
        Job(f"private-{seed}", privacy, {**common, "seed": seed}) for seed in range(size.num_private_seeds)
    ]
    timed = [Job(f"time-{mesh}", server_time, {**common, "mesh": mesh}) for mesh in size.timed]
    return {
        "server time": timed,
        "functions": functions,
        "networks": trained,
        "odd agents": odd,
        "privacy": private,
        "beta, mesh, agents": swept,
    }


def job_name(setting: str, seed: int) -> str:
    """Return the name of a job."""
    return f"{setting.replace(', ', '-').replace(' ', '-')}-{seed}"


def swept_name(setting: str, seed: int) -> str:
    """Return the name of a job."""
    return f"swept-{job_name(setting, seed)}"


def swept_label(framework: str, what: str, value: object) -> str:
    """Return the name of a run in the result of a swept job, for example `co-kg, mesh 10`."""
    return f"{framework}, {what} {value}"


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
    if framework == RANDOM:
        options: Options = {"num_initial": NUM_INITIAL}
        study = simulate(
            problem, algorithm=make_algorithm(RANDOM, options), num_rounds=rounds, seed=seed, engine="inline"
        )
    else:
        options = {"mesh": MESH, "num_initial": NUM_INITIAL, **shared, **FRAMEWORKS[framework]}
        study = simulate(
            problem, algorithm=make_algorithm("co-kg", options), num_rounds=rounds, seed=seed, engine="inline"
        )
    recommended, best = differences(study, problem, rounds)
    return {f"{label}/recommended": recommended, f"{label}/best": best}
