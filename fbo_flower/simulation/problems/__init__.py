"""The bundled benchmark problems, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fbo_flower.errors import ConfigError, did_you_mean, kind_of
from fbo_flower.simulation.problems.base import Config, Problem, number
from fbo_flower.simulation.problems.digits import DigitsSVM, DigitsTrees
from fbo_flower.simulation.problems.functions import (
    F1,
    DoubleSine,
    Garland,
    Himmelblau,
    SharedFunction,
    XArmed,
    best_by_closing_in,
    best_with_refinement,
    shifts,
)
from fbo_flower.simulation.problems.gp_samples import GPSamples
from fbo_flower.simulation.problems.learners import Learner, make_learner, prepare
from fbo_flower.simulation.problems.sites import NUM_FOLDS, BreastCancerSites, FiveSites, SitesProblem, bag
from fbo_flower.simulation.problems.table import (
    FORMAT,
    MAX_DIMENSION,
    PREFIX,
    DelaunayInterpolant,
    TableData,
    TableProblem,
    read_table,
    table_problem,
)
from fbo_flower.space.checks import check_integer

__all__ = [
    "F1",
    "FORMAT",
    "MAX_DIMENSION",
    "NUM_FOLDS",
    "PREFIX",
    "PROBLEMS",
    "BreastCancerSites",
    "Config",
    "DelaunayInterpolant",
    "DigitsSVM",
    "DigitsTrees",
    "DoubleSine",
    "FiveSites",
    "GPSamples",
    "Garland",
    "Himmelblau",
    "Learner",
    "Problem",
    "SharedFunction",
    "SitesProblem",
    "TableData",
    "TableProblem",
    "XArmed",
    "bag",
    "best_by_closing_in",
    "best_with_refinement",
    "make_learner",
    "make_problem",
    "number",
    "prepare",
    "read_table",
    "shifts",
]

# other packages may add theirs
PROBLEMS: dict[str, type[Problem]] = {
    "digits-svm": DigitsSVM,
    "digits-trees": DigitsTrees,
    "gp-samples": GPSamples,
    "garland": Garland,
    "double-sine": DoubleSine,
    "himmelblau": Himmelblau,
    "f1": F1,
    "breast-cancer-5sites": BreastCancerSites,
}


def make_problem(
    name: str, num_agents: int | None, seed: int, options: Mapping[str, object] | None = None
) -> Problem:
    """Build the problem called `name`.

    Parameters
    ----------
    name : a key of `PROBLEMS`, or "table:FILE" with a file made by `python -m studies tabulate` of
        the repository
    num_agents : None: the problem's default; with fewer agents than the data has, the first ones take part
    seed : seed of what the problem draws once (splits, functions)
    options : see `PROBLEMS[name].options()`

    Raises
    ------
    ConfigError
        If the problem or an option is unknown, or the value of an option is out of bounds.
    """
    num_agents = None if num_agents is None else check_integer("agents", num_agents, 1)
    if not isinstance(name, str):
        raise ConfigError(f"problem: expected a name such as 'digits-svm', got {kind_of(name)}")
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
