"""Best values against evaluations and against exchanges, for `k` trials per round.

Every agent makes three random evaluations in one exchange, then 20 of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.experiment import Arrays, Experiment, Part, best_so_far, run, traffic
from studies.papers.ei.problems import PROBLEMS

NUM_INITIAL, LATER = 3, 20
AT_A_TIME = (1, 2, 5, 10)


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: Hartmann-6 with 3 agents, 2 seeds."""
    rows = ["ts; 1", "ei; 1", *(f"fts; {k}" for k in AT_A_TIME)]
    pairs = [(f"fts; {k}", "fts; 1") for k in AT_A_TIME[1:]]
    labels = ["Hartmann-6"] if quick else ["landmine linear", "digits", "Hartmann-6"]
    return [
        Part(
            "exchanges", exchanged, labels, rows, range(500, 502 if quick else 512),
            {"agents": 3 if quick else 10}, "ei; 1", pairs, at=(2, 3, 5, 8, 11, 13, 18, 21, 23),
            drawn="best by evaluations",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("Best values against evaluations and exchanges, k trials per round", parts)


def exchanged(label: str, row: str, seed: int, agents: int) -> Arrays:
    """Return best scores so far after evaluations `(agents, 23)` and after exchanges, and bytes per agent."""
    algorithm, number = row.split("; ")
    problem, k = PROBLEMS[label](agents, seed), int(number)
    count = 1 + LATER // k
    study = run(problem, algorithm, {"trials_per_round": k}, count, seed)
    best = best_so_far(study, problem, NUM_INITIAL + LATER)
    after = np.minimum(NUM_INITIAL + np.arange(count) * k, NUM_INITIAL + LATER)
    return {"best by evaluations": best, "best by exchanges": best[:, after - 1], **traffic(study)}
