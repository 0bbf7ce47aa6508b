"""What false values of some agents cost the others: `fed-ei` beside copying the best point of all others.

Of eight agents none, one or three send false rows that pass every check. In `fed-ei` a liar gives each of its
rows the highest value that a row may have, at its true points or at random ones. In `share-best` it claims a
huge value at a random point. A score is the best value so far without scale and offset, as the mean over the
honest agents. It is compared with the same agents' scores without liars, and with `ei`, which tells nobody
anything. Standard errors are over seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.clients import client_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.trend import LARGEST
from fbo_flower.simulation import InProcessGrid
from fbo_flower.strategies import TuningStrategy
from studies.experiment import Arrays, Experiment, Part, best_so_far, rounds_of
from studies.papers.ei.problems import PROBLEMS
from studies.papers.liars import lying

LABELS = ("Styblinski-5", "Hartmann-6", "draws, .64 in common")
NUM_AGENTS, NUM_INITIAL, HUGE = 8, 2, 1e9
Lie = Callable[[Array, np.random.Generator], Array]


def highest(rows: Array, rng: np.random.Generator) -> Array:
    """Return rows of `fed-ei` that all have the highest value, at their true points."""
    return np.column_stack([rows[:, :-1], np.full(len(rows), LARGEST)])


# name -> algorithm, its options, and array of a report -> the lie in its place; rows in the clear: the same
# trials as in secure sums
METHODS: dict[str, tuple[str, dict[str, Any], dict[str, Lie]]] = {
    "ei": ("ei", {}, {}),
    "fed-ei, true points": ("fed-ei", {"secure_sums": 0}, {"rows": highest}),
    "fed-ei, random points": (
        "fed-ei", {"secure_sums": 0}, {"rows": lambda rows, rng: highest(rng.random(rows.shape), rng)},
    ),
    "share-best": ("share-best", {}, {
        "point": lambda point, rng: rng.random(point.shape),
        "value": lambda value, rng: np.array([HUGE]),
    }),
}  # fmt: skip


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: one problem, one liar, 2 seeds."""
    labels, numbers = (LABELS[:1], (0, 1)) if quick else (LABELS, (0, 1, 3))
    rows = ["ei; 0", *(f"{name}; {number}" for name in METHODS if name != "ei" for number in numbers)]
    pairs = [(row, f"{name}; 0") for row in rows if (name := row.split("; ")[0]) and not row.endswith("; 0")]
    seeds, common = range(700, 702 if quick else 708), {"budget": 6 if quick else 20}
    return [
        Part("fed-ei among liars", scores, labels, rows, seeds, common, "ei; 0", pairs, at=(4, 5, 10, 20))
    ]


EXPERIMENT = Experiment("What false values of some agents cost the others: fed-ei beside copying", parts)


def scores(label: str, row: str, seed: int, budget: int) -> Arrays:
    """Return the best scores so far of the honest agents, `(agents, budget)`; the last agents lie."""
    method, num_liars = row.split("; ")
    problem = PROBLEMS[label](NUM_AGENTS, seed)
    name, options, lies = METHODS[method]
    honest = NUM_AGENTS - int(num_liars)

    def tell(rng: np.random.Generator, told: Arrays) -> Arrays:
        return {array: lie(told[array], rng) for array, lie in lies.items() if array in told}

    last = {agent: generator(seed, "liar", str(agent)) for agent in range(honest, NUM_AGENTS)}
    faults = lying({agent: partial(tell, rng) for agent, rng in last.items()})
    app = client_app(problem, problem.space, seed=seed, disclose="trials")
    algorithm = make_algorithm(name, {"num_initial": NUM_INITIAL, **options})
    strategy = TuningStrategy(algorithm, num_agents=NUM_AGENTS, seed=seed)
    grid = InProcessGrid(app, NUM_AGENTS, faults=faults)
    study = strategy.start(grid, num_rounds=rounds_of(name, NUM_INITIAL, budget)).study
    return {"best": best_so_far(study, problem, budget)[:honest]}
