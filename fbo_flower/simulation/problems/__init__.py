"""The bundled benchmark problems, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.simulation.problems.base import Config, EvaluationContext, Problem
from fbo_flower.simulation.problems.california_trees import CaliforniaTrees
from fbo_flower.simulation.problems.digits_svm import DigitsSVM
from fbo_flower.simulation.problems.five_sites import (
    BreastCancerSites,
    FriSites,
    GravierSites,
    MadelonSites,
    SemeionSites,
)
from fbo_flower.simulation.problems.gp_samples import GPSamples
from fbo_flower.simulation.problems.heart import Heart
from fbo_flower.simulation.problems.landmine_svm import LandmineSVM
from fbo_flower.simulation.problems.mlp import BreastCancerMLP, CaliforniaMLP
from fbo_flower.simulation.problems.parkinsons_lr import ParkinsonsLR
from fbo_flower.simulation.problems.shared_functions import F1, Rosenbrock
from fbo_flower.simulation.problems.sites import SitesProblem
from fbo_flower.simulation.problems.table import PREFIX, TableProblem, table_problem
from fbo_flower.simulation.problems.xarmed import Ackley, DoubleSine, Garland, Himmelblau, Rastrigin10D

__all__ = [
    "F1",
    "PROBLEMS",
    "Ackley",
    "BreastCancerMLP",
    "BreastCancerSites",
    "CaliforniaMLP",
    "CaliforniaTrees",
    "Config",
    "DigitsSVM",
    "DoubleSine",
    "EvaluationContext",
    "FriSites",
    "GPSamples",
    "Garland",
    "GravierSites",
    "Heart",
    "Himmelblau",
    "LandmineSVM",
    "MadelonSites",
    "ParkinsonsLR",
    "Problem",
    "Rastrigin10D",
    "Rosenbrock",
    "SemeionSites",
    "SitesProblem",
    "TableProblem",
    "make_problem",
]

PROBLEMS: dict[str, type[Problem]] = {
    "digits-svm": DigitsSVM,
    "landmine-svm": LandmineSVM,
    "parkinsons-lr": ParkinsonsLR,
    "gp-samples": GPSamples,
    "garland": Garland,
    "double-sine": DoubleSine,
    "himmelblau": Himmelblau,
    "ackley": Ackley,
    "rastrigin-10d": Rastrigin10D,
    "f1": F1,
    "rosenbrock": Rosenbrock,
    "breast-cancer-mlp": BreastCancerMLP,
    "california-mlp": CaliforniaMLP,
    "california-trees": CaliforniaTrees,
    "heart-4sites": Heart,
    "breast-cancer-5sites": BreastCancerSites,
    "madelon-5sites": MadelonSites,
    "fri-5sites": FriSites,
    "semeion-5sites": SemeionSites,
    "gravier-5sites": GravierSites,
}


def make_problem(
    name: str, num_agents: int | None, seed: int, options: Mapping[str, object] | None = None
) -> Problem:
    """Build the problem called `name`.

    Parameters
    ----------
    name : a key of `PROBLEMS`, or "table:FILE" with a file made by `fbo-flower tabulate`
    num_agents : None: the problem's default; with fewer agents than the data has, the first ones take part
    seed : seed of what the problem draws once (splits, functions)
    options : see `PROBLEMS[name].options()`

    Raises
    ------
    ConfigError
        If the problem or an option is unknown, or the value of an option is out of bounds.
    """
    if name.startswith(PREFIX):
        return table_problem(name.removeprefix(PREFIX), num_agents, seed, options or {})
    problem = PROBLEMS.get(name)
    if problem is None:
        raise ConfigError(
            f"problem: expected one of {', '.join(PROBLEMS)}, {PREFIX}FILE, got {name!r}"
            f"{did_you_mean(name, PROBLEMS)}"
        )
    known = problem.options()
    chosen: dict[str, Any] = dict(options or {})  # values are checked by Problem.__post_init__
    unknown = [option for option in chosen if option not in known]
    if unknown:
        listing = ", ".join(f"{option}={default!r}" for option, default in known.items())
        raise ConfigError(
            f"{name}: expected options among {listing or 'none'}; got {', '.join(unknown)}"
            f"{did_you_mean(unknown[0], known)}"
        )
    return problem(problem.default_agents if num_agents is None else num_agents, seed, **chosen)
