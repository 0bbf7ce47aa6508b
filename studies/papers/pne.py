"""Run PF-PNE and its comparators: cumulative regret on five shifted functions [Li2024].

There are ten clients, uniform noise on [-.1, .1] and shifts of standard deviation .05; the paper states none
of these. Rows called alone run a variant in a federation of each client by itself: GP-UCB, and `racing`
without sharing.

[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.simulation.problems import Config, Problem, XArmed, make_problem
from fbo_flower.space import SearchSpace
from fbo_flower.study import Study
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, Part

NUM_CLIENTS = 10
FUNCTIONS = ("garland", "double-sine", "himmelblau", "ackley", "rastrigin-10d")
ALONE = ", alone"
ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # label -> algorithm and options
    "hct": ("hct", {}),
    "pf-pne": ("pf-pne", {}),
    "fed-pne": ("fed-pne", {}),
    "local-pne": ("local-pne", {}),
    "fed1-ucb": ("fed1-ucb", {}),
    "racing": ("pf-pne", {"variant": "racing"}),
    "racing, alone": ("pf-pne", {"variant": "racing"}),
    "gp": ("pf-pne", {"variant": "gp"}),
    "gp, alone": ("pf-pne", {"variant": "gp"}),
    "random": ("random", {"num_initial": 1}),
}
LARGE = [row for row in ROWS if row not in {"gp", "gp, alone", "random"}]
SMALL = ["gp", "gp, alone", "racing", "hct", "pf-pne", "random"]


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return a part for each budget; quick: tens and hundreds of pulls of one function, one seed."""
    functions, small = FUNCTIONS[:4], [10] if quick else [50, 200]
    budgets = {**dict.fromkeys(small, SMALL), (200 if quick else 100_000): LARGE}
    found = []
    for budget, rows in budgets.items():
        names = functions[2:3] if quick else functions if rows is SMALL else FUNCTIONS
        seeds = range(300, 312) if rows is SMALL else range(200, 210)  # smaller ones served to design racing
        pairs = [("racing", "racing, alone")] if rows is LARGE else []
        found.append(
            Part(
                f"T = {budget}", run, names, rows, seeds[:1] if quick else seeds, {"budget": budget},
                rows[0], pairs=pairs, drawn="regret", axis="pulls", how="log",
                places=thinned(budget).tolist(), at=(budget,),
            )
        )  # fmt: skip
    return found


EXPERIMENT = Experiment("PF-PNE, its variants and comparators: cumulative regret", parts)


@cache
def shifted(function: str, seed: int) -> XArmed:
    """Return a function of all clients."""
    made = make_problem(function, NUM_CLIENTS, seed, {})
    assert isinstance(made, XArmed)
    return made


@dataclass(frozen=True)
class OneClient(Problem):
    """One client of a shifted function, as a federation of its own."""

    function: str = "garland"
    client: int = 0

    name: ClassVar[str] = "one-client"
    metric: ClassVar[str] = "function value"
    default_agents: ClassVar[int] = 1

    @property
    def whole(self) -> XArmed:
        return shifted(self.function, self.seed)

    @property
    def space(self) -> SearchSpace:
        return self.whole.space

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return float(self.repeated(config, context, 1)[0])

    def repeated(self, config: Config, context: ObjectiveContext, repeats: int) -> Array:
        noise = context.rng.uniform(-self.whole.noise, self.whole.noise, repeats)
        return self.true_value(config, 0) + noise

    def true_value(self, config: Config, partition: int) -> float:
        return self.whole.true_value(config, self.client)

    def optimum(self, partition: int) -> float:
        return self.whole.optimum(self.client)


def run(function: str, row: str, seed: int, budget: int) -> Arrays:
    """Return the cumulative regret of each client over its pulls, and its simple regret at the end."""
    algorithm, options = ROWS[row]
    rounds = budget if algorithm == "random" else None
    chosen = options if algorithm == "random" else {**options, "budget": budget}
    if row.endswith(ALONE):
        clients = [OneClient(1, seed, function, client) for client in range(NUM_CLIENTS)]
        studies = [runs.run(client, algorithm, chosen, rounds, seed) for client in clients]
    else:
        studies = [runs.run(shifted(function, seed), algorithm, chosen, rounds, seed)]
    curves = np.concatenate([curves_of(study, budget) for study in studies])
    return {"regret": curves, "regret per pull": curves[:, -1] / budget}


def curves_of(study: Study, budget: int) -> Array:
    """Return the cumulative regret of each client after `thinned(budget)` pulls, `(M, g)`."""
    found = []
    for agent in sorted(set(study.regret["agent"]), key=int):
        mine = study.regret.where(agent=agent)
        pulls, regret = (np.concatenate([[0.0], mine[name]]) for name in ("evaluations", "cumulative"))
        found.append(np.interp(thinned(budget), pulls, regret))
    return np.array(found)


def thinned(budget: int, num_points: int = 200) -> IntArray:
    """Return the numbers of pulls at which curves are recorded; the last is the budget."""
    return np.unique(np.linspace(0, budget, num_points + 1).astype(np.int64))[1:]
