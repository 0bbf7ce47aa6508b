"""Compare all families of algorithms on the same problems with the same budget.

None of the papers has this comparison. Every agent has 50 evaluations, including the initial design. The
objectives of ten landmine fields, of ten agents with digits and of the four hospitals of `heart-4sites` are
tabulated first (`studies/problems/tabulate.py`), so that evaluations take no time. RFMS needs models, not
values: it runs on the hospitals themselves. One of them trains 50 configurations, two judge them, and the
shipped configuration is looked up in the table.

In five and more dimensions, and where half of the agents are unrelated, only the algorithms of `BROAD` run:
bandits and meshes need more evaluations than these. If Optuna is installed, its samplers run as well, each
agent alone: TPE like any other algorithm, GPSampler, which is slow, for three agents and 20 evaluations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import PREFIX, Problem, make_problem
from fbo_flower.study import Study
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, has, job, load, open_directory, run_jobs
from studies.papers import families_report, optuna_peers
from studies.papers.ei.problems import ShiftedFunction
from studies.problems import tabulate  # the module, which also runs as jobs

BUDGET = 50
TABULATED: dict[str, tuple[str, dict[str, Any]]] = {  # label -> problem and its options
    "landmine-svm": ("landmine-svm", {}),
    "landmine-svm, log": ("landmine-svm", {"scale": "log"}),
    "digits-svm": ("digits-svm", {}),
    "heart-4sites": ("heart-4sites", {}),
}
NUM_POINTS = 400  # points of a table per agent
NUM_INITIAL = 3
# label -> the problem of a number of agents and a seed
RELATED: dict[str, Callable[[int, int], Problem]] = {
    "hartmann-6": lambda n, seed: ShiftedFunction(n, seed, "hartmann-6"),
    "hartmann-6, half mirrored": lambda n, seed: ShiftedFunction(n, seed, "hartmann-6", mirrored=True),
    "rastrigin-10": lambda n, seed: ShiftedFunction(n, seed, "rastrigin-10"),
    "california-trees": lambda n, seed: make_problem("california-trees", n, seed, {}),
}
# label -> algorithm and options
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {"num_initial": NUM_INITIAL}),
    "ts": ("ts", {}),
    "fts": ("fts", {}),
    "fts portfolio": ("fts", {"advice": "portfolio"}),
    "rgpe": ("rgpe", {}),
    "taf": ("taf", {}),
    "co-kg": ("co-kg", {"num_initial": NUM_INITIAL}),
    "co-kg product": ("co-kg", {"num_initial": NUM_INITIAL, "central": "product"}),
    "no collaboration": ("co-kg", {"num_initial": NUM_INITIAL, "framework": "no-collaboration"}),
    "pf-pne": ("pf-pne", {}),
    "pf-pne racing": ("pf-pne", {"variant": "racing"}),
    "fed-pne": ("fed-pne", {}),
    "local-pne": ("local-pne", {}),
    "hct": ("hct", {}),
    "ei": ("ei", {}),
    # the same points as with secure sums, in a tenth of the time
    "fed-ei": ("fed-ei", {"secure_sums": 0, "num_initial": NUM_INITIAL}),
}
BROAD = ("random", "ts", "fts", "fts portfolio", "rgpe", "ei", "fed-ei")
GP_AGENTS, GP_BUDGET = 3, 20
BANDITS = ("pf-pne", "fed-pne", "local-pne", "hct")
RFMS = ("rfms", {"method": "fso"})
COSTS = (*runs.FLOATS, *runs.BYTES)


def problems(quick: bool) -> dict[str, int]:
    """Return the problems with their numbers of agents."""
    if quick:
        return {"f1": 2, "himmelblau": 3, "hartmann-6": 2}
    few = {"f1": 4, "himmelblau": 6, "heart-4sites": 4, "digits-svm": 10, "landmine-svm": 10}
    return {**few, "landmine-svm, log": 10, **dict.fromkeys(RELATED, 10), "california-trees": 8}


def labels(problem: str) -> tuple[str, ...]:
    """Return the labels of the algorithms that run on a problem."""
    return BROAD if problem in RELATED or problem.endswith(", log") else tuple(ALGORITHMS)


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and pictures, and return these files.

    The files are rewritten after every seed, so a stopped run leaves those of its finished seeds.

    Parameters
    ----------
    quick : True: 2 seeds, three functions with 2 and 3 agents, 12 evaluations
    """
    budget, num_seeds = (12, 2) if quick else (BUDGET, 12)
    path = open_directory(directory, {"experiment": "families", "budget": budget})
    tables = {} if quick else make_tables(path, num_workers, on_job)
    files: list[Path] = []
    for seed in range(num_seeds):
        work = jobs(problems(quick), tables, seed, budget)
        run_jobs(work, path, num_workers, on_job, f"seed {seed}")
        found = {problem: loaded(path, problem, seed + 1) for problem in problems(quick)}
        files = families_report.report(path, found, budget)
    return files


def make_tables(directory: Path, num_workers: int, on_job: Callable[[str, int, int], None]) -> dict[str, str]:
    """Tabulate the expensive problems once; return the problem that replaces each."""
    found = {}
    for label, (name, options) in TABULATED.items():
        file = directory / f"{label.replace(', ', '-')}.npz"
        if not file.exists():
            shown = partial(_relabelled, on_job, f"table {label}")
            problem = make_problem(name, problems(False)[label], 0, options)
            tabulate.tabulate(problem, file, NUM_POINTS, 50, num_workers, shown)
        found[label] = f"{PREFIX}{file}"
    return found


def _relabelled(on_job: Callable[[str, int, int], None], label: str, stage: str, done: int, of: int) -> None:
    on_job(label, done, of)


def jobs(chosen: Mapping[str, int], tables: Mapping[str, str], seed: int, budget: int) -> list[Job]:
    """Return the jobs of one seed."""
    peers = optuna_peers.SAMPLERS if optuna_peers.is_installed() else ()
    return [
        job(run_one, name, label, seed, num_agents=count, budget=budget, table=tables.get(name, ""))
        for name, count in chosen.items()
        for label in (*labels(name), *peers, *(("rfms",) if name == "heart-4sites" else ()))
    ]


def loaded(directory: Path, problem: str, num_seeds: int) -> dict[str, Arrays]:
    """Return label -> arrays `(seeds, ...)`, for what has a result of every seed."""
    found = {}
    for label in (*labels(problem), *optuna_peers.SAMPLERS, "rfms"):
        if all(has(directory, run_one, problem, label, seed) for seed in range(num_seeds)):
            every = [load(directory, run_one, problem, label, seed) for seed in range(num_seeds)]
            found[label] = {key: np.stack([arrays[key] for arrays in every]) for key in every[0]}
    return found


# -- jobs --------------------------------------------------------------------------------------


def run_one(problem: str, label: str, seed: int, num_agents: int, budget: int, table: str = "") -> Arrays:
    """Run one algorithm, let one of Optuna's samplers tune for each agent alone, or run RFMS.

    Parameters
    ----------
    table : the tabulated problem that replaces this one; "": there is none

    Returns
    -------
    best, values : `(agents, budget)`, best noiseless value so far, and noiseless value of every evaluation;
        without the agents' own units on related functions, as observed where there is no noise
    optimum : `(agents,)`, NaN where it is unknown
    costs : floats down and up, bytes down and up, per agent; CPU seconds
    """
    if label == "rfms":
        return run_rfms(problem, seed, budget, table)
    if problem in RELATED:
        made = RELATED[problem](num_agents, seed)
    else:
        made = make_problem(table or problem, num_agents, seed, {})
    optimum = np.array([made.optimum(agent) for agent in range(num_agents)], dtype=np.float64)  # None: NaN
    if label in optuna_peers.SAMPLERS:
        if label == "gpsampler":
            num_agents, budget = min(num_agents, GP_AGENTS), min(budget, GP_BUDGET)
        starts = runs.run(made, "ei", {"num_initial": NUM_INITIAL}, 1, seed)
        begin = time.process_time()
        values = np.array([
            optuna_peers.scores(made, agent, runs.evaluations(starts, agent)[0], label, seed, budget)
            for agent in range(num_agents)
        ])  # fmt: skip
        seconds = (time.process_time() - begin) * made.num_agents / num_agents
        sent = np.zeros(len(COSTS))
    else:
        algorithm, options = ALGORITHMS[label]
        rounds: int | None = runs.rounds_of(algorithm, NUM_INITIAL, budget)
        if algorithm in BANDITS:
            rounds, options = None, {**options, "budget": budget, "deterministic": table.startswith(PREFIX)}
        begin = time.process_time()
        study = runs.run(made, algorithm, options, rounds, seed)
        seconds = time.process_time() - begin
        values = np.array([
            noiseless(study, str(agent), best, budget)
            if np.isfinite(best)
            else scored(study, made, agent, budget)
            for agent, best in enumerate(optimum)
        ])  # fmt: skip
        sent = runs.traffic(study, COSTS)
    best_so_far, costs = np.maximum.accumulate(values, axis=1), np.array([*sent, seconds])
    return {"best": best_so_far, "values": values, "optimum": optimum, "costs": costs}


def noiseless(study: Study, agent: str, optimum: float, budget: int) -> Array:
    """Return the noiseless values `(budget,)` of an agent's evaluations, in order.

    A row with several pulls counts once per pull; the last value of an agent that stopped early is repeated.
    """
    mine = study.trials.where(agent=agent)
    order = np.argsort(mine["trial"], kind="stable")
    regret = np.asarray(mine["regret"], dtype=np.float64)[order]
    values = np.repeat(optimum - regret, np.asarray(mine["pulls"], dtype=np.int64)[order])[:budget]
    padded = np.full(budget, values[-1])
    padded[: len(values)] = values
    return padded


def scored(study: Study, problem: Problem, agent: int, budget: int) -> Array:
    """Return the values `(budget,)` of an agent's evaluations, in order and without its own units."""
    configs, observed = runs.evaluations(study, agent, budget)
    known = [runs.score(problem, config, agent) for config in configs]
    return np.where([v is None for v in known], observed, np.array(known, dtype=np.float64))


def run_rfms(problem: str, seed: int, budget: int, table: str) -> Arrays:
    """Run RFMS on the hospitals; return the tabulated values of the shipped configuration, and the costs."""
    objective = make_problem(table, None, 0, {})
    options = {**RFMS[1], "num_trials": budget, "num_initial": min(20, budget // 2)}
    begin = time.process_time()
    study = runs.run(make_problem(problem, None, 0, {}), RFMS[0], options, None, seed)
    seconds = time.process_time() - begin
    shipped = [row["config"] for row in study.models if row["shipped"]]
    values = [
        max(objective.true_value(config, agent) or 0.0 for config in shipped)
        for agent in range(objective.num_agents)
    ]
    return {
        "best": np.array(values)[:, None],
        "shipped": np.array([float(len(shipped))]),
        "costs": np.array([*runs.traffic(study, COSTS), seconds]),
    }
