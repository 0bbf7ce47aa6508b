"""Functions on the unit cube: shifted per agent with bounded noise, or one for all with Gaussian noise.

`XArmed` has the functions of the X-armed bandit literature, with exact optima.

[Li2024] leaves these conventions open: a point `u` of the unit cube is `x = low + (high - low) u`. Agent `m`
has `f_m(u) = f(clip(u - s_m, 0, 1))`, shifts `s = stddev * default_rng([seed, 1]).standard_normal((M, D))`.
Its optimum `f_m*` is the maximum over the points that it can reach, the box
`[clip(-s_m, 0, 1), clip(1 - s_m, 0, 1)]`. Noise is uniform on `[-noise, noise]`, one draw per pull.

References
----------
[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024, App. C.2.
[Zhan2025] Zhan, Zhang, Righter, Zheng, Anderson. Collaborative Bayesian optimization via Wasserstein
barycenters. 2025, Sec. IV-A.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems.base import Config, Problem, number
from fbo_flower.space import Float, SearchSpace

_Function = Callable[[Array], Array]

E1, E2 = -math.log2(0.3), -math.log2(0.8)  # exponents of the lower and the upper envelope of DoubleSine
HIMMELBLAU_RANGE = 890.0
SQUARE = SearchSpace({"x1": Float(0.0, 1.0), "x2": Float(0.0, 1.0)})
# Root of 2 x + 2 pi cos(2 pi x) next to 1/4, by Newton's method: where x^2 + sin(2 pi x) is largest.
F1_MODE = 0.26335752395784057


@dataclass(frozen=True)
class XArmed(Problem):
    """A function on the unit cube, shifted by a different vector for each agent.

    Attributes
    ----------
    shift_stddev : standard deviation of the shifts, in units of the cube; 0: one objective for all agents
    noise : half the range of the uniform noise; 0: deterministic
    """

    shift_stddev: float = 0.05
    noise: float = 0.1

    metric: ClassVar[str] = "function value"
    default_agents: ClassVar[int] = 10
    dimension: ClassVar[int]
    low: ClassVar[float]
    high: ClassVar[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("shift_stddev", self.shift_stddev >= 0, "a non-negative number")
        self.expect("noise", self.noise >= 0, "a non-negative number")

    @property
    def space(self) -> SearchSpace:
        return _unit_cube(self.dimension)

    @classmethod
    @abstractmethod
    def function(cls, x: Array) -> Array:
        """Return `f(x)`, `(n,)`, at points `(n, D)` of the function's domain."""

    @classmethod
    @abstractmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        """Return the maximum over a box `low, high (D,)` of the function's domain, to 1e-9."""

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return float(self.repeated(config, context, 1)[0])

    def repeated(self, config: Config, context: ObjectiveContext, repeats: int) -> Array:
        """Evaluate `config` many times, `(repeats,)`; draws the same noise as single evaluations."""
        noise = context.rng.uniform(-self.noise, self.noise, repeats)
        return self.true_value(config, context.partition) + noise

    def true_value(self, config: Config, partition: int) -> float:
        point = np.array([[number(config, name) for name in self.space.names]])
        return float(self.values(point, partition)[0])

    def values(self, points: Array, partition: int) -> Array:
        """Return `f_m` without noise, `(n,)`, at points `(n, D)` of the unit cube."""
        self.check_partition(partition)
        u = np.clip(np.asarray(points, dtype=np.float64) - shifts(self)[partition], 0.0, 1.0)
        return self.function(self.low + (self.high - self.low) * u)

    def optimum(self, partition: int) -> float:
        self.check_partition(partition)
        return _optimum(self, partition)


class Garland(XArmed):
    """`x (1 - x) (4 - sqrt|sin 60 x|)` on `[0, 1]`: cusps, the highest at pi/6 with value .99777."""

    name: ClassVar[str] = "garland"
    dimension: ClassVar[int] = 1
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @classmethod
    def function(cls, x: Array) -> Array:
        t = x[:, 0]
        return np.asarray(t * (1 - t) * (4 - np.sqrt(np.abs(np.sin(60 * t)))), dtype=np.float64)

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        # Cusps stand at multiples of pi/60, where the sine is 0; floats next to one miss its value by 1e-8.
        a, b = float(low[0]), float(high[0])
        cusps = np.pi / 60 * np.arange(np.ceil(a * 60 / np.pi), np.floor(b * 60 / np.pi) + 1)
        between = best_with_refinement(cls.function, a, b, cusps)
        return max(between, float((4 * cusps * (1 - cusps)).max(initial=-math.inf)))


class DoubleSine(XArmed):
    """Two envelopes and a sine in `log2 |2 x - 1|`: value 1 at `x = 1/2`, steep on both sides."""

    name: ClassVar[str] = "double-sine"
    dimension: ClassVar[int] = 1
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @classmethod
    def function(cls, x: Array) -> Array:
        u = 2 * np.abs(x[:, 0] - 0.5)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = (np.sin(np.pi * np.log2(u)) + 1) / 2 * (u**E2 - u**E1) - u**E2 + 1
        return np.where(u == 0.0, 1.0, values)

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        a, b = float(low[0]), float(high[0])
        return 1.0 if a <= 0.5 <= b else best_with_refinement(cls.function, a, b, np.empty(0))


class Himmelblau(XArmed):
    """`1 - [(x1^2 + x2 - 11)^2 + (x1 + x2^2 - 7)^2] / 890` on `[-5, 5]^2`: four maxima of value 1."""

    name: ClassVar[str] = "himmelblau"
    dimension: ClassVar[int] = 2
    low: ClassVar[float] = -5.0
    high: ClassVar[float] = 5.0

    @classmethod
    def function(cls, x: Array) -> Array:
        a, b = x[:, 0], x[:, 1]
        return np.asarray(
            1 - ((a**2 + b - 11) ** 2 + (a + b**2 - 7) ** 2) / HIMMELBLAU_RANGE, dtype=np.float64
        )

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        return best_by_closing_in(cls.function, low, high)


@lru_cache(maxsize=16)
def _unit_cube(dimension: int) -> SearchSpace:
    names = ("x",) if dimension == 1 else tuple(f"x{axis}" for axis in range(dimension))
    return SearchSpace({name: Float(0.0, 1.0) for name in names})


@lru_cache(maxsize=1024)
def shifts(problem: XArmed) -> Array:
    """Return every agent's shift, `(M, D)`, read-only.

    The first agents of a smaller federation have the same shifts as in a larger one.
    """
    rng = np.random.default_rng([problem.seed, 1])
    drawn = problem.shift_stddev * rng.standard_normal((problem.num_agents, problem.dimension))
    drawn.setflags(write=False)
    return drawn


@lru_cache(maxsize=65536)
def _optimum(problem: XArmed, partition: int) -> float:
    shift = shifts(problem)[partition]
    width = problem.high - problem.low
    low = problem.low + width * np.clip(-shift, 0.0, 1.0)
    high = problem.low + width * np.clip(1.0 - shift, 0.0, 1.0)
    return problem.reachable_maximum(low, high)


def best_with_refinement(function: _Function, a: float, b: float, candidates: Array) -> float:
    """Return the maximum over `[a, b]` of `candidates`, the ends and a grid refined around its best."""
    best = -math.inf
    for _ in range(12):  # a thousand points each time: the interval shrinks by 500
        x = np.unique(np.concatenate([np.linspace(a, b, 1001), candidates, [a, b]]))
        values = function(x[:, np.newaxis])
        k = int(np.argmax(values))
        best = max(best, float(values[k]))
        a, b = float(x[max(k - 1, 0)]), float(x[min(k + 1, len(x) - 1)])
        candidates = np.empty(0)
        if b - a < 1e-15:
            break
    return best


def best_by_closing_in(function: _Function, low: Array, high: Array) -> float:
    """Return the maximum over a box by refining grids around the best points of a first grid."""
    spacing = (high - low) / 40
    points = _grid(low, high, 41)
    values = function(points)
    best = -math.inf
    for k in np.argsort(-values)[:24]:  # basins are wider than the grid's spacing
        point, step, value = points[k], spacing, float(values[k])
        for _ in range(12):
            finer = _grid(np.maximum(low, point - step), np.minimum(high, point + step), 21)
            found = function(finer)
            j = int(np.argmax(found))
            point, value, step = finer[j], max(value, float(found[j])), step / 10
        best = max(best, value)
    return best


def _grid(low: Array, high: Array, size: int) -> Array:
    axes = [np.linspace(a, b, size) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


@dataclass(frozen=True)
class SharedFunction(Problem):
    """A function on the unit square that all agents evaluate, with independent noise [Zhan2025].

    Attributes
    ----------
    noise_variance : variance `sigma^2` of the noise of an observation; 0: deterministic
    """

    noise_variance: float = 0.02

    metric: ClassVar[str] = "function value"
    default_agents: ClassVar[int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("noise_variance", self.noise_variance >= 0, "a non-negative number")

    @property
    def space(self) -> SearchSpace:
        return SQUARE

    @staticmethod
    @abstractmethod
    def function(x1: float, x2: float) -> float:
        """Return the function's value; larger is better."""

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        noise = math.sqrt(self.noise_variance) * float(context.rng.standard_normal())
        return self.true_value(config, context.partition) + noise

    def true_value(self, config: Config, partition: int) -> float:
        self.check_partition(partition)
        return self.function(number(config, "x1"), number(config, "x2"))


class F1(SharedFunction):
    """`x1^2 + x2^2 + sin(2 pi x1) + cos(2 pi x2)`: maximum 3.0658 at (.263, 1), another of 3 at (1, 1)."""

    name: ClassVar[str] = "f1"

    @staticmethod
    def function(x1: float, x2: float) -> float:
        return x1**2 + x2**2 + math.sin(2 * math.pi * x1) + math.cos(2 * math.pi * x2)

    def optimum(self, partition: int) -> float:
        self.check_partition(partition)
        return self.function(F1_MODE, 1.0)
