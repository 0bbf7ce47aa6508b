"""The comparators of `studies/peers` beside `ei`.

All start from the same three random points per agent, `fed-ei` from the first two of them. `flora` and
`dp-vote` return one configuration for all agents: their rows have the value of that configuration after as
many evaluations per agent; in `dp-vote` every agent votes for a fifth of the list. CPU time is that of whole
runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.study import Study
from studies.experiment import (
    Arrays,
    Experiment,
    Part,
    best_so_far,
    evaluations,
    run,
    run_budget,
    score,
    traffic,
)
from studies.papers.ei.problems import PROBLEMS

FEDERATED: dict[str, Any] = {"secure_sums": 0}  # the same trials without masks
Chosen = dict[str, tuple[str, dict[str, Any]]]  # row -> algorithm and options
CURVES: Chosen = {
    "ei": ("ei", {}),
    "fed-ei": ("fed-ei", FEDERATED),
    "share-best": ("share-best", {}),
    "share-random": ("share-random", {}),
    "consensus": ("consensus", {"transition": 17}),
    "fmtbo": ("fmtbo", {}),
    "random": ("random", {}),
}
COMBINE = ("single", "uncertainty", "max-min", "average")
ONE_FOR_ALL: Chosen = {
    **{f"flora {how}": ("flora", {**FEDERATED, "combine": how}) for how in COMBINE},
    "dp-vote no noise": ("dp-vote", {**FEDERATED, "noise_multiplier": 0.0}),
    "dp-vote z=1": ("dp-vote", {"secure_sums": 8, "noise_multiplier": 1.0}),
    "dp-vote z=4": ("dp-vote", {"secure_sums": 8, "noise_multiplier": 4.0}),
}
COUNTS = (3, 5, 10, 20)  # evaluations


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: Hartmann-6, without those that return one configuration."""
    rows = [*CURVES, *([] if quick else ONE_FOR_ALL)]
    labels = ["Hartmann-6"] if quick else ["landmine linear", "digits", "Hartmann-6"]
    agents = {"agents": 4 if quick else 10}
    return [
        Part(
            "peers", compared, labels, rows, range(2 if quick else 6), agents, "ei",
            places=COUNTS, at=COUNTS, drawn="value",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("Comparators from the field beside tuning alone", parts)


def compared(label: str, row: str, seed: int, agents: int) -> Arrays:
    """Return values `(1, 4)` after `COUNTS` evaluations, means over agents; bytes per agent; CPU seconds.

    A comparator that returns one configuration is run anew for every number of evaluations.
    """
    problem, begun = PROBLEMS[label](agents, seed), time.process_time()
    if row in CURVES:
        study = run_budget(problem, *CURVES[row], seed, COUNTS[-1])
        values = best_so_far(study, problem, COUNTS[-1]).mean(axis=0)[np.array(COUNTS) - 1]
    else:
        algorithm, chosen = ONE_FOR_ALL[row]
        values = np.full(len(COUNTS), np.nan)
        for place, number in enumerate(COUNTS):
            size = {"budget": number}
            if algorithm == "dp-vote":
                size = {"num_configs": number, "num_votes": max(1, number // 5)}
            study = run(problem, algorithm, {**chosen, **size}, None, seed)
            found: Any = study.settings["runs"][0]["found"]
            if "shared" in found:
                values[place] = value_of(study, problem, found["shared"])
    return {"value": values[None], **traffic(study), "CPU seconds": np.array(time.process_time() - begun)}


def value_of(study: Study, problem: Problem, config: Config) -> float:
    """Return the value of a configuration that all agents evaluated, mean over agents."""
    values = []
    for agent in range(problem.num_agents):
        known, mine = score(problem, config, agent), zip(*evaluations(study, agent), strict=True)
        values.append(next(v for c, v in mine if c == config) if known is None else known)
    return float(np.mean(values))
