"""Compare all families of algorithms on the same problems with the same budget.

None of the papers has this comparison. Every agent has 50 evaluations, including the initial design. The
objectives of ten landmine fields, of ten agents with digits and of the four hospitals of `heart-4sites` are
tabulated first (`studies/problems/tabulate.py`), so that evaluations take no time. RFMS needs models, not
values: it runs on the hospitals themselves. One of them trains 50 configurations, two judge them, and the
shipped configuration is looked up in the table.

In five and more dimensions, and where half of the agents are unrelated, only the algorithms of `BROAD` run:
bandits and meshes need more evaluations than these. If Optuna is installed, its samplers run as well, each
agent alone: TPE like any other algorithm, GPSampler, which is slow, for three agents and 20 evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fbo_flower.simulation.problems import PREFIX, make_problem
from studies.jobs import Directory, Job, OnJob, open_directory, run_jobs
from studies.papers import families_report, optuna_peers
from studies.papers.families_report import job_name
from studies.papers.families_runs import ALGORITHMS, BROAD, RELATED, run_algorithm, run_peer, run_rfms
from studies.problems import tabulate  # the module, which also runs as jobs

BUDGET = 50
TABULATED: dict[str, tuple[str, dict[str, Any]]] = {  # label -> problem and its options
    "landmine-svm": ("landmine-svm", {}),
    "landmine-svm, log": ("landmine-svm", {"scale": "log"}),
    "digits-svm": ("digits-svm", {}),
    "heart-4sites": ("heart-4sites", {}),
}
NUM_POINTS = 400  # points of a table per agent


def problems(quick: bool) -> dict[str, int]:
    """Return the problems with their numbers of agents."""
    if quick:
        return {"f1": 2, "himmelblau": 3, "hartmann-6": 2}
    few = {"f1": 4, "himmelblau": 6, "heart-4sites": 4, "digits-svm": 10, "landmine-svm": 10}
    return {**few, "landmine-svm, log": 10, **dict.fromkeys(RELATED, 10), "california-trees": 8}


def labels(problem: str) -> tuple[str, ...]:
    """Return the labels of the algorithms that run on a problem."""
    return BROAD if problem in RELATED or problem.endswith(", log") else tuple(ALGORITHMS)


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and pictures, and return these files.

    The files are rewritten after every seed, so a stopped run leaves those of its finished seeds.

    Parameters
    ----------
    quick : True: 2 seeds, three functions with 2 and 3 agents, 12 evaluations
    """
    budget, num_seeds = (12, 2) if quick else (BUDGET, 12)
    path = open_directory(directory, {"experiment": "families", "budget": budget})
    tables = {} if quick else make_tables(path, num_workers, on_job)
    chosen = {problem: labels(problem) for problem in problems(quick)}
    files: list[Path] = []
    for seed in range(num_seeds):
        work = jobs(problems(quick), tables, seed, budget)
        run_jobs(work, path, num_workers, partial(on_job, f"seed {seed}"))
        files = families_report.report(path, chosen, seed + 1, budget)
    return files


def make_tables(directory: Path, num_workers: int, on_job: Callable[[str, int, int], None]) -> dict[str, str]:
    """Tabulate the expensive problems once; return the problem that replaces each."""
    found = {}
    for label, (name, options) in TABULATED.items():
        file = directory / f"{label.replace(', ', '-')}.npz"
        if not file.exists():
            shown = partial(_relabelled, on_job, f"table {label}")
            problem = make_problem(name, problems(False)[label], 0, options)
            tabulate.tabulate(problem, file, NUM_POINTS, 50, num_workers, shown)
        found[label] = f"{PREFIX}{file}"
    return found


def _relabelled(on_job: Callable[[str, int, int], None], label: str, stage: str, done: int, of: int) -> None:
    on_job(label, done, of)


def jobs(chosen: Mapping[str, int], tables: Mapping[str, str], seed: int, budget: int) -> list[Job]:
    """Return the jobs of one seed."""
    found = [
        Job(
            job_name(name, label, seed),
            run_algorithm,
            {
                "problem": tables.get(name, name),
                "num_agents": count,
                "label": label,
                "seed": seed,
                "budget": budget,
            },
        )
        for name, count in chosen.items()
        for label in labels(name)
    ]
    if optuna_peers.is_installed():
        found += [
            Job(
                job_name(name, sampler, seed),
                run_peer,
                {
                    "problem": tables.get(name, name),
                    "num_agents": count,
                    "sampler": sampler,
                    "seed": seed,
                    "budget": budget,
                },
            )
            for name, count in chosen.items()
            for sampler in optuna_peers.SAMPLERS
        ]
    if "heart-4sites" in chosen:
        known = {"table": tables["heart-4sites"], "seed": seed, "budget": budget}
        found.append(Job(job_name("heart-4sites", "rfms", seed), run_rfms, known))
    return found
