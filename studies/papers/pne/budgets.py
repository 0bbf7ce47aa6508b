"""Small and large budgets: the variants of PF-PNE beside local GP-UCB, random search and Sobol halving.

Each function, budget and seed is one job, whose result is stored; the tables are of all stored jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fbo_flower.simulation.problems import XArmed, make_problem
from fbo_flower.storage import atomic_file
from studies.jobs import Arrays, Directory, Job, OnJob, has_result, load_job, open_directory, run_jobs
from studies.papers.pne import gp_reference, reference
from studies.papers.pne.client import BanditRun, Shifted
from studies.papers.pne.functions import CLASSICS

FUNCTIONS = ("garland", "double-sine", "himmelblau", "ackley", *CLASSICS)
BUDGETS = (50, 200, 1000, 5000)
FIRST_SEED = 300
NUM_SEEDS = 12
GP_BUDGET = 250  # larger budgets are left to the others: a pull of `gp` costs milliseconds
Driver = Callable[..., BanditRun]


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` after every budget, and return this file.

    Parameters
    ----------
    quick : True: 10 and 300 pulls, 2 seeds
    """
    budgets, num_seeds = ((10, 300), 2) if quick else (BUDGETS, NUM_SEEDS)
    path = open_directory(directory, {"experiment": "pne-budgets"})
    for place, budget in enumerate(budgets, 1):
        jobs = [
            Job(f"{name}-{budget}-{seed}", job, {"function": name, "budget": budget, "seed": seed})
            for seed in _seeds(num_seeds)
            for name in FUNCTIONS
        ]
        run_jobs(jobs, path, num_workers, partial(on_job, f"{budget} pulls"))
        with atomic_file(path / "results.md") as stream:
            stream.write(report(path, budgets[:place], num_seeds).encode())
    return [path / "results.md"]


def drivers(budget: int) -> Mapping[str, Driver]:
    """Return the algorithms that are compared at a budget, by name."""
    known = reference.algorithms()
    processes = {"gp": gp_reference.gp_pne, "local-gp": gp_reference.local_gp}
    others = {"racing": known["racing"], "hct": known["hct"], "pf-pne": known["pf-pne"]}
    plain = {"random": gp_reference.random_search, "halving": gp_reference.sobol_halving}
    return {**(processes if budget <= GP_BUDGET else {}), **others, **plain}


def problem(name: str, seed: int) -> XArmed:
    """Return a function with ten agents, noise U(-.1, .1) and shifts of standard deviation .05."""
    if name in CLASSICS:
        return CLASSICS[name](10, seed)
    found = make_problem(name, 10, seed, {})
    assert isinstance(found, XArmed)
    return found


def job(function: str, budget: int, seed: int) -> Arrays:
    """Run all algorithms; return regret per pull and simple regret of each, means over the clients."""
    surface = Shifted(problem(function, seed))
    found = {}
    for name, driver in drivers(budget).items():
        run = driver(surface, budget, seed)
        found[name] = np.array([run.final.mean() / budget, run.simple.mean()])
    return found


def report(directory: Path, budgets: Sequence[int], num_seeds: int) -> str:
    """Return Markdown tables of the jobs that have a result."""
    text = []
    for budget in budgets:
        names = list(drivers(budget))
        rows: dict[str, list[Arrays]] = {}
        for function in FUNCTIONS:
            stored = [f"{function}-{budget}-{s}" for s in _seeds(num_seeds)]
            runs = [load_job(directory, name) for name in stored if has_result(directory, name)]
            if len(runs) > 1:
                rows[function] = runs
        for what, title in enumerate(("Cumulative regret per pull", "Simple regret")):
            text += [f"## T = {budget}: {title}\n", f"| function | {' | '.join(names)} |"]
            text += ["|" + "---|" * (len(names) + 1)]
            for function, runs in rows.items():
                values = {name: np.array([run[name][what] for run in runs]) for name in names}
                error = {name: v.std(ddof=1) / np.sqrt(len(v)) for name, v in values.items()}
                cells = [f"{v.mean():.3f} ± {error[name]:.3f}" for name, v in values.items()]
                text.append(f"| {function} | {' | '.join(cells)} |")
            text.append("")
    return "\n".join(text)


def _seeds(count: int) -> range:
    return range(FIRST_SEED, FIRST_SEED + count)
