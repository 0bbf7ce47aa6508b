"""Problems with several outputs: fronts and limits that differ from agent to agent.

Five are functions, each agent's shifted by its own draw; in two a random forest is trained on the rows of a
site of the digits data. A forest's cost is counted, in nodes and comparisons, and not timed.

- "Branin": the smallest value inside a disk [Gelbart2014].
- "Hartmann-6": the smallest value inside the ball of radius 1, as in BoTorch's tutorial on limits.
- "DTLZ2", "ZDT1": two objectives [Deb2005, Zitzler2000]. The shift moves the parameters that set the distance
  to the front, not the one that sets the place on it, so the fronts are those of the papers.
- "C2-DTLZ2": only parts of DTLZ2's front hold the limit [Jain2014]; radius .3, so that a fifth of all
  configurations holds it.
- "forest that fits": the most accurate forest whose comparisons per row hold the limit of the device.
- "small forest": accuracy against kilobytes.

References
----------
[Deb2005] Deb, Thiele, Laumanns, Zitzler. Scalable test problems for evolutionary multiobjective optimization.
[Gelbart2014] Gelbart, Snoek, Adams. Bayesian optimization with unknown constraints. UAI 2014.
[Jain2014] Jain, Deb. An evolutionary many-objective optimization algorithm using reference-point based
nondominated sorting approach, part II. IEEE TEC 18 (2014).
[Zitzler2000] Zitzler, Deb, Thiele. Comparison of multiobjective evolutionary algorithms. 2000.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fbo_flower.algorithms.aims import Aims
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.partitioners import dirichlet
from fbo_flower.space import Float, Int, SearchSpace
from studies.problems import functions

Outputs = dict[str, float]
NUM_AGENTS = 8
SHIFT = 0.1  # largest shift of an agent's function, in the unit cube
BOUNDS = (10.0, 20.0, 30.0, 60.0)  # comparisons per row that a device has time for


@dataclass(frozen=True)
class Site:
    """What an agent has: its number, the seed of the federation, and its bounds, output -> limit."""

    number: int
    seed: int
    limits: Mapping[str, float]


@dataclass(frozen=True)
class Problem:
    """A problem with several outputs.

    Parameters
    ----------
    goals : objectives, limits and reference, as `simulate` takes them
    function : `(config, site) -> outputs`
    worst : score of an agent without a configuration that holds its limits, with one objective
    bounds : limits of the agents in turn, for the one limited output; empty: all have those of `goals`
    """

    space: SearchSpace
    goals: Mapping[str, Any]
    function: Callable[[dict[str, Any], Site], Outputs]
    worst: float = 0.0
    bounds: tuple[float, ...] = ()

    def sites(self, seed: int) -> dict[str, Site]:
        """Return the agents of a federation."""
        (limited,) = self.goals.get("limits", {"": 0})
        own = [{limited: self.bounds[k % len(self.bounds)]} if self.bounds else {} for k in range(NUM_AGENTS)]
        return {str(k): Site(k, seed, own[k]) for k in range(NUM_AGENTS)}

    def aims(self, site: Site) -> Aims:
        """Return what a site wants, with its own bounds."""
        return Aims.of(False, **self.goals).with_limits(site.limits)


def unit(config: dict[str, Any]) -> Array:
    """Return a configuration of parameters from 0 to 1 as an array."""
    return np.array(list(config.values()))


def shift(site: Site, dimension: int) -> Array:
    """Return an agent's shift, `(dimension,)`."""
    return generator(site.seed, "shift", str(site.number)).uniform(-SHIFT, SHIFT, dimension)


def branin(config: dict[str, Any], site: Site) -> Outputs:
    u = unit(config) + shift(site, 2)
    x, y = 15.0 * u - [5.0, 0.0]
    return {"value": float(functions.branin(u)), "distance": (x - 2.5) ** 2 + (y - 7.5) ** 2}


def hartmann(config: dict[str, Any], site: Site) -> Outputs:
    x = unit(config) + shift(site, 6)
    return {"value": -float(functions.hartmann(x)), "norm": float(np.linalg.norm(x))}


def dtlz2(config: dict[str, Any], site: Site) -> Outputs:
    place, *rest = unit(config)
    distance = 1 + float(((np.array(rest) - 0.5 + shift(site, len(rest))) ** 2).sum())
    angle = place * np.pi / 2
    return {"first": distance * np.cos(angle), "second": distance * np.sin(angle)}


def c2_dtlz2(config: dict[str, Any], site: Site) -> Outputs:
    outputs, radius = dtlz2(config, site), 0.3
    f = np.array([outputs["first"], outputs["second"]])
    corners = (f - 1) ** 2 + f[::-1] ** 2 - radius**2
    middle = ((f - np.sqrt(0.5)) ** 2).sum() - radius**2
    return {**outputs, "outside": float(min(corners.min(), middle))}


def zdt1(config: dict[str, Any], site: Site) -> Outputs:
    place, *rest = unit(config)
    distance = 1 + 9 * float(np.abs(np.array(rest) - SHIFT - shift(site, len(rest))).mean())
    return {"first": float(place), "second": distance * (1 - np.sqrt(place / distance))}


@lru_cache(maxsize=4)
def _digits(seed: int) -> list[tuple[Array, Any, Array, Any]]:
    """Return training rows, labels, validation rows, labels of every site; sites differ in their digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    rng = generator(seed, "digits")
    parts = [rng.permutation(rows) for rows in dirichlet(y, NUM_AGENTS, 2.0, rng, min_size=80)]
    return [(x[p[::2]], y[p[::2]], x[p[1::2]], y[p[1::2]]) for p in parts]


def forest(config: dict[str, Any], site: Site) -> Outputs:
    from sklearn.ensemble import RandomForestClassifier

    x, y, held, labels = _digits(site.seed)[site.number]
    model = RandomForestClassifier(
        config["trees"], max_depth=config["depth"], max_features=config["features"],
        min_samples_leaf=config["leaf"], random_state=0,
    ).fit(x, y)  # fmt: skip
    trees = [estimator.tree_ for estimator in model.estimators_]
    passed = sum(tree.decision_path(held).nnz - len(held) for tree in trees)  # a path ends in a leaf
    return {
        "accuracy": float(model.score(held, labels)),
        "comparisons": float(passed / len(held)),
        "kilobytes": sum(tree.node_count for tree in trees) * 16 / 1024,
    }


def _cube(dimension: int) -> SearchSpace:
    return SearchSpace({f"x{k}": Float(0, 1) for k in range(dimension)})


_FOREST = SearchSpace({
    "trees": Int(1, 32, log=True), "depth": Int(2, 12), "features": Float(0.05, 1.0),
    "leaf": Int(1, 20, log=True),
})  # fmt: skip


def _forest(*names: str) -> Callable[[dict[str, Any], Site], Outputs]:
    """Return the function of some outputs of a forest."""
    return lambda config, site: {name: value for name, value in forest(config, site).items() if name in names}


_FRONT: dict[str, Mapping[str, Any]] = {"objectives": {"first": "min", "second": "min"}}
_NEAR = {"first": 1.5, "second": 1.5}

PROBLEMS: dict[str, Problem] = {
    "Branin": Problem(_cube(2), {"objectives": {"value": "min"}, "limits": {"distance": 50}}, branin, 40.0),
    "Hartmann-6": Problem(_cube(6), {"objectives": {"value": "min"}, "limits": {"norm": 1}}, hartmann),
    "DTLZ2": Problem(_cube(5), {**_FRONT, "reference": _NEAR}, dtlz2),
    "C2-DTLZ2": Problem(_cube(5), {**_FRONT, "limits": {"outside": 0}, "reference": _NEAR}, c2_dtlz2),
    "ZDT1": Problem(_cube(5), {**_FRONT, "reference": {"first": 1.0, "second": 5.0}}, zdt1),
    "forest that fits": Problem(
        _FOREST, {"objectives": {"accuracy": "max"}, "limits": {"comparisons": BOUNDS[0]}},
        _forest("accuracy", "comparisons"), 0.5, BOUNDS,
    ),
    "small forest": Problem(
        _FOREST, {"objectives": {"accuracy": "max", "kilobytes": "min"},
                  "reference": {"accuracy": 0.3, "kilobytes": 20}},
        _forest("accuracy", "kilobytes"),
    ),
}  # fmt: skip
