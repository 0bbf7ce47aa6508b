"""Measure Co-KG on noisy functions, shared or differing, beside pooled qLogNEI of BoTorch.

Hartmann-3, Ackley-2 (on [-1, 2]^2) and Branin, scaled to [0, 1], with noise of s.d. .1: .16, .29
and .35 of the function's variance. Four agents with 24 evaluations each, the first 5 of their own. In the
second part every agent's function is moved by .3 in a direction of its own.

Regret is the difference between the optimum and the returned point, without noise, as a share of the
function's range. For shared functions the returned point is the server's; for differing ones each agent's own
recommendation counts.

`qlognei` sees all observations of all agents in one Gaussian process (BoTorch's default priors) and chooses
four points per round by qLogNoisyExpectedImprovement; it returns the maximiser of the posterior mean.
It needs `pip install fbo-flower[bench]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import Config, Problem, number
from studies.experiment import Arrays, Experiment, Part, run
from studies.papers.local_peers import is_installed, pooled_qlognei
from studies.problems.functions import ackley, branin, hartmann

NUM_AGENTS, NUM_INITIAL, NUM_TRIALS, NOISE = 4, 5, 24, 0.1
WAYS: dict[str, dict[str, object]] = {
    "recommended": {"central": "auto", "refit": "doubling"},
    "no collaboration": {"framework": "no-collaboration", "refit": "doubling"},
}

FUNCTIONS: dict[str, tuple[Callable[[Array], Array], int, float]] = {
    "hartmann3": (hartmann, 3, 3.86278),
    "ackley2": (lambda u: ackley(3.0 * u - 1.0), 2, 0.0),
    "branin": (lambda u: -branin(u), 2, -0.397887),
}  # function, dimension, maximum


@cache
def lowest(name: str) -> float:
    """Return the smallest value on 2^14 Sobol points."""
    function, dimension, _ = FUNCTIONS[name]
    return float(function(sobol(2**14, dimension, generator(0, "noisy", name))).min())


@dataclass(frozen=True)
class Noisy(Problem):
    """A function of `FUNCTIONS`, scaled to [0, 1], with noise.

    Attributes
    ----------
    function : its name
    shift : how far each agent's function is moved, reflected at the faces of the cube; 0: all share it
    """

    function: str = "branin"
    shift: float = 0.0

    name: ClassVar[str] = "noisy"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = NUM_AGENTS

    @property
    def space(self) -> SearchSpace:
        return SearchSpace({f"x{i}": Float(0.0, 1.0) for i in range(FUNCTIONS[self.function][1])})

    def true_value(self, config: Config, partition: int) -> float:
        function, dimension, highest = FUNCTIONS[self.function]
        u = np.array([number(config, f"x{i}") for i in range(dimension)])
        if self.shift:
            direction = generator(self.seed, "noisy", partition).standard_normal(dimension)
            u = np.abs(u + self.shift * direction / np.linalg.norm(direction))
            u = 1.0 - np.abs(1.0 - u)
        low = lowest(self.function)
        return float((function(u) - low) / (highest - low))

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition) + NOISE * float(context.rng.standard_normal())


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return shared and moved functions; quick: Branin, 8 evaluations, 2 seeds."""
    peer = [] if quick or not is_installed("qLogNEHVI") else ["qlognei"]
    seeds, labels = range(2 if quick else 12), ["branin"] if quick else list(FUNCTIONS)
    size, ways = {"num_trials": 8 if quick else NUM_TRIALS}, list(WAYS)
    alone = "no collaboration"
    return [
        Part("shared", regret, labels, [*ways, *peer], seeds, {"shift": 0.0, **size}, (peer or [alone])[0]),
        Part("moved by .3", regret, labels, ways, seeds, {"shift": 0.3, **size}, alone),
    ]


EXPERIMENT = Experiment("Co-KG on noisy functions beside pooled qLogNEI", parts)


def regret(function: str, way: str, seed: int, shift: float, num_trials: int) -> Arrays:
    """Return the regret of what is recommended and the noise variance that was estimated."""
    problem = Noisy(NUM_AGENTS, seed, function=function, shift=shift)
    if way == "qlognei":
        return pooled(problem, num_trials)
    study = run(problem, "co-kg", WAYS[way], num_trials - NUM_INITIAL + 1, seed)
    found = study.settings["runs"][0]["found"]
    told = study.recommendations
    assert told is not None
    own = [1.0 - problem.true_value(c, int(a)) for a, c in zip(told["agent"], told["config"], strict=True)]
    returned = [1.0 - problem.true_value(found["recommended"][-1]["config"], 0)]
    noise = np.array(found["noise_variance"] * found["scale"] ** 2)
    return {"regret": np.array(own if shift else returned), "noise variance": noise}


def pooled(problem: Noisy, num_trials: int) -> Arrays:
    """Run qLogNEI on the observations of all agents."""
    space, noise = problem.space, generator(problem.seed, "noisy", "noise")

    def values(points: Array) -> Array:
        true = [problem.true_value(space.decode(point), 0) for point in points]
        return np.array(true) + NOISE * noise.standard_normal(len(points))

    start = generator(problem.seed, "noisy", "start")
    x = np.concatenate([sobol(NUM_INITIAL, space.dimension, start) for _ in range(NUM_AGENTS)])
    best, variance = pooled_qlognei(values, x, num_trials - NUM_INITIAL, NUM_AGENTS, problem.seed)
    returned = 1.0 - problem.true_value(space.decode(best), 0)
    return {"regret": np.array([returned]), "noise variance": np.array(variance)}
