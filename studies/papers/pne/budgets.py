"""Small and large budgets: the variants of PF-PNE beside local GP-UCB, random search and Sobol halving.

Values are those of ten clients with noise U(-.1, .1) and shifts of standard deviation .05.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import PROBLEMS
from fbo_flower.simulation.problems import XArmed, best_by_closing_in
from studies.experiment import Arrays, Experiment, Part
from studies.papers.pne import gp_reference, reference
from studies.papers.pne.client import BanditRun
from studies.problems import functions


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
GP_BUDGET = 250  # larger budgets are left to the others: a pull of `gp` costs milliseconds
Driver = Callable[..., BanditRun]


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return a part per budget; quick: 10 and 300 pulls, one seed."""
    seeds = range(300, 301 if quick else 312)
    return [
        Part(
            f"T = {budget}", compare, FUNCTIONS, list(drivers(budget)), seeds, {"budget": budget},
            "gp" if budget <= GP_BUDGET else "racing", joint=True, pooled=True,
        )
        for budget in ((10, 300) if quick else (50, 200, 1000, 5000))
    ]  # fmt: skip


EXPERIMENT = Experiment("Bandits with 50 to 5000 pulls beside GP-UCB, random search and halving", parts)


def drivers(budget: int) -> Mapping[str, Driver]:
    """Return the algorithms that are compared at a budget, by name."""
    known = reference.algorithms()
    processes = {"gp": gp_reference.gp_pne, "local-gp": gp_reference.local_gp}
    others = {"racing": known["racing"], "hct": known["hct"], "pf-pne": known["pf-pne"]}
    plain = {"random": gp_reference.random_search, "halving": gp_reference.sobol_halving}
    return {**(processes if budget <= GP_BUDGET else {}), **others, **plain}


def compare(function: str, seed: int, budget: int) -> Arrays:
    """Run all algorithms; return regret per pull and simple regret of each, of every client."""
    surface, found = {**PROBLEMS, **CLASSICS}[function](10, seed), Arrays()
    for name, driver in drivers(budget).items():
        run = driver(surface, budget, seed)
        found |= {f"{name}/regret per pull": run.final / budget, f"{name}/simple regret": run.simple}
    return found
