"""Small and large budgets: the variants of PF-PNE beside local GP-UCB, random search and Sobol halving.

Each function, budget and seed is one job, whose result is stored; the tables are of all stored jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import XArmed, best_by_closing_in, make_problem
from studies.jobs import Arrays, Directory, OnJob, has, job, load, open_directory, run_jobs
from studies.papers.pne import gp_reference, reference
from studies.papers.pne.client import BanditRun, Shifted
from studies.problems import functions
from studies.report import shown, table, write_results


@dataclass(frozen=True)
class Classic(XArmed):
    """A function of the global optimisation literature, shifted per agent, scaled to [0, 1] by its range.

    On these functions literal PF-PNE loses to random search at small budgets.
    """

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        return best_by_closing_in(cls.function, low, high)


class Branin(Classic):
    """Branin on `[-5, 10] x [0, 15]`: three maxima of value 1."""

    name: ClassVar[str] = "branin"
    dimension: ClassVar[int] = 2

    @classmethod
    def function(cls, x: Array) -> Array:
        return np.asarray(1 - (functions.branin(x) - 0.39788735772973816) / 307.73123)


class Hartmann3(Classic):
    """Hartmann's function in three dimensions: value 1 at (.1146, .5556, .8525)."""

    name: ClassVar[str] = "hartmann-3"
    dimension: ClassVar[int] = 3

    @classmethod
    def function(cls, x: Array) -> Array:
        return np.asarray(functions.hartmann(x) / 3.862782147820755)


class Ackley2(Classic):
    """Ackley's function on `[-32.768, 32.768]^2`: a narrow cone of value 1 in many waves."""

    name: ClassVar[str] = "ackley-2"
    dimension: ClassVar[int] = 2

    @classmethod
    def function(cls, x: Array) -> Array:
        return np.asarray(1 + functions.ackley(32.768 * (2 * x - 1)) / 22.32)

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        if (low <= 0.5).all() and (high >= 0.5).all():
            return 1.0
        return super().reachable_maximum(low, high)


class Levy2(Classic):
    """Levy's function on `[-10, 10]^2`: value 1 at (1, 1), with ridges."""

    name: ClassVar[str] = "levy-2"
    dimension: ClassVar[int] = 2

    @classmethod
    def function(cls, x: Array) -> Array:
        return np.asarray(1 + functions.levy(20 * x - 11) / 95.4)


CLASSICS = {problem.name: problem for problem in (Branin, Hartmann3, Ackley2, Levy2)}
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
    path, files = open_directory(directory, {"experiment": "pne-budgets"}), list[Path]()
    for place, budget in enumerate(budgets, 1):
        jobs = [job(compare, name, budget, seed) for seed in _seeds(num_seeds) for name in FUNCTIONS]
        run_jobs(jobs, path, num_workers, on_job, f"{budget} pulls")
        files = [write_results(path, report(path, budgets[:place], num_seeds))]
    return files


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


def compare(function: str, budget: int, seed: int) -> Arrays:
    """Run all algorithms; return regret per pull and simple regret of each, means over the clients."""
    surface = Shifted(problem(function, seed))
    found = {}
    for name, driver in drivers(budget).items():
        run = driver(surface, budget, seed)
        found[name] = np.array([run.final.mean() / budget, run.simple.mean()])
    return found


def report(directory: Path, budgets: Sequence[int], num_seeds: int) -> list[str]:
    """Return Markdown tables of the jobs that have a result."""
    text = []
    for budget in budgets:
        found: dict[str, list[Arrays]] = {}
        for function in FUNCTIONS:
            there = [seed for seed in _seeds(num_seeds) if has(directory, compare, function, budget, seed)]
            if len(there) > 1:
                found[function] = [load(directory, compare, function, budget, seed) for seed in there]
        names = list(drivers(budget))
        for what, title in enumerate(("Cumulative regret per pull", "Simple regret")):
            rows = [
                [function, *(shown(np.array([run[name][what] for run in runs]), 3) for name in names)]
                for function, runs in found.items()
            ]
            text += [f"## T = {budget}: {title}\n", table(["function", *names], rows)]
    return text


def _seeds(count: int) -> range:
    return range(FIRST_SEED, FIRST_SEED + count)
