"""Four functions of the global optimisation literature, shifted per agent like those of X-armed bandits.

Values are negated and scaled to [0, 1] by their range over the domain. On them literal PF-PNE loses to random
search at small budgets.

[Surjanovic2013] Surjanovic, Bingham. Virtual library of simulation experiments. sfu.ca/~ssurjano.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import XArmed, best_by_closing_in


class OnUnitCube(XArmed):
    """A function that maps the unit cube to its own domain."""

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        return best_by_closing_in(cls.function, low, high)


@dataclass(frozen=True)
class Branin(OnUnitCube):
    """Branin on `[-5, 10] x [0, 15]`: three maxima of value 1."""

    name: ClassVar[str] = "branin"
    dimension: ClassVar[int] = 2

    @classmethod
    def function(cls, x: Array) -> Array:
        a, b = 15 * x[:, 0] - 5, 15 * x[:, 1]
        inner = b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6
        value = inner**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(a) + 10
        return np.asarray(1 - (value - 0.39788735772973816) / 307.73123, dtype=np.float64)


@dataclass(frozen=True)
class Hartmann3(OnUnitCube):
    """Hartmann's function in three dimensions: value 1 at (.1146, .5556, .8525)."""

    name: ClassVar[str] = "hartmann-3"
    dimension: ClassVar[int] = 3

    @classmethod
    def function(cls, x: Array) -> Array:
        alpha = np.array([1.0, 1.2, 3.0, 3.2])
        a = np.array([[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]])
        p = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])
        exponent = (a * (x[:, np.newaxis, :] - p) ** 2).sum(axis=2)
        return np.asarray(np.exp(-exponent) @ alpha / 3.862782147820755, dtype=np.float64)


@dataclass(frozen=True)
class Ackley2(OnUnitCube):
    """Ackley's function on `[-32.768, 32.768]^2`: a narrow cone of value 1 in many waves."""

    name: ClassVar[str] = "ackley-2"
    dimension: ClassVar[int] = 2

    @classmethod
    def function(cls, x: Array) -> Array:
        z = 32.768 * (2 * x - 1)
        cone = -20 * np.exp(-0.2 * np.sqrt(0.5 * (z**2).sum(axis=1)))
        waves = -np.exp(0.5 * np.cos(2 * np.pi * z).sum(axis=1))
        return np.asarray(1 - (cone + waves + 20 + math.e) / 22.32, dtype=np.float64)

    @classmethod
    def reachable_maximum(cls, low: Array, high: Array) -> float:
        if (low <= 0.5).all() and (high >= 0.5).all():
            return 1.0
        return best_by_closing_in(cls.function, low, high)


@dataclass(frozen=True)
class Levy2(OnUnitCube):
    """Levy's function on `[-10, 10]^2`: value 1 at (1, 1), with ridges."""

    name: ClassVar[str] = "levy-2"
    dimension: ClassVar[int] = 2

    @classmethod
    def function(cls, x: Array) -> Array:
        w = 1 + (20 * x - 11) / 4
        first = np.sin(np.pi * w[:, 0]) ** 2
        middle = (w[:, 0] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, 0] + 1) ** 2)
        last = (w[:, 1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, 1]) ** 2)
        return np.asarray(1 - (first + middle + last) / 95.4, dtype=np.float64)


CLASSICS = {problem.name: problem for problem in (Branin, Hartmann3, Ackley2, Levy2)}
