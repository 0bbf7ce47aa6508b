"""Does `fed-ei` pay? Beside tuning alone, copying others, other federated and pooled optimisers.

A row is an optimiser; one with two variants counts with the better of both, by the mean over all seeds at
each number of evaluations. All begin with the same random points of each agent. In a second part agents join
when the others have 20 evaluations each, beside the same agents alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.registry import FTS_OPTIONS
from studies.experiment import Arrays, Experiment, Part, best_so_far, curve_of, run_budget, starting_points
from studies.papers import local_peers
from studies.papers.ei import known_owners
from studies.papers.ei.late import joined_late
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
    "known owners": {"known owners": ("known owners", {})},
}
LABELS = {label: chosen for row in RUNS.values() for label, chosen in row.items()}
THREE = ("Styblinski-5", "draws, .64 in common", "Hartmann-6", "choice of a model")
FIFTY = ("Styblinski-5", "draws, .64 in common")  # without the costly rows
COSTLY = ("GPSampler", "known owners")
MOST_GP = 3  # agents that tune with GPSampler, the costliest row; they are compared with themselves
LATE = ("Hartmann-6", "Styblinski-5", "choice of a model")
NUM_JOINERS = 3


def settings(quick: bool) -> dict[str, tuple[str, int]]:
    """Return title -> problem and number of agents."""
    pairs = [("Branin", 3)] if quick else [(label, SEVERAL) for label in PROBLEMS]
    pairs += [] if quick else [*((label, 3) for label in THREE), *((label, 50) for label in FIFTY)]
    return {f"{label}, {agents} agents": (label, agents) for label, agents in pairs}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison and the late joiners; quick: Branin with 3 agents, 6 evaluations."""
    seeds, chosen = range(500, 502 if quick else 512), settings(quick)
    left_out = set() if local_peers.is_installed() else {"GPSampler"}
    rows = {
        title: [row for row in RUNS if row not in left_out and (agents < 50 or row not in COSTLY)]
        for title, (_, agents) in chosen.items()
    }
    common = {"settings": chosen, "budget": 6 if quick else 20}
    late = {"held": 4 if quick else 20, "budget": 6 if quick else 10}
    return [
        Part(
            "fed-ei", curves, list(chosen), rows, seeds, common, "ei", champion="fed-ei", at=(4, 5, 10, 20),
            better={row: list(labels) for row, labels in RUNS.items()}, drawn="best",
        ),
        Part(
            "late joiners", late_curves, ["Branin"] if quick else LATE, ["ei", "fed-ei"], seeds, late, "ei",
            at=(1, 2, 3, 5, 10), drawn="best", how="mean",
        ),
    ]  # fmt: skip


EXPERIMENT = Experiment(
    "Federated expected improvement against the best local optimiser, late joiners", parts
)


def curves(title: str, row: str, seed: int, settings: dict[str, tuple[str, int]], budget: int) -> Arrays:
    """Return the best scores so far, `(agents, budget)`."""
    label, agents = settings[title]
    problem, (algorithm, options) = PROBLEMS[label](agents, seed), LABELS[row]
    if algorithm == "gpsampler":
        starts = starting_points(problem, seed, options["num_initial"])
        best = [
            curve_of(problem, a, *local_peers.evaluations(problem, a, starts[a], algorithm, seed, budget))
            for a in range(min(agents, MOST_GP))
        ]
    elif algorithm == "known owners":
        points, values = known_owners.best_points(problem, seed, budget)
        decode = problem.space.decode
        best = [curve_of(problem, a, [decode(p) for p in points[a]], values[a]) for a in range(agents)]
    else:
        return {"best": best_so_far(run_budget(problem, algorithm, options, seed, budget), problem, budget)}
    return {"best": np.array(best)}


def late_curves(label: str, row: str, seed: int, held: int, budget: int) -> Arrays:
    """Return the best scores so far of agents that join late, or of the same agents alone."""
    problem, options = PROBLEMS[label](SEVERAL, seed), FEDERATED if row == "fed-ei" else {}
    before = held if row == "fed-ei" else 0
    return {"best": joined_late(problem, row, options, NUM_JOINERS, before, budget, seed)}
