"""Rosenbrock's function, the second one of the Co-KG paper."""

from __future__ import annotations

from typing import ClassVar

from fbo_flower.simulation.problems import SharedFunction


class Rosenbrock(SharedFunction):
    """`-(1 - x1)^2 - 100 (x2 - x1^2)^2`, minus Rosenbrock's loss: maximum 0 in the corner (1, 1)."""

    name: ClassVar[str] = "rosenbrock"

    @staticmethod
    def function(x1: float, x2: float) -> float:
        return -((1 - x1) ** 2) - 100 * (x2 - x1**2) ** 2

    def optimum(self, partition: int) -> float:
        self.check_partition(partition)
        return 0.0
