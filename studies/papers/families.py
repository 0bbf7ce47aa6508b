"""Compare all families of algorithms on the same problems with the same budget.

None of the papers has this comparison. Every agent has 50 evaluations, including the initial design. The
objectives of ten landmine fields, of ten agents with digits and of the four hospitals of `heart-4sites` are
tabulated first (`studies/problems/tabulate.py`), so that evaluations take no time.

In five and more dimensions, and where half of the agents are unrelated, only the algorithms of `BROAD` run:
bandits and meshes need more evaluations than these. If Optuna is installed, its samplers run as well, each
agent alone: TPE like any other algorithm, GPSampler, which is slow, for three agents and 20 evaluations.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import PREFIX, make_problem
from fbo_flower.study import Study
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, OnJob, Part
from studies.papers import local_peers
from studies.papers.ei.problems import PROBLEMS, Made
from studies.problems import tabulate  # the module, which also runs as jobs

BUDGET, NUM_INITIAL = 50, 3  # evaluations of an agent; random ones among them
TABULATED: dict[str, tuple[str, dict[str, Any]]] = {  # label -> problem and its options
    "landmine-svm": ("landmine-svm", {}),
    "landmine-svm, log": ("landmine-svm", {"scale": "log"}),
    "digits-svm": ("digits-svm", {}),
    "heart-4sites": ("heart-4sites", {}),
}
NUM_POINTS = 400  # points of a table per agent
RELATED: dict[str, Made] = {
    "hartmann-6": PROBLEMS["Hartmann-6"],
    "hartmann-6, half mirrored": PROBLEMS["Hartmann-6, half mirrored"],
    "rastrigin-10": PROBLEMS["10-D"],
    "california-trees": lambda agents, seed: make_problem("california-trees", agents, seed),
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


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: two functions with 2 agents, 12 evaluations, one seed."""
    agents = {"f1": 4, "himmelblau": 6, "heart-4sites": 4, "digits-svm": 10, "landmine-svm": 10}
    agents |= {"landmine-svm, log": 10, **dict.fromkeys(RELATED, 10), "california-trees": 8}
    agents = {"f1": 2, "hartmann-6": 2} if quick else agents
    peers = local_peers.SAMPLERS if local_peers.is_installed() else ()
    broad = {name for name in agents if name in RELATED or name.endswith(", log")}
    rows = {name: [*(BROAD if name in broad else ALGORITHMS), *peers] for name in agents}
    common = {"agents": agents, "budget": 12 if quick else BUDGET, "directory": str(directory)}
    seeds, at = range(1 if quick else 12), (3, 5, 10, 20, 50)
    return [Part("families", run_one, list(agents), rows, seeds, common, "ei", at=at, drawn="best")]


def prepare(directory: Path, parts: Sequence[Part], num_workers: int, on_job: OnJob | None) -> None:
    """Tabulate the expensive problems once."""
    for label in set(TABULATED).intersection(parts[0].problems):
        if not (file := table_of(directory, label)).exists():
            name, options = TABULATED[label]
            problem = make_problem(name, parts[0].common["agents"][label], 0, options)
            tabulate.tabulate(problem, file, NUM_POINTS, 50, num_workers, on_job)


def table_of(directory: str | Path, label: str) -> Path:
    """Return the file of the table of a problem."""
    return Path(directory) / f"{label.replace(', ', '-')}.npz"


EXPERIMENT = Experiment("All algorithms on the same problems with the same budget", parts, prepare)


def run_one(label: str, row: str, seed: int, agents: dict[str, int], budget: int, directory: str) -> Arrays:
    """Run one algorithm, or let one of Optuna's samplers tune for each agent alone.

    Returns
    -------
    best : `(agents, budget)`, best noiseless value so far; without the agents' own units on related
        functions, as observed where there is no noise
    CPU seconds : of the whole study
    """
    num_agents, table = agents[label], ""
    if label in RELATED:
        made = RELATED[label](num_agents, seed)
    else:
        table = f"{PREFIX}{table_of(directory, label)}" if label in TABULATED else ""
        made = make_problem(table or label, num_agents, seed, {})
    optimum = np.array([made.optimum(agent) for agent in range(num_agents)], dtype=np.float64)  # None: NaN
    begin = time.process_time()
    if row in local_peers.SAMPLERS:
        if row == "gpsampler":
            num_agents, budget = min(num_agents, GP_AGENTS), min(budget, GP_BUDGET)
        starts = runs.run(made, "ei", {"num_initial": NUM_INITIAL}, 1, seed)
        values = np.array([
            local_peers.scores(made, agent, runs.evaluations(starts, agent)[0], row, seed, budget)
            for agent in range(num_agents)
        ])  # fmt: skip
    else:
        algorithm, options = ALGORITHMS[row]
        rounds: int | None = runs.rounds_of(algorithm, NUM_INITIAL, budget)
        if algorithm in BANDITS:
            rounds, options = None, {**options, "budget": budget, "deterministic": bool(table)}
        study = runs.run(made, algorithm, options, rounds, seed)
        if np.isfinite(optimum).all():
            best = [best_without_noise(study, str(a), optimum[a], budget) for a in range(num_agents)]
            values = np.array(best)
        else:
            values = runs.best_so_far(study, made, budget)
    seconds = (time.process_time() - begin) * made.num_agents / num_agents
    return {"best": np.maximum.accumulate(values, axis=1), "CPU seconds": np.array(seconds)}


def best_without_noise(study: Study, agent: str, optimum: float, budget: int) -> Array:
    """Return the best noiseless value after each evaluation, `(budget,)`; after an early end, the last."""
    mine = study.regret.where(agent=agent)
    place = np.searchsorted(mine["evaluations"], np.arange(1, budget + 1))
    return np.asarray(optimum - mine["simple"][np.minimum(place, len(mine) - 1)], dtype=np.float64)
