"""Measure tuning alone where many first values are equal: a hill on a plateau, in three dimensions.

Each agent has a hill of its own, `max(0, 1 - (r / R)^2)` with `r` the distance from its top. The plateau is
70 % of the cube. The top is inside ([.25, .75] on each axis), on a face, or in a corner.

A run counts as flat if its three initial values are equal. Random search begins with the same points.
Standard errors are over runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fbo_flower import Float, SearchSpace
from fbo_flower.numerics.seeding import generator
from studies.experiment import Arrays, Experiment, Part, evaluations, run

NAMES, BUDGET, NUM_INITIAL = ("x", "y", "z"), 10, 3
SPACE = SearchSpace({name: Float(0.0, 1.0) for name in NAMES})
PLATEAU = 0.7
PLACES = ("inside", "face", "corner")


class Hill:
    """A hill with its top at `top (3,)`, higher than the plateau on 30 % of the cube."""

    def __init__(self, seed: int, agent: int, place: str) -> None:
        rng = generator(seed, "plateau", str(agent))
        self.top = 0.25 + 0.5 * rng.random(3)
        sides = rng.integers(0, 2, 3).astype(np.float64)
        on = {"inside": 0, "face": 1, "corner": 3}[place]
        self.top[:on] = sides[:on]
        cube = generator(0, "plateau").random((20_000, 3))
        distances = np.linalg.norm(cube - self.top, axis=1)
        self.radius = float(np.quantile(distances, 1.0 - PLATEAU))

    def __call__(self, config: Mapping[str, object]) -> float:
        point = np.array([float(str(config[name])) for name in NAMES])
        return 0.1 + max(0.0, 1.0 - (float(np.linalg.norm(point - self.top)) / self.radius) ** 2)


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: tops inside, 8 agents."""
    size = {"agents": 8 if quick else 48, "num_seeds": 1 if quick else 2}
    return [
        Part(
            "plateaus", climbed, PLACES[:1] if quick else PLACES, ["random", "ei", "ts"], range(1), size,
            "random", at=(4, 6, 8, 10), over="agents", fixed=True,
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("Tuning alone where many first values are equal", parts)


def climbed(place: str, algorithm: str, first: int, agents: int, num_seeds: int) -> Arrays:
    """Return the best values so far of runs that begin flat, and of the others, `(runs, 10)`."""
    values = []
    for seed in range(first, first + num_seeds):
        hills = [Hill(seed, agent, place) for agent in range(agents)]
        options, rounds = {"num_initial": NUM_INITIAL}, BUDGET - NUM_INITIAL + 1
        study = run(
            lambda config, hill: hill(config), algorithm, options, rounds, seed, space=SPACE, agents=hills
        )
        values += [evaluations(study, agent, BUDGET)[1] for agent in range(agents)]
    flat = np.ptp(np.array(values)[:, :NUM_INITIAL], axis=1) < 1e-12
    best = np.maximum.accumulate(values, axis=1)
    return {name: rows for name, rows in (("flat", best[flat]), ("others", best[~flat])) if len(rows)}
