"""Does `fed-ei` pay? Beside tuning alone, copying others, and FTS.

A row is an optimiser; one with two variants counts with the better of both, by the mean over all seeds at
each number of evaluations. All begin with the same random points of each agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.registry import FTS_OPTIONS
from studies.experiment import Arrays, Experiment, Part, best_so_far, curve_of, run_budget, starting_points
from studies.papers import local_peers
from studies.papers.ei.problems import PROBLEMS, SEVERAL

FEDERATED: dict[str, Any] = {"secure_sums": 0}  # the same trials without masks
Chosen = dict[str, tuple[str, dict[str, Any]]]


def _both(name: str, algorithm: str, options: Mapping[str, Any] | None = None) -> Chosen:
    return {f"{name}, {n} initial": (algorithm, {**(options or {}), "num_initial": n}) for n in (2, 3)}


RUNS: dict[str, Chosen] = {  # row -> label -> algorithm and options
    "ei": _both("ei", "ei"),
    "fed-ei": {"fed-ei": ("fed-ei", FEDERATED)},
    "share-best": _both("share-best", "share-best"),
    "share-random": _both("share-random", "share-random"),
    "fts": _both("fts", "fts", FTS_OPTIONS),
    "GPSampler": _both("GPSampler", "gpsampler"),
}
LABELS = {label: chosen for row in RUNS.values() for label, chosen in row.items()}
THREE = ("Styblinski-5", "draws, .64 in common", "Hartmann-6", "choice of a model")
FIFTY = ("Styblinski-5", "draws, .64 in common")  # without GPSampler
MOST_GP = 3  # agents that tune with GPSampler, the costliest row; they are compared with themselves


def settings(quick: bool) -> dict[str, tuple[str, int]]:
    """Return title -> problem and number of agents."""
    pairs = [("Branin", 3)] if quick else [(label, SEVERAL) for label in PROBLEMS]
    pairs += [] if quick else [*((label, 3) for label in THREE), *((label, 50) for label in FIFTY)]
    return {f"{label}, {agents} agents": (label, agents) for label, agents in pairs}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: Branin with 3 agents, 6 evaluations."""
    seeds, chosen = range(500, 502 if quick else 512), settings(quick)
    can = local_peers.is_installed()
    rows = {
        title: [row for row in RUNS if row != "GPSampler" or (can and agents < 50)]
        for title, (_, agents) in chosen.items()
    }
    common = {"settings": chosen, "budget": 6 if quick else 20}
    return [
        Part(
            "fed-ei", curves, list(chosen), rows, seeds, common, "ei", champion="fed-ei", at=(4, 5, 10, 20),
            better={row: list(labels) for row, labels in RUNS.items()}, drawn="best",
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("Federated expected improvement against the best local optimiser", parts)


def curves(title: str, row: str, seed: int, settings: dict[str, tuple[str, int]], budget: int) -> Arrays:
    """Return the best scores so far, `(agents, budget)`."""
    label, agents = settings[title]
    problem, (algorithm, options) = PROBLEMS[label](agents, seed), LABELS[row]
    if algorithm != "gpsampler":
        return {"best": best_so_far(run_budget(problem, algorithm, options, seed, budget), problem, budget)}
    starts = starting_points(problem, seed, options["num_initial"])
    best = [
        curve_of(problem, a, *local_peers.evaluations(problem, a, starts[a], algorithm, seed, budget))
        for a in range(min(agents, MOST_GP))
    ]
    return {"best": np.array(best)}
