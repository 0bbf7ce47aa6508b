"""Measure what PF-PNE guarantees and where it fails: lost optima.

A client has lost its optimum when it eliminated the cell that contains it. The smoothness that excludes
this, for all `x, y` with a common cell of depth `h`, is [Li2024, Assumption 2]
`f* - f(y) <= f* - f(x) + max(f* - f(x), nu1 rho^h)`.

References
----------
[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import elimination
from fbo_flower.numerics.bandits.elimination import Constants
from fbo_flower.simulation.problems import Garland, shifts
from studies.experiment import Arrays
from studies.papers.pne import reference
from studies.papers.pne.client import locate, lost

SHARP_GAP, SHARP_BUDGET = 0.02, 4000


@dataclass(frozen=True)
class Peaks:
    """`1 - slope |x - peak|^power` on `[0, 1]`, one peak per client, and a second hill shared by all.

    Parameters
    ----------
    peaks : `(M,)`, positions of the clients' optima
    noise : half the range of uniform noise
    plateau : height of a second hill around .8; below 0: no such hill
    """

    peaks: tuple[float, ...]
    slope: float = 1.0
    noise: float = 0.1
    power: float = 1.0
    plateau: float = -1.0

    dimension = 1

    @property
    def num_agents(self) -> int:
        return len(self.peaks)

    def values(self, points: Array, client: int) -> Array:
        x = points[:, 0]
        peak = 1 - self.slope * np.abs(x - self.peaks[client]) ** self.power
        beside = np.maximum(0.0, np.abs(x - 0.8) - 0.15)
        return np.asarray(np.maximum(peak, self.plateau - self.slope * beside**self.power))

    def optimum(self, client: int) -> float:
        return 1.0


SHARP = Peaks((0.301, 0.311, 0.321, 0.331), slope=1.0, power=0.25, plateau=0.85)
SHARP_RHO, GARLAND_RHO = ("0.8408964152537145", "0.5"), ("0.5", "0.7")


@cache
def smooth_enough(surface: Peaks, nu: float, rho: float) -> bool:
    """Return whether all pairs of 1024 points satisfy the assumption, for each client and for the mean."""
    size = 1024
    x = (np.arange(size)[:, np.newaxis] + 0.5) / size
    functions = [surface.values(x, m) for m in range(surface.num_agents)]
    depth = np.zeros((size, size), dtype=int)  # depth of the smallest cell that has both points
    for h in range(1, 11):
        index = locate(x, h)
        depth[index[:, np.newaxis] == index] = h
    for f in [*functions, np.mean(functions, axis=0)]:
        gap = np.maximum(f.max() - f[:, np.newaxis], nu * rho**depth)  # [x, y]
        if (f[:, np.newaxis] - f > gap + 1e-12).any():
            return False
    return True


# -- runs --------------------------------------------------------------------------------------


def lost_sharp(problem: str, rho: str, seed: int) -> Arrays:
    """Return which clients lose a sharp peak beside a wide hill; `smooth` is 1 if the assumption holds."""
    constants = Constants(SHARP_BUDGET, 1 / SHARP.num_agents, rho=float(rho))
    transition = elimination.transition_depth(1.0, float(rho), SHARP_GAP)
    run = reference.pne(SHARP, SHARP_BUDGET, seed, transition, constants)
    gone = [lost(run, m, np.array([peak])) is not None for m, peak in enumerate(SHARP.peaks)]
    return {"lost": np.array(gone, float), "smooth": np.array(float(smooth_enough(SHARP, 1, float(rho))))}


def lost_garland(problem: str, rho: str, seed: int, budget: int) -> Arrays:
    """Return which clients lose the highest cusp of Garland, `(10,)`."""
    garland = Garland(10, seed)
    constants = Constants(budget, 0.1, rho=float(rho))
    transition = elimination.transition_depth(1.0, float(rho), 0.01)
    run = reference.pne(garland, budget, seed, transition, constants)
    cusps = np.pi / 6 + shifts(garland)
    return {"lost": np.array([lost(run, m, cusp) is not None for m, cusp in enumerate(cusps)], float)}
