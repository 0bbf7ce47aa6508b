"""Compare synchronous and asynchronous Co-KG on a simulated clock with stragglers.

Eight agents maximise `f1`. Durations are log-normal with median 1 s and sigma 1, and agent 0 is a hundred
times slower. Alone is `framework = "no-collaboration"` without waiting; the level is the best value of its
median fast agent in the time of 50 evaluations on average::

    python -m studies.benchmarks.asynchrony_co_kg --seeds 6
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fbo_flower.simulation import Async, Clock, Sync, log_normal, slower
from studies.benchmarks.asynchrony import best_by_time
from studies.benchmarks.bench import both, options, say
from studies.report import head
from studies.runs import run

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


def main() -> None:
    """Run all settings and print the table."""
    number = options(__doc__, seeds=6).seeds
    clock, at = Clock(slower(log_normal(1.0, 1.0), {"0": 100.0})), int(np.searchsorted(GRID, AT))
    curves: dict[str, np.ndarray] = {}
    print(head(["", "median seconds", "seeds that reach the level", "gain on alone after 82 s"]))
    for label, (mode, rounds, quorum, more) in RUNS.items():
        how = Async(None, clock) if mode == "async" else Sync(1, quorum, clock)
        chosen = {"num_points": 225, **more}
        studies = [
            run("f1", "co-kg", chosen, rounds, seed, agents=AGENTS, rounds=how) for seed in range(number)
        ]
        best = [best_by_time(study, AGENTS, GRID, lambda agent, config, value: value) for study in studies]
        curves[label] = np.median(np.array(best)[:, 1:], axis=1)  # of the fast agents
        reached = curves[label] >= curves["alone"][:, at, np.newaxis]
        seconds = np.where(reached.any(axis=1), GRID[reached.argmax(axis=1)], np.inf)
        gain = both(curves[label][:, at] - curves["alone"][:, at])
        say(label, f"{np.median(seconds):.1f}", np.isfinite(seconds).sum(), *gain)


if __name__ == "__main__":
    main()
