"""Co-KG with stragglers on a simulated clock.

Eight agents tune `f1`. Durations are log-normal with median 1 s and sigma 1, agent 0 is a hundred times
slower. The level is the best value of the median fast agent alone in the time of 50 evaluations on average.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Async, Clock, Sync, log_normal, slower
from fbo_flower.study import Study
from studies.experiment import Arrays, Experiment, Part, run

AT = 50 * np.exp(0.5)  # seconds in which an agent makes 50 evaluations on average
GRID = np.geomspace(1.0, 20_000.0, 200)  # simulated seconds
MODES: dict[str, tuple[str, int, float, dict[str, Any]]] = {  # mode, rounds, quorum, options
    "alone": ("async", 60, 1.0, {"framework": "no-collaboration"}),
    "synchronous": ("sync", 40, 1.0, {}),
    "quorum .8": ("sync", 40, 0.8, {}),
    "asynchronous": ("async", 40, 1.0, {}),
    "auto, asynchronous": ("async", 40, 1.0, {"central": "auto", "refit": "doubling"}),
}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 3 agents, a tenth of the rounds."""
    size = {"agents": 3 if quick else 8, "shorter": 10 if quick else 1, "points": 36 if quick else 225}
    return [
        Part(
            "asynchrony", clocked, ["f1"], list(MODES), range(2 if quick else 6), size, "alone", joint=True,
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("Co-KG with stragglers on a simulated clock", parts)


def clocked(problem: str, seed: int, agents: int, shorter: int, points: int) -> Arrays:
    """Return of each mode the seconds to the level, whether it is reached, and the value after 82 s."""
    clock, at = Clock(slower(log_normal(1.0, 1.0), {"0": 100.0})), int(np.searchsorted(GRID, AT))
    curves, found = dict[str, Array](), Arrays()
    for row, (mode, rounds, quorum, more) in MODES.items():
        how = Async(None, clock) if mode == "async" else Sync(1, quorum, clock)
        chosen = {"num_points": points, **more}
        study = run(problem, "co-kg", chosen, rounds // shorter, seed, agents=agents, rounds=how)
        curves[row] = np.median(best_by_time(study, agents)[1:], axis=0)  # of the fast agents
        reached = curves[row] >= curves["alone"][at]
        seconds = GRID[reached.argmax()] if reached.any() else np.inf
        found[f"{row}/seconds to the level"] = np.array(seconds)
        found[f"{row}/reached"] = reached.any().astype(float)
        found[f"{row}/best after 82 s"] = curves[row][at]
    return found


def best_by_time(study: Study, agents: int) -> Array:
    """Return every agent's best value so far at the times of `GRID`."""
    found = np.full((agents, len(GRID)), -np.inf)
    for agent in range(agents):
        trials, times = study.trials.where(agent=str(agent)), study.times.where(agent=str(agent))
        ends = dict(zip(times["trial"].tolist(), times["ended"].tolist(), strict=True))
        for trial, value in zip(trials["trial"].tolist(), trials["value"].tolist(), strict=True):
            reached = ends[trial] <= GRID
            found[agent, reached] = np.maximum(found[agent, reached], value)
    return found
