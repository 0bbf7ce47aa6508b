"""What it costs to wait for slow agents, and how much an exchange of messages is worth.

"Waiting": eight agents tune `f1` by `co-kg` on a simulated clock. Durations are log-normal with median 1 s
and sigma 1, agent 0 is a hundred times slower. The level is the best value of the median fast agent alone in
the time of 50 evaluations on average. "Exchanges": every agent makes three random evaluations in one
exchange, then 20 of its own, `k` in each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Async, Clock, Sync, log_normal, slower
from studies.experiment import Arrays, Experiment, Part, best_so_far, run
from studies.papers.ei.problems import PROBLEMS

AT = 50 * np.exp(0.5)  # seconds in which an agent makes 50 evaluations on average
GRID = np.geomspace(1.0, 20_000.0, 200)  # simulated seconds
MODES: dict[str, tuple[str, int, float, dict[str, Any]]] = {  # mode, rounds, quorum, options
    "alone": ("async", 60, 1.0, {"framework": "no-collaboration"}),
    "synchronous": ("sync", 40, 1.0, {}),
    "quorum .8": ("sync", 40, 0.8, {}),
    "asynchronous": ("async", 40, 1.0, {}),
    "auto, asynchronous": ("async", 40, 1.0, {"central": "auto", "refit": "doubling"}),
}
NUM_INITIAL, LATER = 3, 20
ROWS = ("ts; 1", "ei; 1", "fts; 1", "fts; 2", "fts; 5", "fts; 10")  # algorithm, trials in an exchange


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return both comparisons; quick: 3 agents, a tenth of the rounds, Hartmann-6, 2 seeds."""
    agents = 3 if quick else 8
    size = {"agents": agents, "shorter": 10 if quick else 1, "points": 36 if quick else 225}
    labels = ["Hartmann-6"] if quick else ["landmine linear", "digits", "Hartmann-6"]
    places, pairs = (2, 3, 5, 8, 11, 13, 18, 21, 23), [(row, "fts; 1") for row in ROWS[3:]]
    return [
        Part("waiting", clocked, ["f1"], list(MODES), range(2 if quick else 6), size, "alone", joint=True),
        Part(
            "exchanges", exchanged, labels, ROWS, range(500, 502 if quick else 512),
            {"agents": 3 if quick else 10}, "ei; 1", pairs, at=places, drawn="best by evaluations",
        ),
    ]  # fmt: skip


EXPERIMENT = Experiment("Stragglers on a simulated clock, and k trials in an exchange", parts)


def clocked(problem: str, seed: int, agents: int, shorter: int, points: int) -> Arrays:
    """Return of each mode the seconds to the level, whether it is reached, and the value after 82 s."""
    clock, at = Clock(slower(log_normal(1.0, 1.0), {"0": 100.0})), int(np.searchsorted(GRID, AT))
    curves, found = dict[str, Array](), Arrays()
    for row, (mode, rounds, quorum, more) in MODES.items():
        how = Async(None, clock) if mode == "async" else Sync(1, quorum, clock)
        chosen = {"num_points": points, **more}
        study = run(problem, "co-kg", chosen, rounds // shorter, seed, agents=agents, rounds=how)
        trials, times = study.trials, study.times
        places = zip(times["agent"], times["trial"], strict=True)
        ended = dict(zip(places, times["ended"], strict=True))
        best = np.full((agents, len(GRID)), -np.inf)  # so far, at the times of the grid
        for agent, trial, value in zip(*(trials[n] for n in ("agent", "trial", "value")), strict=True):
            reached = ended[agent, trial] <= GRID
            best[int(agent), reached] = np.maximum(best[int(agent), reached], value)
        curves[row] = np.median(best[1:], axis=0)  # of the fast agents
        reached = curves[row] >= curves["alone"][at]
        seconds = GRID[reached.argmax()] if reached.any() else np.inf
        found[f"{row}/seconds to the level"] = np.array(seconds)
        found[f"{row}/reached"] = reached.any().astype(float)
        found[f"{row}/best after 82 s"] = curves[row][at]
    return found


def exchanged(label: str, row: str, seed: int, agents: int) -> Arrays:
    """Return the best scores so far by evaluations `(agents, 23)`, and by exchanges."""
    algorithm, number = row.split("; ")
    problem, k = PROBLEMS[label](agents, seed), int(number)
    count = 1 + LATER // k
    study = run(problem, algorithm, {"trials_per_round": k}, count, seed)
    best = best_so_far(study, problem, NUM_INITIAL + LATER)
    after = np.minimum(NUM_INITIAL + np.arange(count) * k, NUM_INITIAL + LATER)
    return {"best by evaluations": best, "best by exchanges": best[:, after - 1]}
