"""Is `fed-ei` ahead of `ei`? Paired differences on related and unrelated agents, and late joiners.

Both start from the same three random points per agent. A difference is that of the means over the agents of
one seed; the standard error is over seeds. Constants were chosen on seeds 0 to 7, so seeds begin at 100.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.experiments.ei.curves import best_so_far, run_study
from fbo_flower.experiments.ei.late import joined_late, with_agents
from fbo_flower.experiments.ei.problems import PROBLEMS
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.jobs import Arrays, Job, has_result, load_job, open_directory, run_jobs

FIRST_SEED = 100
CHECKPOINTS = (3, 5, 10, 20)
LATE = ("Hartmann-6", "landmine linear", "landmine log")
LATE_CHECKPOINTS = (1, 2, 3, 5, 10)
NUM_JOINERS = 3
FEDERATED: dict[str, Any] = {"secure_sums": 0}  # the same sums without masks, in a tenth of the time
WITHOUT_CONSENT = {**FEDERATED, "tilt": 0.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ei": ("ei", {}),
    "fed-ei": ("fed-ei", FEDERATED),
    "trend alone": ("fed-ei", WITHOUT_CONSENT),
}


def run(
    directory: str | os.PathLike[str],
    quick: bool,
    num_workers: int,
    on_job: Callable[[str, int, int], None],
) -> list[Path]:
    """Run the jobs without a result, write `results.md` after every seed, and return this file.

    Parameters
    ----------
    quick : True: 2 seeds, Branin and late joiners of Branin with 4 agents, 6 evaluations
    """
    labels = ("Branin",) if quick else tuple(PROBLEMS)
    late = ("Branin",) if quick else LATE
    num_seeds, budget, agents = (2, 6, 4) if quick else (8, 20, 0)
    path = open_directory(directory, {"experiment": "fed-ei", "budget": budget})
    files: list[Path] = []
    for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
        common = {"seed": seed, "agents": agents}
        jobs = [
            Job(
                f"{label}-{variant}-{seed}",
                curves,
                {**common, "label": label, "variant": variant, "budget": budget},
            )
            for label in labels
            for variant in VARIANTS
        ]
        held = budget if quick else 30
        jobs += [
            Job(
                f"late-{label}-{seed}",
                late_curves,
                {**common, "label": label, "held": held, "budget": budget // 2},
            )
            for label in late
        ]
        run_jobs(jobs, path, num_workers, partial(on_job, f"seed {seed}"))
        files = [report(path, range(FIRST_SEED, seed + 1), labels, late, budget)]
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


# -- the report --------------------------------------------------------------------------------


def report(
    directory: Path, seeds: Sequence[int], labels: Sequence[str], late: Sequence[str], budget: int
) -> Path:
    """Write `results.md`: one table per variant, and one of late joiners."""
    checkpoints = [at for at in CHECKPOINTS if at <= budget]
    lines = [f"Seeds {seeds[0]} to {seeds[-1]}."]
    for variant in list(VARIANTS)[1:]:
        lines += ["", f"## {variant} minus ei", ""]
        lines += _head(
            ["problem", "seeds", *(f"at {at}" for at in checkpoints), f"agents worse at {checkpoints[-1]}"]
        )
        for label in labels:
            both = [
                _pair(directory, label, variant, seed) for seed in _finished(directory, label, variant, seeds)
            ]
            if both:
                difference = np.array([f.mean(axis=0) - e.mean(axis=0) for f, e in both])
                worse = np.mean([(f - e)[:, checkpoints[-1] - 1] < -1e-9 for f, e in both])
                row = [
                    label,
                    str(len(both)),
                    *(_shown(difference[:, at - 1]) for at in checkpoints),
                    f"{100 * worse:.0f} %",
                ]
                lines.append("| " + " | ".join(row) + " |")
    at = [n for n in LATE_CHECKPOINTS if n <= budget // 2]
    lines += ["", "## Late joiners: fed-ei minus ei", ""]
    lines += _head(["problem", "seeds", *(f"at {n}" for n in at), "fed-ei at 2", f"ei at {at[-1]}"])
    for label in late:
        found = [
            load_job(directory, f"late-{label}-{s}")
            for s in seeds
            if has_result(directory, f"late-{label}-{s}")
        ]
        fed, alone = (np.array([f[name].mean(axis=0) for f in found]) for name in ("fed-ei", "ei"))
        row = [label, str(len(found)), *(_shown((fed - alone)[:, n - 1]) for n in at)]
        row += [f"{fed[:, 1].mean():.3f}", f"{alone[:, at[-1] - 1].mean():.3f}"]
        lines.append("| " + " | ".join(row) + " |")
    path = directory / "results.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _finished(directory: Path, label: str, variant: str, seeds: Sequence[int]) -> list[int]:
    return [s for s in seeds if all(has_result(directory, f"{label}-{v}-{s}") for v in ("ei", variant))]


def _pair(directory: Path, label: str, variant: str, seed: int) -> tuple[Array, Array]:
    return tuple(load_job(directory, f"{label}-{v}-{seed}")["best"] for v in (variant, "ei"))  # type: ignore[return-value]


def _shown(differences: Array) -> str:
    count = len(differences)
    error = differences.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return f"{differences.mean():+.3f} ± {error:.3f}"


def _head(columns: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
