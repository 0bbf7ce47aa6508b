"""Is `fed-ei` ahead of `ei`? Paired differences on related and unrelated agents, and late joiners.

Both start from the same three random points per agent. A difference is that of the means over the agents of
one seed; the standard error is over seeds. Constants were chosen on seeds 0 to 63, so seeds begin at 300.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from studies.jobs import Arrays, Job, open_directory, run_jobs
from studies.papers.ei import report
from studies.papers.ei.curves import best_so_far, run_study
from studies.papers.ei.late import joined_late, with_agents
from studies.papers.ei.problems import PROBLEMS

FIRST_SEED = 300
LATE = ("Hartmann-6", "landmine linear", "landmine log")
LATE_BUDGET = 10
NUM_JOINERS = 3
FEDERATED: dict[str, Any] = {"secure_sums": 0}  # the same sums without masks, in a tenth of the time
WITHOUT_CONSENT = {**FEDERATED, "tilt": 0.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ei": ("ei", {}),
    "fed-ei": ("fed-ei", FEDERATED),
    "trend alone": ("fed-ei", WITHOUT_CONSENT),
}
SMALLER = 20  # the budget without consent, and where an evaluation trains models
COSTLY = ("digits", "landmine linear", "landmine log")


def run(
    directory: str | os.PathLike[str],
    quick: bool,
    num_workers: int,
    on_job: Callable[[str, int, int], None],
) -> list[Path]:
    """Run the jobs without a result; write `results.md` and two pictures after every seed, and return them.

    Parameters
    ----------
    quick : True: 2 seeds, Branin and late joiners of Branin with 4 agents, 6 evaluations
    """
    labels = ("Branin",) if quick else tuple(PROBLEMS)
    late = ("Branin",) if quick else LATE
    num_seeds, budget, agents = (2, 6, 4) if quick else (12, 50, 0)
    path = open_directory(directory, {"experiment": "fed-ei", "budget": budget})
    files: list[Path] = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
        common = {"seed": seed, "agents": agents}
        jobs = [
            Job(
                f"{label}-{variant}-{seed}",
                curves,
                {
                    **common,
                    "label": label,
                    "variant": variant,
                    "budget": min(budget, SMALLER) if variant == "trend alone" or label in COSTLY else budget,
                },
            )
            for label in labels
            for variant in VARIANTS
        ]
        held = budget if quick else 30
        jobs += [
            Job(
                f"late-{label}-{seed}",
                late_curves,
                {**common, "label": label, "held": held, "budget": min(budget, LATE_BUDGET)},
            )
            for label in late
        ]
        run_jobs(jobs, path, num_workers, partial(on_job, f"seed {seed}"))
        files = report.write(path, range(FIRST_SEED, seed + 1), tuple(VARIANTS)[1:], labels, late)
    return files


def curves(label: str, variant: str, seed: int, budget: int, agents: int) -> Arrays:
    """Return the best scores so far, `(agents, budget)`; `agents` 0: the problem's own number."""
    problem = with_agents(PROBLEMS[label][1](seed), agents)
    algorithm, options = VARIANTS[variant]
    return {"best": best_so_far(run_study(problem, algorithm, options, seed, budget), problem, budget)}


def late_curves(label: str, seed: int, held: int, budget: int, agents: int) -> Arrays:
    """Return the best scores so far of agents that join late, and of the same agents alone."""
    problem = with_agents(PROBLEMS[label][1](seed), agents)
    joiners = min(NUM_JOINERS, problem.num_agents // 2)
    return {
        "fed-ei": joined_late(problem, "fed-ei", FEDERATED, joiners, held, budget, seed),
        "ei": joined_late(problem, "ei", {}, joiners, 0, budget, seed),
    }
