"""Measure what PF-PNE guarantees and where it fails: lost optima, differing clients, optima off centre.

A client has lost its optimum when it eliminated the cell that contains it. The smoothness that excludes
this, for all `x, y` with a common cell of depth `h`, is [Li2024, Assumption 2]
`f* - f(y) <= f* - f(x) + max(f* - f(x), nu1 rho^h)`.

References
----------
[Li2024] Li, Song, Honorio. Personalized federated X-armed bandit. AISTATS 2024.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import elimination
from fbo_flower.numerics.bandits.elimination import NEVER, Constants
from fbo_flower.simulation.problems import Garland, XArmed, make_problem, shifts
from studies.jobs import Arrays
from studies.papers.pne import reference
from studies.papers.pne.client import Shifted, locate, lost

MOVED = 0.137  # distance of the optima from the middle of the cube, in every dimension
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
    def num_clients(self) -> int:
        return len(self.peaks)

    def values(self, points: Array, client: int) -> Array:
        x = points[:, 0]
        peak = 1 - self.slope * np.abs(x - self.peaks[client]) ** self.power
        beside = np.maximum(0.0, np.abs(x - 0.8) - 0.15)
        return np.asarray(np.maximum(peak, self.plateau - self.slope * beside**self.power))

    def optimum(self, client: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Moved(Shifted):
    """A test function whose optimum was moved away from the middle of the cube."""

    def values(self, points: Array, client: int) -> Array:
        return self.problem.values(points - MOVED, client)


SHARP = Peaks((0.301, 0.311, 0.321, 0.331), slope=1.0, power=0.25, plateau=0.85)
APART = Peaks((0.1, 0.12, 0.88))  # the mean's maximum, .74, is at .12
APART_GAP = 0.26


def smooth_enough(surface: Peaks, nu: float, rho: float) -> bool:
    """Return whether all pairs of 1024 points satisfy the assumption, for each client and for the mean."""
    size = 1024
    x = (np.arange(size)[:, np.newaxis] + 0.5) / size
    functions = [surface.values(x, m) for m in range(surface.num_clients)]
    depth = np.zeros((size, size), dtype=int)  # depth of the smallest cell that has both points
    for h in range(1, 11):
        index = locate(x, h)
        depth[index[:, np.newaxis] == index] = h
    for f in [*functions, np.mean(functions, axis=0)]:
        gap = np.maximum(f.max() - f[:, np.newaxis], nu * rho**depth)  # [x, y]
        if (f[:, np.newaxis] - f > gap + 1e-12).any():
            return False
    return True


def lost_clients(surface: Peaks, seeds: Iterable[int], rho: float) -> int:
    """Return how many clients lose their optimum, over all seeds, with 4000 pulls each."""
    constants = Constants(SHARP_BUDGET, 1 / surface.num_clients, rho=rho)
    transition = elimination.transition_depth(1.0, rho, SHARP_GAP)
    count = 0
    for seed in seeds:
        run = reference.pne(surface, SHARP_BUDGET, seed, transition, constants)
        count += sum(lost(run, m, np.array([peak])) is not None for m, peak in enumerate(surface.peaks))
    return count


# -- cells -------------------------------------------------------------------------------------


def lost_sharp(rho: float, first_seed: int, num_seeds: int) -> Arrays:
    """Count the clients that lose a sharp peak beside a wide hill; `smooth` is 1 if the assumption holds."""
    count = lost_clients(SHARP, range(first_seed, first_seed + num_seeds), rho)
    clients = num_seeds * SHARP.num_clients
    return {
        "lost": np.array([count, clients], float),
        "smooth": np.array(float(smooth_enough(SHARP, 1, rho))),
    }


def lost_garland(rho: float, seed: int, budget: int) -> Arrays:
    """Count the clients that lose the highest cusp of Garland, of 10."""
    problem = Garland(10, seed)
    constants = Constants(budget, 0.1, rho=rho)
    run = reference.pne(
        Shifted(problem), budget, seed, elimination.transition_depth(1.0, rho, 0.01), constants
    )
    cusps = np.pi / 6 + shifts(problem)
    count = sum(lost(run, m, cusp) is not None for m, cusp in enumerate(cusps))
    return {"lost": np.array([count, problem.num_agents], float), "regret": run.final}


def apart(seed: int, budget: int) -> Arrays:
    """Run clients whose optima lie in different cells; return each one's regret, `(3,)`."""
    true = elimination.transition_depth(1.0, 0.5, APART_GAP)
    paper = elimination.transition_depth(1.0, 0.5, 0.01)
    return {
        "fed-pne": reference.pne(APART, budget, seed, NEVER).final,
        "pf-pne, Delta .01": reference.pne(APART, budget, seed, paper).final,
        "pf-pne, Delta .26": reference.pne(APART, budget, seed, true).final,
        "hct": reference.local_hct(APART, budget, seed).final,
        "racing": reference.racing_pne(APART, budget, seed).final,
    }


def moved(problem: str, seed: int, budget: int) -> Arrays:
    """Run a function whose optimum is not near the cube's centre; return each client's regret."""
    chosen = make_problem(problem, None, seed)
    assert isinstance(chosen, XArmed)
    algorithms = reference.algorithms()
    return {name: algorithms[name](Moved(chosen), budget, seed).final for name in ("pf-pne", "hct", "racing")}
