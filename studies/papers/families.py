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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import PREFIX, Problem, make_problem
from fbo_flower.study import Study
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, OnJob, Part
from studies.papers import local_peers
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


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: three functions with 2 and 3 agents, 12 evaluations."""
    chosen, peers = problems(quick), local_peers.SAMPLERS if local_peers.is_installed() else ()
    rows = {name: [*labels(name), *peers, *(["rfms"] if name == "heart-4sites" else [])] for name in chosen}
    common = {"agents": chosen, "budget": 12 if quick else BUDGET, "directory": str(directory)}
    seeds = range(2 if quick else 12)
    at = (3, 5, 10, 20, 50)
    return [Part("families", run_one, list(chosen), rows, seeds, common, "ei", at=at, drawn="best")]


def prepare(directory: Path, parts: Sequence[Part], num_workers: int, on_job: OnJob | None) -> None:
    """Tabulate the expensive problems once."""
    for label in set(TABULATED).intersection(parts[0].problems):
        if not (file := table_of(directory, label)).exists():
            name, options = TABULATED[label]
            problem = make_problem(name, problems(False)[label], 0, options)
            tabulate.tabulate(problem, file, NUM_POINTS, 50, num_workers, on_job)


def table_of(directory: str | Path, label: str) -> Path:
    """Return the file of the table of a problem."""
    return Path(directory) / f"{label.replace(', ', '-')}.npz"


EXPERIMENT = Experiment("All algorithms on the same problems with the same budget", parts, prepare)


# -- runs --------------------------------------------------------------------------------------


def run_one(label: str, row: str, seed: int, agents: dict[str, int], budget: int, directory: str) -> Arrays:
    """Run one algorithm, let one of Optuna's samplers tune for each agent alone, or run RFMS.

    Returns
    -------
    best : `(agents, budget)`, best noiseless value so far; without the agents' own units on related
        functions, as observed where there is no noise; of RFMS `(agents, 1)`
    others : floats and bytes down and up per agent; CPU seconds
    """
    num_agents = agents[label]
    table = f"{PREFIX}{table_of(directory, label)}" if label in TABULATED else ""
    if row == "rfms":
        return run_rfms(label, seed, budget, table)
    if label in RELATED:
        made = RELATED[label](num_agents, seed)
    else:
        made = make_problem(table or label, num_agents, seed, {})
    optimum = np.array([made.optimum(agent) for agent in range(num_agents)], dtype=np.float64)  # None: NaN
    sent = np.zeros(len(COSTS))
    if row in local_peers.SAMPLERS:
        if row == "gpsampler":
            num_agents, budget = min(num_agents, GP_AGENTS), min(budget, GP_BUDGET)
        starts = runs.run(made, "ei", {"num_initial": NUM_INITIAL}, 1, seed)
        begin = time.process_time()
        values = np.array([
            local_peers.scores(made, agent, runs.evaluations(starts, agent)[0], row, seed, budget)
            for agent in range(num_agents)
        ])  # fmt: skip
        seconds = (time.process_time() - begin) * made.num_agents / num_agents
    else:
        algorithm, options = ALGORITHMS[row]
        rounds: int | None = runs.rounds_of(algorithm, NUM_INITIAL, budget)
        if algorithm in BANDITS:
            rounds, options = None, {**options, "budget": budget, "deterministic": bool(table)}
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
    return {"best": np.maximum.accumulate(values, axis=1), **costs(sent, seconds)}


def costs(sent: Array, seconds: float) -> Arrays:
    """Return what was sent per agent, by name, and the CPU seconds."""
    return {**dict(zip(COSTS, np.asarray(sent), strict=True)), "CPU seconds": np.array(seconds)}


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
    return {"shipped": np.array(values), **costs(runs.traffic(study, COSTS), seconds)}
