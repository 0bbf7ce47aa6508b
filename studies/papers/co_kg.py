"""Run Co-KG in the paper's settings, with all comparators and random search [Zhan2025, section IV].

There are two curves, both without noise: the value of the configuration that the server would return (the
paper's rule), and that of the best configuration tried, which the paper's curves resemble. All frameworks of
Co-KG start from the same points. If the California data are missing, that network is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import Config, Problem, make_problem
from fbo_flower.study import Study
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, Part, has_data
from studies.problems import CaliforniaMLP

Options = Mapping[str, Any]

NUM_AGENTS, NUM_INITIAL = 4, 5
RANDOM = "random"
FRAMEWORKS: dict[str, Options] = {
    "co-kg": {},
    "co-ei": {"acquisition": "ei"},
    "co-es": {"acquisition": "es"},
    "barycenter-qkg": {"framework": "barycenter-qkg"},
    "no-collaboration": {"framework": "no-collaboration"},
    "data-communication": {"framework": "data-communication"},
    "product": {"central": "product"},
    "product, beta 0": {"central": "product", "beta": 0.0},
    RANDOM: {},
}
KNOWN = {"noise_variance": 0.02}
FUNCTIONS: dict[str, tuple[str, Options]] = {
    "f1": ("f1", {}),
    "rosenbrock, log": ("rosenbrock", {"transform": "log"}),
    "rosenbrock, known noise": ("rosenbrock", KNOWN),
    "rosenbrock": ("rosenbrock", {}),
    "f1, known noise": ("f1", KNOWN),
}
FEWER = ("rosenbrock", "f1, known noise")  # settings with fewer frameworks
FEWER_FRAMEWORKS = ("co-kg", "barycenter-qkg", "no-collaboration", "data-communication", RANDOM)
NETWORKS = ("breast-cancer-mlp", "california-mlp")
NETWORK_FRAMEWORKS = (
    "co-kg", "barycenter-qkg", "no-collaboration", "data-communication", "product", RANDOM,
)  # fmt: skip


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return all parts; quick: one seed of three rounds on a small mesh."""
    sizes = {"num_draws": 8 if quick else 64, "mesh": 8 if quick else 20}
    seeds, first = range(1 if quick else 12), next(iter(FUNCTIONS))
    rows = {s: list(FEWER_FRAMEWORKS if s in FEWER else FRAMEWORKS) for s in FUNCTIONS}
    usual = {**sizes, "num_rounds": 3 if quick else 30}
    nets = NETWORKS if has_data(CaliforniaMLP(1, 0)) and not quick else NETWORKS[:1]
    net = {**sizes, "num_rounds": 3 if quick else 20, "epochs": {"num_epochs": 1} if quick else {}}
    shown: dict[str, Any] = {"baseline": "co-kg", "at": (3, 10, 20, 30), "first": 0}
    shown |= {"drawn": "best tried", "how": "log", "axis": "rounds"}
    return [
        Part("f1", run_one, [first], rows, range(1 if quick else 40), usual, **shown),
        Part("functions", run_one, [*rows][1:], rows, seeds, usual, **shown),
        Part("networks", run_one, nets, NETWORK_FRAMEWORKS, seeds, net, **shown),
    ]


EXPERIMENT = Experiment("Co-KG and its comparators on two functions and two networks", parts)


def run_one(
    setting: str,
    row: str,
    seed: int,
    num_rounds: int,
    num_draws: int,
    mesh: int,
    epochs: Options | None = None,
) -> Arrays:
    """Run one framework: the warm-up, then `num_rounds` rounds with one trial per agent.

    Returns
    -------
    returned, best tried : `(1, num_rounds + 1)`, noiseless differences to the optimum, of the configuration
        that the server would return after each round and of the best one tried so far; for networks, their
        losses. NaN after the first round, which recommends nothing.
    """
    problem, shared = FUNCTIONS.get(setting, (setting, {}))
    made = make_problem(problem, NUM_AGENTS, seed, dict(epochs or {}))
    options: Options = {"num_initial": NUM_INITIAL}
    if row != RANDOM:
        options = {"mesh": mesh, **options, **shared, "num_draws": num_draws, **FRAMEWORKS[row]}
    study = runs.run(made, RANDOM if row == RANDOM else "co-kg", options, num_rounds + 1, seed)
    returned, best = differences(study, made, num_rounds + 1)
    return {"returned": returned[None], "best tried": best[None]}


def differences(study: Study, problem: Problem, num_rounds: int) -> tuple[Array, Array]:
    """Return a run's noiseless differences to the optimum after every round; for a network, its losses.

    Returns
    -------
    recommended : `(num_rounds,)`, of the configuration that the server would return, NaN if it has none; for
        random search, of the trial with the largest value
    best : `(num_rounds,)`, of the best configuration tried so far
    """
    optimum = problem.optimum(0) or 0.0
    known: dict[tuple[tuple[str, object], ...], float] = {}

    def below(config: Config) -> float:
        key = tuple(sorted(config.items()))
        if key not in known:
            value = problem.true_value(config, 0)
            assert value is not None  # all problems of this experiment know it
            known[key] = optimum - value
        return known[key]

    tried = np.array([below(config) for config in study.trials["config"]])
    when = np.asarray(study.trials["round"], dtype=np.int64)
    seen = np.asarray(study.trials["value"], dtype=np.float64)
    recommended, best = np.full(num_rounds, np.nan), np.full(num_rounds, np.nan)
    told = study.settings["runs"][0].get("found", {}).get("recommended")
    for t in range(num_rounds):
        until = when <= t + 1
        best[t] = tried[until].min()
        if told is None:
            recommended[t] = tried[until][int(np.nanargmax(seen[until]))]
    for row in told or ():
        recommended[row["round"] - 1 :] = below(row["config"])
    return recommended, best
