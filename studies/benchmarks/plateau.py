"""Measure tuning alone where many first values are equal: a hill on a plateau, in three dimensions.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.plateau --agents 48 --seeds 2

Each agent has a hill of its own, `max(0, 1 - (r / R)^2)` with `r` the distance from its top. The plateau is
70 % of the cube. The top is inside ([.25, .75] on each axis), on a face, or in a corner. "steps": the values
are those of an accuracy on 50 rows. "rounded": the plateau varies by 1e-13.

A run counts as flat if its three initial values are equal. Differences are those of the best values so far
after 4, 6, 8 and 10 evaluations from random search, which begins with the same points. Standard errors are
over runs. "on a bound": the share of coordinates of evaluations 4 to 9 that are within .001 of the cube's
surface.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fbo_flower import Float, SearchSpace
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from studies.benchmarks.bench import options, say
from studies.report import shown
from studies.runs import evaluations, run

NAMES, BUDGET, CHECKPOINTS, NUM_INITIAL = ("x", "y", "z"), 10, (4, 6, 8, 10), 3
SPACE = SearchSpace({name: Float(0.0, 1.0) for name in NAMES})
PLATEAU = 0.7
PLACES = ("inside", "face", "corner")
ROUNDING = 1e-13


class Hill:
    """A hill with its top at `top (3,)`, higher than the plateau on 30 % of the cube."""

    def __init__(self, seed: int, agent: int, place: str, kind: str) -> None:
        rng, self.kind = generator(seed, "plateau", str(agent)), kind
        self.top = 0.25 + 0.5 * rng.random(3)
        sides = rng.integers(0, 2, 3).astype(np.float64)
        on = {"inside": 0, "face": 1, "corner": 3}[place]
        self.top[:on] = sides[:on]
        cube = generator(0, "plateau").random((20_000, 3))
        distances = np.linalg.norm(cube - self.top, axis=1)
        self.radius = float(np.quantile(distances, 1.0 - PLATEAU))

    def __call__(self, config: Mapping[str, object]) -> float:
        point = np.array([float(str(config[name])) for name in NAMES])
        value = max(0.0, 1.0 - (float(np.linalg.norm(point - self.top)) / self.radius) ** 2)
        if self.kind == "steps":
            return 0.1 + round(45 * value) / 50
        return 0.1 + value + (ROUNDING * float(np.sin(1e4 * point.sum())) if self.kind == "rounded" else 0.0)


def found(algorithm: str, hills: list[Hill], seed: int) -> tuple[Array, Array]:
    """Return values `(agents, budget)`, and points `(agents, budget, 3)`."""
    study = run(
        lambda config, hill: hill(config),
        algorithm,
        {"num_initial": NUM_INITIAL},
        BUDGET - NUM_INITIAL + 1,
        seed,
        space=SPACE,
        agents=hills,
    )
    values, points = [], []
    for agent in range(len(hills)):
        configs, found_values = evaluations(study, agent, BUDGET)
        values.append(found_values)
        points.append([[config[name] for name in NAMES] for config in configs])
    return np.array(values), np.array(points)


def main() -> None:
    """Print a line for each place, kind and algorithm."""
    chosen = {"kinds": ["exact", "steps", "rounded"], "places": list(PLACES), "algorithms": ["ei", "ts"]}
    asked = options(__doc__, agents=48, seeds=2, **chosen)
    for kind in asked.kinds:
        for place in asked.places:
            each: dict[str, list[tuple[Array, Array]]] = {}
            for seed in range(asked.seeds):
                hills = [Hill(seed, agent, place, kind) for agent in range(asked.agents)]
                for name in ("random", *asked.algorithms):
                    each.setdefault(name, []).append(found(name, hills, seed))
            values = {name: np.concatenate([v for v, _ in parts]) for name, parts in each.items()}
            flat = np.ptp(values["random"][:, :NUM_INITIAL], axis=1) < 10 * ROUNDING
            best = {name: np.maximum.accumulate(v, axis=1) for name, v in values.items()}
            for name, parts in each.items():
                points = np.concatenate([p for _, p in parts])[:, NUM_INITIAL : BUDGET - 1]
                bound = float((np.abs(points - np.round(points)) < 1e-3).mean())
                gains = best[name] - best["random"]
                cells = [
                    " ".join(shown(gains[rows][:, n - 1], 2, "+") for n in CHECKPOINTS)
                    for rows in (flat, ~flat)
                ]
                say(
                    kind, place, name, int(flat.sum()), cells[0], int((~flat).sum()), cells[1], f"{bound:.2f}"
                )


if __name__ == "__main__":
    with single_thread():
        main()
