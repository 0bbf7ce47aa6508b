"""Compare the comparators of `studies/peers` with `ei`: best so far, bytes and milliseconds.

All start from the same three random points per agent, `fed-ei` from the first two of them. A difference is
that of the means over the agents of one seed; the standard error is over seeds::

    python -m studies.benchmarks.peers OUT --seeds 6 [--only consensus fmtbo]

OUT is a directory with a file per run, so a run that was stopped continues. `flora` and `dp-vote` return one
configuration for all agents: their rows have the value of that configuration after as many evaluations per
agent, minus `ei`'s best so far; in `dp-vote` every agent votes for a fifth of the list. Milliseconds are CPU
time per agent and round on Hartmann-6, whose objective takes almost none, minus that of random search.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.study import Study
from studies.benchmarks.bench import both, options, resumed, say
from studies.jobs import Arrays, has, job, load
from studies.papers.ei.problems import PROBLEMS
from studies.report import head
from studies.runs import best_so_far, evaluations, run, run_budget, score, traffic

LABELS = ("landmine linear", "digits", "Hartmann-6")
NUM_AGENTS, BUDGET, CHECKPOINTS = 10, 20, (3, 5, 10, 20)
CURVES: dict[str, tuple[str, dict[str, Any]]] = {
    "ei": ("ei", {}),
    "fed-ei": ("fed-ei", {"secure_sums": 0}),
    "share-best": ("share-best", {}),
    "share-random": ("share-random", {}),
    "consensus": ("consensus", {"transition": BUDGET - 3}),
    "fmtbo": ("fmtbo", {}),
    "random": ("random", {}),
}
# algorithms that return one configuration: the option for the evaluations per agent, and the others
SHARED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "flora single": ("flora", "budget", {"secure_sums": 0, "combine": "single"}),
    "flora uncertainty": ("flora", "budget", {"secure_sums": 0, "combine": "uncertainty"}),
    "flora max-min": ("flora", "budget", {"secure_sums": 0, "combine": "max-min"}),
    "flora average": ("flora", "budget", {"secure_sums": 0, "combine": "average"}),
    "dp-vote no noise": ("dp-vote", "num_configs", {"secure_sums": 0, "noise_multiplier": 0.0}),
    "dp-vote z=1": ("dp-vote", "num_configs", {"secure_sums": 8, "noise_multiplier": 1.0}),
    "dp-vote z=4": ("dp-vote", "num_configs", {"secure_sums": 8, "noise_multiplier": 4.0}),
}


def measured(label: str, variant: str, seed: int) -> Arrays:
    """Return values at the checkpoints, means over agents; bytes per agent and round; CPU seconds.

    A comparator that returns one configuration is run anew for every number of evaluations.
    """
    problem, begun = PROBLEMS[label](NUM_AGENTS, seed), time.process_time()
    if variant in CURVES:
        study = run_budget(problem, *CURVES[variant], seed, BUDGET)
        values = best_so_far(study, problem, BUDGET).mean(axis=0)[np.array(CHECKPOINTS) - 1]
    else:
        algorithm, name, chosen = SHARED[variant]
        values = np.full(len(CHECKPOINTS), np.nan)
        for place, number in enumerate(CHECKPOINTS):
            votes = {"num_votes": max(1, number // 5)} if algorithm == "dp-vote" else {}
            study = run(problem, algorithm, {**chosen, name: number, **votes}, None, seed)
            found: Any = study.settings["runs"][0]["found"]  # type: ignore[index]
            if "shared" in found:
                values[place] = value_of(study, problem, found["shared"])
    return {"values": values, "bytes": traffic(study), "cpu": np.array(time.process_time() - begun)}


def value_of(study: Study, problem: Problem, config: Config) -> float:
    """Return the value of a configuration that all agents evaluated, mean over agents."""
    values = []
    for agent in range(problem.num_agents):
        known, mine = score(problem, config, agent), zip(*evaluations(study, agent), strict=True)
        values.append(next(v for c, v in mine if c == config) if known is None else known)
    return float(np.mean(values))


def report(directory: Path, num_seeds: int, variants: Sequence[str]) -> None:
    """Print a row per variant and problem, for the seeds that have been run."""

    def stacked(key: str, label: str, variant: str, seeds: Sequence[int]) -> Array:
        return np.array([load(directory, measured, label, variant, seed)[key] for seed in seeds])

    def there(label: str, *names: str) -> list[int]:
        return [s for s in range(num_seeds) if all(has(directory, measured, label, n, s) for n in names)]

    print(head(["comparator", "problem", "seeds", *(f"at {n}" for n in CHECKPOINTS)]))
    for variant in variants:
        for label in LABELS:
            seeds = there(label, variant, "ei")
            if seeds and variant != "ei":
                gains = stacked("values", label, variant, seeds) - stacked("values", label, "ei", seeds)
                say(variant, label, len(seeds), *both(gains))
    print("\n" + head(["comparator", "bytes down", "bytes up", "ms per agent and round"]))
    problem = LABELS[-1]
    idle = there(problem, "random")
    for variant in variants if idle else ():
        seeds = there(problem, variant)
        if seeds:
            down, up = np.median(stacked("bytes", problem, variant, seeds), axis=0)
            spent, free = (
                np.median(stacked("cpu", problem, v, s)) for v, s in ((variant, seeds), ("random", idle))
            )
            each = f"{1e3 * (spent - free) / NUM_AGENTS / (BUDGET - 2):.1f}"
            say(variant, f"{down:,.0f}", f"{up:,.0f}", each if variant in CURVES else "-")


def main() -> None:
    """Run and report."""
    given = options(__doc__, "out", seeds=6, only=[*CURVES, *SHARED])
    work = [job(measured, p, v, seed) for seed in range(given.seeds) for p in LABELS for v in given.only]
    report(resumed(given.out, {"benchmark": "peers"}, work), given.seeds, given.only)


if __name__ == "__main__":
    main()
