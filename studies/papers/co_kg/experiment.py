"""Run Co-KG in the paper's settings, with all comparators and random search [Zhan2025, section IV].

There are two curves, both without noise: the value of the configuration that the server would return (the
paper's rule), and that of the best configuration tried, which the paper's curves resemble. All frameworks of
Co-KG start from the same points. If the California data are missing, that network is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fbo_flower.simulation.problems import make_problem
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, Part, has_data
from studies.papers.co_kg import special
from studies.papers.co_kg.special import MESH, NUM_AGENTS, NUM_INITIAL, differences
from studies.problems import CaliforniaMLP

Options = Mapping[str, Any]

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
SWEPT = ("f1", "rosenbrock, log")
FEWER_FRAMEWORKS = ("co-kg", "barycenter-qkg", "no-collaboration", "data-communication", RANDOM)
NETWORKS = ("breast-cancer-mlp", "california-mlp")
NETWORK_FRAMEWORKS = (
    "co-kg", "barycenter-qkg", "no-collaboration", "data-communication", "product", RANDOM,
)  # fmt: skip


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return all parts; quick: one seed of three rounds."""
    rounds, draws = {"num_rounds": 3 if quick else 30}, {"num_draws": 8 if quick else 64}
    seeds, first = range(1 if quick else 12), next(iter(FUNCTIONS))
    mesh = 6 if quick else 10
    rows = {s: list(FEWER_FRAMEWORKS if s in FEWER else FRAMEWORKS) for s in FUNCTIONS}
    swept: dict[str, Options] = {"co-kg, beta exp": {"beta": "exp"}, f"co-kg, mesh {mesh}": {"mesh": mesh}}
    at, usual = (3, 10, 20, 30), {**rounds, **draws}
    nets = NETWORKS if has_data(CaliforniaMLP(1, 0)) else NETWORKS[:1]
    net = {**draws, "num_rounds": 3 if quick else 20, "epochs": {"num_epochs": 1} if quick else {}}
    shown: dict[str, Any] = {"baseline": "co-kg", "at": at, "first": 0}
    shown |= {"drawn": "best tried", "how": "log", "axis": "rounds"}
    odd = [f"{kind}, {weights}" for kind in special.KINDS for weights in special.WEIGHTS]
    pairs = [(f"{kind}, reliability", f"{kind}, uniform") for kind in special.KINDS]
    return [
        Part("f1", run_one, [first], rows, range(1 if quick else 40), {"swept": {}, **usual}, **shown),
        Part("functions", run_one, [*rows][1:], rows, seeds, {"swept": {}, **usual}, **shown),
        Part("networks", run_one, nets, NETWORK_FRAMEWORKS, seeds, {"swept": {}, **net}, **shown),
        Part("odd agents", special.odd_agents, ["f1"], odd, seeds, usual, pairs=pairs, at=at, first=0),
        Part(
            "beta, mesh", run_one, SWEPT, ["co-kg", *swept], seeds, {"swept": swept, **usual}, at=at, first=0,
        ),
    ]  # fmt: skip


EXPERIMENT = Experiment("Co-KG and its comparators on two functions and two networks", parts)


def run_one(
    setting: str,
    row: str,
    seed: int,
    num_rounds: int,
    num_draws: int,
    swept: Mapping[str, Options],
    epochs: Options | None = None,
) -> Arrays:
    """Run one framework: the warm-up, then `num_rounds` rounds with one trial per agent.

    Parameters
    ----------
    swept : row -> the option that differs from those of the framework that it begins with

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
        own = FRAMEWORKS[row.split(", ", maxsplit=1)[0] if row in swept else row]
        options = {"mesh": MESH, **options, **shared, "num_draws": num_draws, **swept.get(row, {}), **own}
    study = runs.run(made, RANDOM if row == RANDOM else "co-kg", options, num_rounds + 1, seed)
    returned, best = differences(study, made, num_rounds + 1)
    return {"returned": returned[None], "best tried": best[None]}
