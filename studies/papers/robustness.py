"""Measure how much worse honest agents do when others lie, for several algorithms.

Of ten agents, 1, 2 or 4 send well-formed false reports (`experiments.liars`). Every run is paired with one in
which the same agents tune alone with the same seed. Only honest agents count. The tables show regret with
collaboration minus regret alone: above 0 means that collaboration is worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.senders import own_probability
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import InProcessGrid, annotate, problem_app
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import STRATEGIES
from studies.jobs import Arrays, Directory, OnJob, job, load, open_directory, run_jobs
from studies.papers.liars import LIES, Liars
from studies.report import Estimate, clustered, table, write_results

NUM_AGENTS = 10
NUM_LIARS = (1, 2, 4)
FIRST_SEED = 300
NUM_INITIAL = 3
SCHEDULE = "1-1/sqrt(t)"
CASES = [("none", 0), *((kind, number) for kind in LIES for number in NUM_LIARS)]
_SMALL = {"num_candidates": 128, "num_path_features": 64, "num_initial": NUM_INITIAL}
_FTS = {**_SMALL, "lengthscale": 0.03, "num_features": 100, "schedule": SCHEDULE}
_CO_KG = {"num_points": 100}


@dataclass(frozen=True)
class Family:
    """Variants of one algorithm on one problem, and the algorithm with which agents tune alone.

    Parameters
    ----------
    column : column of the study's regret table that is compared at the end of a run
    num_rounds : number of rounds; None: until the budget is spent
    alone : algorithm and options with which agents tune alone
    variants : label -> algorithm and options
    """

    problem: str
    column: str
    num_rounds: int | None
    alone: tuple[str, dict[str, Any]]
    variants: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)


def families(quick: bool) -> dict[str, Family]:
    """Return all families by name, with fewer rounds and pulls if `quick`."""
    budget = {"budget": 300 if quick else 3000}
    return {
        "fts": Family(
            "gp-samples",
            "simple",
            6 if quick else 20,
            ("ts", _SMALL),
            {advice: ("fts", {**_FTS, "advice": advice}) for advice in ("single", "portfolio", "mixture")},
        ),
        "co-kg": Family(
            "f1",
            "simple",
            4 if quick else 10,
            ("co-kg", {**_CO_KG, "framework": "no-collaboration"}),
            {weights: ("co-kg", {**_CO_KG, "weights": weights}) for weights in ("uniform", "reliability")},
        ),
        "pf-pne": Family(
            "double-sine",
            "cumulative",
            None,
            ("local-pne", budget),
            {how: ("pf-pne", {**budget, "aggregate": how}) for how in ("mean", "median", "trimmed")}
            | {"racing": ("pf-pne", {**budget, "variant": "racing"})},
        ),
    }


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and return its path.

    Parameters
    ----------
    quick : True: 2 seeds of short runs; False: 5 seeds of longer runs
    """
    num_seeds = 2 if quick else 5
    settings = {"experiment": "robustness", "quick": quick, "num_seeds": num_seeds}
    path = open_directory(directory, settings)
    work = [
        job(run_variant, family, label, FIRST_SEED + seed, quick=quick)
        for family, setting in families(quick).items()
        for label in ("alone", *setting.variants)
        for seed in range(num_seeds)
    ]
    run_jobs(work, path, num_workers, on_job, "variants")
    return [report(path, quick, num_seeds)]


def run_variant(family: str, label: str, seed: int, quick: bool) -> Arrays:
    """Return every agent's regret after every evaluation, `(agents, evaluations)`, for each case."""
    setting = families(quick)[family]
    if label == "alone":
        return {"none-0": regret_of(setting, *setting.alone, seed)}
    algorithm, options = setting.variants[label]
    return {
        f"{kind}-{number}": regret_of(setting, algorithm, options, seed, kind, number)
        for kind, number in CASES
    }


def regret_of(
    setting: Family, algorithm: str, options: dict[str, Any], seed: int, kind: str = "none", number: int = 0
) -> Array:
    """Return the regret `(agents, evaluations)` of one run; for bandits, only the last column."""
    problem = make_problem(setting.problem, NUM_AGENTS, seed)
    strategy = STRATEGIES[algorithm](num_agents=NUM_AGENTS, seed=seed, **options)
    faults = Liars(kind, NUM_AGENTS, number, seed).faults() if number else None
    grid = InProcessGrid(problem_app(problem, strategy.algorithm, seed), NUM_AGENTS, faults=faults)
    study = annotate(strategy.start(grid, num_rounds=setting.num_rounds).study, problem)
    if study.rounds["refused"].any():  # the lies must pass all checks
        raise AssertionError(f"refused: {study.rounds['reasons'].tolist()}")
    rows = [study.regret.where(agent=str(agent))[setting.column] for agent in range(NUM_AGENTS)]
    if setting.num_rounds is None:
        rows = [row[-1:] for row in rows]
    return np.array(rows, dtype=np.float64)


def spent_on_others(num_iterations: int) -> int:
    """Return the expected number of evaluations that an agent of FTS spends on messages, `sum 1 - p_t`."""
    return math.ceil(sum(1.0 - own_probability(SCHEDULE, t) for t in range(1, num_iterations + 1)))


def behind(mine: Array, alone: Array, number: int) -> Estimate:
    """Return the honest agents' regret minus their regret alone, with its standard error over seeds.

    Parameters
    ----------
    mine, alone : `(seeds, agents)`
    """
    honest = slice(0, NUM_AGENTS - number)
    return clustered((mine - alone)[:, honest].T)


def report(directory: Path, quick: bool, num_seeds: int) -> Path:
    """Write the tables from the finished jobs."""
    text: list[str] = []
    for family, setting in families(quick).items():
        alone = _stacked(directory, family, "alone", num_seeds)["none-0"]  # (seeds, agents, evaluations)
        told = {label: _stacked(directory, family, label, num_seeds) for label in setting.variants}
        final = {label: {case: r[:, :, -1] for case, r in cases.items()} for label, cases in told.items()}
        level = clustered(alone[:, :, -1].T)
        text += [f"## {family}\n", f"Alone: {level.mean:.4f} ± {level.stderr:.4f} {setting.column} regret.\n"]
        text.append(_table(final, alone[:, :, -1]))
        if family == "fts":
            spent = spent_on_others((setting.num_rounds or 0) - 1)
            text += [f"Compared with tuning alone with {spent} evaluations fewer:\n"]
            text.append(_table(final, alone[:, :, -1 - spent]))
    return write_results(directory, text)


def _table(final: dict[str, dict[str, Array]], alone: Array) -> str:
    head = ["lie", "liars of 10", *final]
    rows = []
    for kind, number in CASES:
        estimates = (behind(cases[f"{kind}-{number}"], alone, number) for cases in final.values())
        cells = [f"{e}{' *' if e.mean > 2 * e.stderr else ''}" for e in estimates]
        rows.append([kind, str(number), *cells])
    return table(head, rows)


def _stacked(directory: Path, family: str, label: str, num_seeds: int) -> Arrays:
    found = [load(directory, run_variant, family, label, FIRST_SEED + seed) for seed in range(num_seeds)]
    return {case: np.stack([result[case] for result in found]) for case in found[0]}
