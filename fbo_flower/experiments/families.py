"""Compare all families of algorithms on the same problems with the same budget.

None of the papers has this comparison. Every agent has 50 evaluations, including the initial design. The
objectives of ten landmine fields, of ten agents with digits and of the four hospitals of `heart-4sites` are
tabulated first (`simulation.tabulate`), so that evaluations take no time. RFMS needs models, not values: it
runs on the hospitals themselves. One of them trains 50 configurations, two judge them, and the shipped
configuration is looked up in the table.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.experiments import families_report
from fbo_flower.experiments.families_report import job_name
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import tabulate  # the module, which also runs as jobs
from fbo_flower.simulation.jobs import Arrays, Job, open_directory, run_jobs
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.simulation.problems.table import PREFIX
from fbo_flower.simulation.runner import simulate
from fbo_flower.study.study import Study

BUDGET = 50
TABULATED = ("landmine-svm", "digits-svm", "heart-4sites")
NUM_POINTS = 400  # points of a table per agent
NUM_INITIAL = 3
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
}
BANDITS = ("pf-pne", "fed-pne", "local-pne", "hct")
RFMS = ("rfms", {"method": "fso"})


def problems(quick: bool) -> dict[str, int]:
    """Return the problems with their numbers of agents."""
    if quick:
        return {"f1": 2, "himmelblau": 3}
    return {"f1": 4, "himmelblau": 6, "heart-4sites": 4, "digits-svm": 10, "landmine-svm": 10}


def run(
    directory: str | os.PathLike[str],
    quick: bool,
    num_workers: int,
    on_job: Callable[[str, int, int], None],
) -> list[Path]:
    """Run the jobs without a result, write `results.md` and a picture, and return these files.

    The files are rewritten after every seed, so a stopped run leaves those of its finished seeds.

    Parameters
    ----------
    quick : True: 2 seeds, two functions with 2 and 3 agents, 12 evaluations
    """
    budget, num_seeds = (12, 2) if quick else (BUDGET, 10)
    path = open_directory(directory, {"experiment": "families", "budget": budget})
    tables = {} if quick else make_tables(path, num_workers, on_job)
    files: list[Path] = []
    for seed in range(num_seeds):
        work = jobs(problems(quick), tables, seed, budget)
        run_jobs(work, path, num_workers, partial(on_job, f"seed {seed}"))
        files = families_report.report(path, tuple(problems(quick)), tuple(ALGORITHMS), seed + 1, budget)
    return files


def make_tables(directory: Path, num_workers: int, on_job: Callable[[str, int, int], None]) -> dict[str, str]:
    """Tabulate the expensive problems once; return the problem that replaces each."""
    found = {}
    for name in TABULATED:
        file = directory / f"{name}.npz"
        if not file.exists():
            shown = partial(_relabelled, on_job, f"table {name}")
            tabulate.tabulate(
                make_problem(name, problems(False)[name], 0, {}), file, NUM_POINTS, 50, num_workers, shown
            )
        found[name] = f"{PREFIX}{file}"
    return found


def _relabelled(on_job: Callable[[str, int, int], None], label: str, stage: str, done: int, of: int) -> None:
    on_job(label, done, of)


def jobs(chosen: Mapping[str, int], tables: Mapping[str, str], seed: int, budget: int) -> list[Job]:
    """Return the jobs of one seed."""
    found = [
        Job(
            job_name(name, label, seed),
            run_algorithm,
            {
                "problem": tables.get(name, name),
                "num_agents": count,
                "label": label,
                "seed": seed,
                "budget": budget,
            },
        )
        for name, count in chosen.items()
        for label in ALGORITHMS
    ]
    if "heart-4sites" in chosen:
        known = {"table": tables["heart-4sites"], "seed": seed, "budget": budget}
        found.append(Job(job_name("heart-4sites", "rfms", seed), run_rfms, known))
    return found


# -- jobs --------------------------------------------------------------------------------------


def run_algorithm(problem: str, num_agents: int, label: str, seed: int, budget: int) -> Arrays:
    """Run one algorithm; return the arrays that `families_report` uses."""
    made = make_problem(problem, num_agents, seed, {})
    algorithm, options = ALGORITHMS[label]
    rounds: int | None = budget - NUM_INITIAL + 1
    options = dict(options)
    if algorithm in BANDITS:
        rounds, options = None, {**options, "budget": budget}
        if problem.startswith(PREFIX):
            options["deterministic"] = True
    return measured(made, algorithm, options, seed, rounds, budget)


def measured(
    problem: Problem, algorithm: str, options: Mapping[str, Any], seed: int, rounds: int | None, budget: int
) -> Arrays:
    """Run a study and return its curves and costs.

    Returns
    -------
    best, values : `(agents, budget)`, best noiseless value so far, and noiseless value of every evaluation
    optimum : `(agents,)`
    costs : floats down and up, bytes down and up, per agent; CPU seconds
    """
    logging.getLogger("flwr").setLevel(logging.WARNING)
    begin = time.process_time()
    study = simulate(problem, algorithm, None, rounds, seed, "inline", options=options)
    seconds = time.process_time() - begin
    names = [str(agent) for agent in range(problem.num_agents)]
    optimum = np.array([problem.optimum(int(name)) for name in names], dtype=np.float64)
    values = np.array(
        [noiseless(study, name, best, budget) for name, best in zip(names, optimum, strict=True)]
    )
    columns = ("floats_down", "floats_up", "bytes_down", "bytes_up")
    costs = [float(np.sum(study.rounds[name])) / problem.num_agents for name in columns]
    return {
        "best": np.maximum.accumulate(values, axis=1),
        "values": values,
        "optimum": optimum,
        "costs": np.array([*costs, seconds]),
    }


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


def run_rfms(table: str, seed: int, budget: int) -> Arrays:
    """Run RFMS on the hospitals; return the tabulated values of the shipped configuration, and the costs."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    objective = make_problem(table, None, 0, {})
    problem = make_problem("heart-4sites", None, 0, {})
    algorithm, options = RFMS
    begin = time.process_time()
    chosen = {**options, "num_trials": budget, "num_initial": min(20, budget // 2)}
    study = simulate(problem, algorithm, None, None, seed, "inline", options=chosen)
    seconds = time.process_time() - begin
    shipped = [row["config"] for row in study.models if row["shipped"]]
    values = [
        max(objective.true_value(config, agent) or 0.0 for config in shipped)
        for agent in range(objective.num_agents)
    ]
    columns = ("floats_down", "floats_up", "bytes_down", "bytes_up")
    costs = [float(np.sum(study.rounds[name])) / problem.num_agents for name in columns]
    return {
        "best": np.array(values)[:, None],
        "shipped": np.array([float(len(shipped))]),
        "costs": np.array([*costs, seconds]),
    }
