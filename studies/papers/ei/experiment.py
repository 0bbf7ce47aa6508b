"""Does `fed-ei` pay? Beside tuning alone, copying others, other federated and pooled optimisers.

A row of the table is an optimiser; one with two variants counts with the better of both, by the mean over
all seeds at each number of evaluations. All begin with the same random points of each agent. A difference is
that of the means over the agents of one seed; the standard error is over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fbo_flower.algorithms.registry import FTS_OPTIONS
from studies.jobs import Arrays, Directory, Job, OnJob, open_directory, run_jobs
from studies.papers import optuna_peers
from studies.papers.ei import known_owners, report
from studies.papers.ei.curves import best_so_far, curve_of, run_study, starting_points
from studies.papers.ei.late import joined_late
from studies.papers.ei.problems import PROBLEMS, SEVERAL

FIRST_SEED, NUM_SEEDS, BUDGET = 500, 12, 20
FEDERATED: dict[str, Any] = {"secure_sums": 0}  # the same trials without masks
Variants = list[tuple[str, dict[str, Any]]]


def _both(algorithm: str, options: Mapping[str, Any] | None = None) -> Variants:
    return [(algorithm, {**(options or {}), "num_initial": number}) for number in (2, 3)]


ROWS: dict[str, Variants] = {
    "ei": _both("ei"),
    "fed-ei": [("fed-ei", FEDERATED)],
    "share-best": _both("share-best"),
    "share-random": _both("share-random"),
    "fts": _both("fts", FTS_OPTIONS),
    "GPSampler": _both("gpsampler"),
    "known owners": [("known owners", {})],
}
# other numbers of agents: label, number
OTHERS = [
    *((label, 3) for label in ("Styblinski-5", "draws, .64 in common", "Hartmann-6", "choice of a model")),
    *((label, 50) for label in ("Styblinski-5", "draws, .64 in common")),
]
MOST_GP = 3  # agents that tune with GPSampler, the costliest row; they are compared with themselves
MANY = 20  # agents from which on the costly rows are left out
COSTLY = ("GPSampler", "known owners")
LATE = ("Hartmann-6", "Styblinski-5", "choice of a model")
LATE_BUDGET, NUM_JOINERS, HELD = 10, 3, 20


def settings(quick: bool) -> list[tuple[str, int]]:
    """Return labels and numbers of agents."""
    return [("Branin", 3)] if quick else [*((label, SEVERAL) for label in PROBLEMS), *OTHERS]


def rows_of(agents: int) -> list[str]:
    """Return the rows that are measured with this number of agents."""
    left_out = set(COSTLY) if agents > MANY else set()
    left_out |= set() if optuna_peers.is_installed() else {"GPSampler"}
    return [row for row in ROWS if row not in left_out]


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result; write tables and pictures after every seed, and return the files.

    Parameters
    ----------
    quick : True: 2 seeds of Branin with 3 agents, 6 evaluations
    """
    num_seeds, budget = (2, 6) if quick else (NUM_SEEDS, BUDGET)
    path = open_directory(directory, {"experiment": "fed-ei", "budget": budget})
    files: list[Path] = []
    late = ("Branin",) if quick else LATE
    for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
        jobs = [
            Job(
                report.job_name(label, agents, row, variant, seed),
                curves,
                {
                    "label": label,
                    "agents": agents,
                    "row": row,
                    "variant": variant,
                    "seed": seed,
                    "budget": budget,
                },
            )
            for label, agents in settings(quick)
            for row in rows_of(agents)
            for variant in range(len(ROWS[row]))
        ]
        more = {"held": 4 if quick else HELD, "budget": min(budget, LATE_BUDGET), "seed": seed}
        jobs += [Job(f"late-{label}-{seed}", late_curves, {"label": label, **more}) for label in late]
        run_jobs(jobs, path, num_workers, partial(on_job, f"seed {seed}"))
        seeds = range(FIRST_SEED, seed + 1)
        files = report.write(path, settings(quick), {row: len(v) for row, v in ROWS.items()}, seeds, late)
    return files


def curves(label: str, agents: int, row: str, variant: int, seed: int, budget: int) -> Arrays:
    """Return the best scores so far, `(agents, budget)`."""
    problem = PROBLEMS[label](agents, seed)
    algorithm, options = ROWS[row][variant]
    if algorithm == "gpsampler":
        starts = starting_points(problem, seed, options["num_initial"])
        best = [
            curve_of(problem, a, *optuna_peers.evaluations(problem, a, starts[a], algorithm, seed, budget))
            for a in range(min(agents, MOST_GP))
        ]
        return {"best": best}  # type: ignore[dict-item]  # np.savez makes it an array
    if algorithm == "known owners":
        points, values = known_owners.best_points(problem, seed, budget)
        space = problem.space
        found = [
            curve_of(problem, agent, [space.decode(p) for p in points[agent]], values[agent])
            for agent in range(agents)
        ]
        return {"best": found}  # type: ignore[dict-item]
    return {"best": best_so_far(run_study(problem, algorithm, options, seed, budget), problem, budget)}


def late_curves(label: str, seed: int, held: int, budget: int) -> Arrays:
    """Return the best scores so far of agents that join late, and of the same agents alone."""
    problem = PROBLEMS[label](SEVERAL, seed)
    return {
        "fed-ei": joined_late(problem, "fed-ei", FEDERATED, NUM_JOINERS, held, budget, seed),
        "ei": joined_late(problem, "ei", {}, NUM_JOINERS, 0, budget, seed),
    }
