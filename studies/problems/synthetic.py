"""Two more functions of the PF-PNE paper, and Rosenbrock's, the second one of the Co-KG paper."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import SharedFunction, XArmed, best_by_closing_in, best_with_refinement


class Rosenbrock(SharedFunction):
    """`-(1 - x1)^2 - 100 (x2 - x1^2)^2`, minus Rosenbrock's loss: maximum 0 in the corner (1, 1)."""

    name: ClassVar[str] = "rosenbrock"

    @staticmethod
    def function(x1: float, x2: float) -> float:
        return -((1 - x1) ** 2) - 100 * (x2 - x1**2) ** 2

    def optimum(self, partition: int) -> float:
        self.check_partition(partition)
        return 0.0


ACKLEY_RANGE = abs(20 * math.exp(-0.2 * math.sqrt(0.5)) + math.exp(-1) - 20 - math.e)


class Ackley(XArmed):
    """Ackley's function on `[-1, 1]^2`, negated and scaled: a cone of value 1 at 0, and 0 at (1, 1) / 2."""

    name: ClassVar[str] = "ackley"
    dimension: ClassVar[int] = 2
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 1.0

    @classmethod
    def function(cls, x: Array) -> Array:
        cone = 20 * np.exp(-0.2 * np.sqrt(0.5 * (x**2).sum(axis=1)))
        waves = np.exp(0.5 * np.cos(2 * np.pi * x).sum(axis=1))
        return np.asarray(1 + (cone + waves - math.e - 20) / ACKLEY_RANGE, dtype=np.float64)

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        if (low <= 0).all() and (high >= 0).all():
            return 1.0
        return best_by_closing_in(cls.function, low, high)


class Rastrigin10D(XArmed):
    """Rastrigin's function on `[-1, 1]^10`, negated, scaled: 1 at 0, local maxima next to every integer."""

    name: ClassVar[str] = "rastrigin-10d"
    dimension: ClassVar[int] = 10
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 1.0

    @classmethod
    def function(cls, x: Array) -> Array:
        return np.asarray(1 + _rastrigin_term(x).sum(axis=1) / (20 * x.shape[1]), dtype=np.float64)

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        total = 0.0  # the function is a sum over dimensions: maximise each alone
        for a, b in zip(low, high, strict=True):
            zero = np.zeros(1) if a <= 0 <= b else np.empty(0)
            total += best_with_refinement(lambda x: _rastrigin_term(x[:, 0]), float(a), float(b), zero)
        return 1 + total / (20 * len(low))


def _rastrigin_term(x: Array) -> Array:
    return np.asarray(10 * np.cos(2 * np.pi * x) - x**2 - 10, dtype=np.float64)
