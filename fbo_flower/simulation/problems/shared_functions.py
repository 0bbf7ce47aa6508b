"""A test function of [Zhan2025]: one objective for all agents, observed with Gaussian noise.

References
----------
[Zhan2025] Zhan, Zhang, Righter, Zheng, Anderson. Collaborative Bayesian optimization via Wasserstein
barycenters.
    2025, Sec. IV-A.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.simulation.problems.base import Config, Problem, number
from fbo_flower.space.space import Float, SearchSpace

SPACE = SearchSpace({"x1": Float(0.0, 1.0), "x2": Float(0.0, 1.0)})

# Root of 2 x + 2 pi cos(2 pi x) next to 1/4, by Newton's method: where x^2 + sin(2 pi x) is largest.
F1_MODE = 0.26335752395784057


@dataclass(frozen=True)
class SharedFunction(Problem):
    """A function on the unit square that all agents evaluate, with independent noise.

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
        return SPACE

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
