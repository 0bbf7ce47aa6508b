"""The problems of the comparison: related functions with known shapes, and two real ones.

The agents of a `ShiftedFunction` have one function each, on the unit cube: a common function, moved by a
random shift, scaled and offset. So neither the place of the optimum nor the units are the same. `score` is
the common function's value without scale and offset, which can be averaged over agents.

Sources: [Surjanovic] Surjanovic and Bingham, Virtual library of simulation experiments; [Picheny2013] for the
standardised Branin function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.simulation.problems import Config, Problem, make_problem
from fbo_flower.space import Categorical, Float, Int, Parameter, SearchSpace
from studies.papers.ei.model_choice import ModelChoice

Name = Literal[
    "hartmann-6", "hartmann-3", "branin", "ackley-5", "levy-4", "rastrigin-10", "styblinski-5",
    "rosenbrock-4", "michalewicz-4", "griewank-3", "dixon-5", "draws", "mixed",
]  # fmt: skip

_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A6 = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P6 = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
_A3 = np.array([[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]])
_P3 = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])


def hartmann(u: Array, a: Array, p: Array) -> float:
    """Return the Hartmann function of `u (D,)` in the unit cube [Surjanovic], to be maximised."""
    return float(_ALPHA @ np.exp(-(a * (u - p) ** 2).sum(axis=1)))


def branin(u: Array) -> float:
    """Return minus the standardised Branin function of `u (2,)` [Picheny2013]; the maximum is 1.0474."""
    x, y = 15 * u[0] - 5, 15 * u[1]
    bowl = (y - 5.1 * x**2 / (4 * np.pi**2) + 5 * x / np.pi - 6) ** 2
    return float(-(bowl + (10 - 10 / (8 * np.pi)) * np.cos(x) - 44.81) / 51.95)


def ackley(v: Array) -> float:
    """Return minus Ackley's function of `v (D,)` [Surjanovic]; the maximum is 0, at 0."""
    rings = np.exp(-0.2 * np.sqrt((v * v).mean()))
    return float(20 * rings + np.exp(np.cos(2 * np.pi * v).mean()) - 20 - np.e)


def levy(v: Array) -> float:
    """Return minus Levy's function of `v (D,)` [Surjanovic], moved so that the maximum 0 is at 0."""
    w = 1 + v / 4
    first = np.sin(np.pi * w[0]) ** 2
    middle = ((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)).sum()
    return float(-(first + middle + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)))


def valley(v: Array) -> float:
    """Return minus a bowl of `v (D,)` with ripples; the maximum is 0, at 0."""
    return float(-(v * v + 0.1 * (1 - np.cos(4 * np.pi * v))).mean() * 10)


def styblinski(v: Array) -> float:
    """Return minus the mean of Styblinski and Tang's function of `v (D,)` in [-5, 5] [Surjanovic]."""
    return float(-0.5 * (v**4 - 16 * v**2 + 5 * v).mean() / 10)


def rosenbrock(v: Array) -> float:
    """Return minus Rosenbrock's function of `v (D,)` over 1000 [Surjanovic]; the maximum is 0, at 1."""
    return float(-(100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2).sum() / 1000)


def michalewicz(v: Array) -> float:
    """Return Michalewicz's function of `v (D,)` in [0, pi], with wide valleys: exponent 4 [Surjanovic]."""
    return float((np.sin(v) * np.sin(np.arange(1, len(v) + 1) * v**2 / np.pi) ** 4).sum())


def griewank(v: Array) -> float:
    """Return minus Griewank's function of `v (D,)` [Surjanovic]; the maximum is 0, at 0."""
    return float(np.prod(np.cos(v / np.sqrt(np.arange(1, len(v) + 1)))) - 1 - (v * v).sum() / 50)


def dixon(v: Array) -> float:
    """Return minus Dixon and Price's function of `v (D,)`, divided by 1000 [Surjanovic]."""
    weights = np.arange(2, len(v) + 1)
    return float(-((v[0] - 1) ** 2 + (weights * (2 * v[1:] ** 2 - v[:-1]) ** 2).sum()) / 1000)


# dimension, the function of `u (D,)` in the cube; None: each agent has its own
FUNCTIONS: dict[str, tuple[int, Callable[[Array], float] | None]] = {
    "hartmann-6": (6, lambda u: hartmann(u, _A6, _P6)),
    "hartmann-3": (3, lambda u: hartmann(u, _A3, _P3)),
    "branin": (2, branin),
    "ackley-5": (5, lambda u: ackley(30 * (u - np.array([0.9, 0.1, 0.9, 0.1, 0.9])))),
    "levy-4": (4, lambda u: levy(20 * (u - np.array([0.9, 0.1, 0.9, 0.1])))),
    "rastrigin-10": (10, lambda u: valley(2 * (u - np.linspace(0.2, 0.8, 10)))),
    "styblinski-5": (5, lambda u: styblinski(10 * u - 5)),
    "rosenbrock-4": (4, lambda u: rosenbrock(15 * u - 5)),
    "michalewicz-4": (4, lambda u: michalewicz(np.pi * np.clip(u, 0.0, 1.0))),
    "griewank-3": (3, lambda u: griewank(12 * (u - np.array([0.3, 0.7, 0.4])))),
    "dixon-5": (5, lambda u: dixon(10 * u - 5)),
    "draws": (4, None),
    "mixed": (6, None),
}
MIXED: dict[str, Parameter] = {
    "depth": Int(1, 16),
    "rate": Float(0.0, 1.0),
    "rows": Float(0.0, 1.0),
    "booster": Categorical(["trees", "dart", "linear"]),
    "drop": Float(0.0, 1.0, active_when={"booster": "dart"}),
    "weight": Int(1, 100),
}


@dataclass(frozen=True)
class ShiftedFunction(Problem):
    """One function per agent: a common one, shifted, scaled and offset.

    Attributes
    ----------
    function : name of the common function. "draws": each agent has a draw of a Gaussian process
        "mixed": a function of integers, categories and a conditional parameter
    shift : largest shift along each axis of the unit cube
    common : of "draws", the share of variance that all agents have in common
    groups : of "draws", into how many groups agents are divided; only those of a group have it in common
    dimension : of "draws"
    mirrored : whether every second agent's function is mirrored at the centre of the cube
    noise : standard deviation of the observations, relative to the scale
    """

    function: Name = "hartmann-6"
    shift: float = 0.1
    mirrored: bool = False
    noise: float = 0.0
    common: float = 0.0
    groups: int = 1
    dimension: int = 4

    name: ClassVar[str] = "shifted-function"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = 10

    @property
    def space(self) -> SearchSpace:
        if self.function == "mixed":
            return SearchSpace(MIXED)
        draws = self.function == "draws"
        dimension = self.dimension if draws else FUNCTIONS[self.function][0]
        return SearchSpace({f"x{i}": Float(0.0, 1.0) for i in range(dimension)})

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        scale, offset = _units(self.seed, context.partition)
        value = self.score(config, context.partition) + self.noise * context.rng.standard_normal()
        return scale * value + offset

    def true_value(self, config: Config, partition: int) -> float:
        scale, offset = _units(self.seed, partition)
        return scale * self.score(config, partition) + offset

    def score(self, config: Config, partition: int) -> float:
        """Return the agent's value before scale and offset."""
        self.check_partition(partition)
        moved = self.shift * (2 * generator(self.seed, "shift", str(partition)).random(6 + 6) - 1)
        if self.function == "mixed":
            return _boosting(config, moved)
        u = np.array([float(str(config[name])) for name in self.space.names])
        if self.mirrored and partition % 2:
            u = 1 - u
        _, function = FUNCTIONS[self.function]
        if function is None:
            own = _draw(self.seed, f"{partition}", len(u))(u)
            shared = _draw(self.seed, f"group {partition % self.groups}", len(u))(u - moved[: len(u)])
            return float(np.sqrt(self.common) * shared + np.sqrt(1 - self.common) * own)
        return function(u - moved[: len(u)])


def _units(seed: int, partition: int) -> tuple[float, float]:
    rng = generator(seed, "units", str(partition))
    return float(np.exp(rng.uniform(-1, 1))), float(rng.uniform(-5, 5))


@functools.lru_cache(maxsize=256)
def _draw(seed: int, name: str, dimension: int) -> Callable[[Array], float]:
    """Return a draw of a Gaussian process with lengthscale .4."""
    rng = generator(seed, "draw", name)
    features = draw_features(500, 0.4, dimension, rng)
    weights = np.sqrt(2 / 500) * rng.standard_normal(500)
    return lambda u: float(features.cosines(u[None, :])[0] @ weights)


def _boosting(config: Config, moved: Array) -> float:
    """Return a function in the manner of boosting: a booster, its own parameters, and interactions."""
    depth, weight = (float(str(config["depth"])) - 1) / 15, (float(str(config["weight"])) - 1) / 99
    rate, rows = float(str(config["rate"])), float(str(config["rows"]))
    booster = config["booster"]
    value = -4 * (rate - 0.35 - moved[0] + 0.5 * (depth - 0.4)) ** 2 - (rows - 0.8 - moved[1]) ** 2
    value -= (weight - 0.15 - moved[2]) ** 2 * (1 + depth)
    if booster == "linear":
        return float(value - 0.6 - moved[3])
    value -= 2 * (depth - 0.4 - moved[4]) ** 2
    if booster == "dart":
        value += 0.15 - 3 * (float(str(config["drop"])) - 0.1 - 0.5 * moved[5]) ** 2
    return float(value)


def shifted(function: Name, **more: Any) -> Callable[[int, int], Problem]:
    """Return a problem of shifted functions, made from the number of agents and a seed."""
    return lambda agents, seed: replace(ShiftedFunction(agents, seed, function), **more)


Made = Callable[[int, int], Problem]
SEVERAL = 8  # agents, where nothing else is said
# label -> the problem of a number of agents and a seed
PROBLEMS: dict[str, Made] = {
    "Hartmann-6": shifted("hartmann-6"),
    "Hartmann-3": shifted("hartmann-3"),
    "Branin": shifted("branin"),
    "Ackley-5": shifted("ackley-5"),
    "Levy-4": shifted("levy-4"),
    "Styblinski-5": shifted("styblinski-5"),
    "Rosenbrock-4": shifted("rosenbrock-4"),
    "10-D": shifted("rastrigin-10"),
    "mixed and conditional": shifted("mixed"),
    "Hartmann-6, half mirrored": shifted("hartmann-6", mirrored=True),
    "draws, .64 in common": shifted("draws", common=0.64),
    "draws, unrelated": shifted("draws"),
    "Styblinski-5, noise": shifted("styblinski-5", noise=0.7),
    "draws, .64, noise": shifted("draws", common=0.64, noise=0.6),
    "digits": lambda agents, seed: make_problem("digits-svm", agents, seed),
    "choice of a model": ModelChoice,
    "landmine linear": lambda agents, seed: make_problem("landmine-svm", agents, seed),
    "landmine log": lambda agents, seed: make_problem("landmine-svm", agents, seed, {"scale": "log"}),
}
# on which constants were chosen
TUNING: dict[str, Made] = {
    "Michalewicz-4": shifted("michalewicz-4"),
    "Griewank-3": shifted("griewank-3"),
    "Dixon-5": shifted("dixon-5"),
    "draws 2-D, .8": shifted("draws", common=0.8, dimension=2),
    "draws 6-D, .5": shifted("draws", common=0.5, dimension=6),
    "draws 3-D, unrelated": shifted("draws", dimension=3),
    "draws 3-D, two groups": shifted("draws", common=0.9, groups=2, dimension=3),
    "Michalewicz-4, noise": shifted("michalewicz-4", noise=0.3),
}
