"""Compare synchronous and asynchronous Co-KG on a simulated clock with stragglers.

Eight agents maximise `f1`. Durations are log-normal with median 1 s and sigma 1, and agent 0 is a hundred
times slower. Alone is `framework = "no-collaboration"` without waiting; the level is the best value of its
median fast agent in the time of 50 evaluations on average::

    python -m studies.benchmarks.asynchrony_co_kg --seeds 6
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import numpy as np

from fbo_flower.algorithms import CoKG
from fbo_flower.simulation import Async, Clock, Sync, log_normal, simulate, slower
from fbo_flower.study import Study

AGENTS, BUDGET = 8, 50
AT = BUDGET * np.exp(0.5)  # seconds in which an agent makes 50 evaluations on average
GRID = np.geomspace(1.0, 20_000.0, 200)  # simulated seconds
AUTO: dict[str, Any] = {"central": "auto", "refit": "doubling"}
RUNS: dict[str, tuple[str, int, float, dict[str, Any]]] = {  # mode, rounds, quorum, options
    "alone": ("async", 60, 1.0, {"framework": "no-collaboration"}),
    "synchronous": ("sync", 40, 1.0, {}),
    "quorum .8": ("sync", 40, 0.8, {}),
    "asynchronous": ("async", 40, 1.0, {}),
    "auto, synchronous": ("sync", 40, 1.0, AUTO),
    "auto, quorum .8": ("sync", 40, 0.8, AUTO),
    "auto, asynchronous": ("async", 40, 1.0, AUTO),
}


def median_curve(study: Study) -> np.ndarray:
    """Return the best value so far of the median fast agent at the times of `GRID`, `(200,)`."""
    found = np.full((AGENTS, len(GRID)), -np.inf)
    for agent in range(1, AGENTS):
        trials, times = study.trials.where(agent=str(agent)), study.times.where(agent=str(agent))
        ends = dict(zip(times["trial"].tolist(), times["ended"].tolist(), strict=True))
        for trial, value in zip(trials["trial"].tolist(), trials["value"].tolist(), strict=True):
            reached = ends[trial] <= GRID
            found[agent, reached] = np.maximum(found[agent, reached], value)
    return np.asarray(np.median(found[1:], axis=0))


def main() -> None:
    """Run all settings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    number = parser.parse_args().seeds
    logging.getLogger("flwr").setLevel(logging.ERROR)
    duration, at = slower(log_normal(1.0, 1.0), {"0": 100.0}), int(np.searchsorted(GRID, AT))
    curves: dict[str, np.ndarray] = {}
    print("| | median seconds | seeds that reach the level | gain on alone after 82 s |")
    print("|---|---:|---:|---:|")
    for label, (mode, rounds, quorum, options) in RUNS.items():
        studies = [
            simulate(
                "f1", agents=AGENTS, algorithm=CoKG(num_points=225, **options), num_rounds=rounds, seed=seed,
                engine="inline",
                rounds=Async(None, Clock(duration)) if mode == "async" else Sync(1, quorum, Clock(duration)),
            )
            for seed in range(number)
        ]  # fmt: skip
        curves[label] = np.array([median_curve(study) for study in studies])
        reached = curves[label] >= curves["alone"][:, at, np.newaxis]
        seconds = np.where(reached.any(axis=1), GRID[reached.argmax(axis=1)], np.inf)
        gain = curves[label][:, at] - curves["alone"][:, at]
        error = gain.std(ddof=1) / np.sqrt(number)
        print(
            f"| {label} | {np.median(seconds):.1f} | {np.isfinite(seconds).sum()} "
            f"| {gain.mean():+.3f} ± {error:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
