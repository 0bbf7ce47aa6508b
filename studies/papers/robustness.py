"""Measure how much worse honest agents do when others lie, for several algorithms.

Of ten agents, four send well-formed false reports (`papers.liars`). Every run is paired with one in
which the same agents tune alone with the same seed. Only honest agents count. A difference is regret with
collaboration minus regret alone: above 0 means that collaboration is worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.simulation import InProcessGrid, annotate, problem_app
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import STRATEGIES
from studies.experiment import Arrays, Experiment, Part
from studies.papers.liars import LIES, liars

NUM_AGENTS, NUM_INITIAL = 10, 3
NUM_LIARS = 4
_SMALL = {"num_candidates": 128, "num_path_features": 64, "num_initial": NUM_INITIAL}
_FTS = {**_SMALL, "lengthscale": 0.03, "num_features": 100, "schedule": "1-1/sqrt(t)"}
_CO_KG = {"num_points": 100}
_FEW = {"num_initial": 2}


@dataclass(frozen=True)
class Family:
    """Variants of one algorithm on one problem, and the algorithm with which agents tune alone.

    Parameters
    ----------
    column : column of the study's regret table, of which the end of a run is compared
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
            {advice: ("fts", {**_FTS, "advice": advice}) for advice in ("single", "portfolio")},
        ),
        "co-kg": Family(
            "f1",
            "simple",
            4 if quick else 10,
            ("co-kg", {**_CO_KG, "framework": "no-collaboration"}),
            {
                "barycenter": ("co-kg", _CO_KG),
                "reliability": ("co-kg", {**_CO_KG, "weights": "reliability"}),
            },
        ),
        "fed-ei": Family(
            "f1",
            "simple",
            6 if quick else 20,
            ("ei", _FEW),
            {"pool": ("fed-ei", {**_FEW, "secure_sums": 0})},
        ),
        "pf-pne": Family(
            "double-sine",
            "cumulative",
            None,
            ("local-pne", budget),
            {how: ("pf-pne", {**budget, "aggregate": how}) for how in ("mean", "median")}
            | {"racing": ("pf-pne", {**budget, "variant": "racing"})},
        ),
    }


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 2 seeds of short runs, and four liars that flip the sign."""
    lies = ["none", *(["flipped"] if quick else LIES)]
    rows = {
        name: ["alone", *(f"{label}; {lie}" for label in family.variants for lie in lies)]
        for name, family in families(quick).items()
    }
    seeds = range(300, 302 if quick else 305)
    return [Part("liars", run_variant, list(rows), rows, seeds, {"quick": quick}, "alone")]


EXPERIMENT = Experiment("Honest agents among liars, compared with tuning alone", parts)


def run_variant(name: str, row: str, seed: int, quick: bool) -> Arrays:
    """Run one variant with one kind of lie; return the regret of the honest agents at the end."""
    family = families(quick)[name]
    label, lie = [*row.split("; "), "none"][:2]
    num_liars = NUM_LIARS if lie in LIES else 0
    algorithm, options = family.alone if label == "alone" else family.variants[label]
    problem = make_problem(family.problem, NUM_AGENTS, seed)
    strategy = STRATEGIES[algorithm](num_agents=NUM_AGENTS, seed=seed, **options)
    faults = liars(lie, NUM_AGENTS, num_liars)
    grid = InProcessGrid(problem_app(problem, strategy.algorithm, seed), NUM_AGENTS, faults=faults)
    study = annotate(strategy.start(grid, num_rounds=family.num_rounds).study, problem)
    if study.rounds["refused"].any():  # the lies must pass all checks
        raise AssertionError(f"refused: {study.rounds['reasons'].tolist()}")
    curves = [study.regret.where(agent=str(a))[family.column] for a in range(NUM_AGENTS - num_liars)]
    return {"regret": np.array([curve[-1] for curve in curves])}
