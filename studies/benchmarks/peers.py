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

import argparse
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.study import Study
from studies.papers.ei.problems import PROBLEMS
from studies.runs import best_so_far, run_budget, score

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


def curve(problem: Problem, variant: str, seed: int) -> dict[str, Array]:
    """Return best scores so far `(agents, BUDGET)`, bytes per agent and round, and CPU seconds."""
    algorithm, options = CURVES[variant]
    begun = time.process_time()
    study = run_budget(problem, algorithm, options, seed, BUDGET)
    seconds = time.process_time() - begun
    return {"best": best_so_far(study, problem, BUDGET), "bytes": sizes(study), "cpu": np.array(seconds)}


def shared(problem: Problem, variant: str, seed: int) -> dict[str, Array]:
    """Return the value of the shared configuration, mean over agents, for every number of evaluations."""
    algorithm, name, options = SHARED[variant]
    values, traffic = [], np.zeros(2)
    begun = time.process_time()
    for evaluations in CHECKPOINTS:
        budget: dict[str, Any] = {name: evaluations}
        if algorithm == "dp-vote":
            budget["num_votes"] = max(1, evaluations // 5)
        study = simulate(
            problem, algorithm=make_algorithm(algorithm, {**options, **budget}), seed=seed, engine="inline"
        )
        found = study.settings["runs"][0]["found"]  # type: ignore[index]
        values.append(value_of(study, problem, found["shared"]) if "shared" in found else np.nan)
        traffic = sizes(study)
    seconds = np.array(time.process_time() - begun)
    return {"values": np.array(values), "bytes": traffic, "cpu": seconds}


def value_of(study: Study, problem: Problem, config: Config) -> float:
    """Return the value of a configuration that all agents evaluated, mean over agents."""
    values = []
    for agent in range(problem.num_agents):
        known = score(problem, config, agent)
        rows = study.trials.where(agent=str(agent))
        seen = [v for c, v in zip(rows["config"], rows["value"], strict=True) if c == config]
        values.append(seen[0] if known is None else known)
    return float(np.mean(values))


def sizes(study: Study) -> Array:
    """Return the bytes down and up of a study per agent."""
    agents = len(set(study.trials["agent"].tolist()))
    return np.array([np.sum(study.rounds[name]) / agents for name in ("bytes_down", "bytes_up")])


def run_all(directory: Path, num_seeds: int, variants: Sequence[str]) -> None:
    """Run what has no file yet."""
    directory.mkdir(parents=True, exist_ok=True)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for seed in range(num_seeds):
        for label in LABELS:
            for variant in variants:
                path = directory / f"{label}-{variant}-{seed}.npz"
                if not path.exists():
                    problem = PROBLEMS[label](NUM_AGENTS, seed)
                    make = curve if variant in CURVES else shared
                    with single_thread():
                        np.savez(path, **make(problem, variant, seed))  # type: ignore[arg-type]


def report(directory: Path, num_seeds: int, variants: Sequence[str]) -> None:
    """Print a row per variant and problem, for the seeds that have been run."""
    print("| comparator | problem | seeds | " + " | ".join(f"at {n}" for n in CHECKPOINTS) + " |")
    print("|---" * (3 + len(CHECKPOINTS)) + "|")
    for variant in variants:
        for label in LABELS:
            rows = []
            for seed in range(num_seeds):
                ours, alone = (directory / f"{label}-{v}-{seed}.npz" for v in (variant, "ei"))
                if ours.exists() and alone.exists():
                    found, base = np.load(ours), at_checkpoints(np.load(alone))
                    rows.append((found["values"] if "values" in found else at_checkpoints(found)) - base)
            if rows and variant != "ei":
                means, errors = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
                cells = [f"{m:+.3f} ± {e:.3f}" for m, e in zip(means, errors, strict=True)]
                print(f"| {variant} | {label} | {len(rows)} | " + " | ".join(cells) + " |")
    print("\n| comparator | bytes down | bytes up | ms per agent and round |\n|---|---|---|---|")
    idle = cost(directory, "random", num_seeds)
    for variant in variants:
        measured = cost(directory, variant, num_seeds)
        if measured is not None and idle is not None:
            down, up, seconds = measured
            shown = "-"
            if variant in CURVES:
                shown = f"{1e3 * (seconds - idle[2]) / NUM_AGENTS / (BUDGET - 2):.1f}"
            print(f"| {variant} | {down:,.0f} | {up:,.0f} | {shown} |")


def at_checkpoints(found: Mapping[str, Array]) -> Array:
    """Return the best so far at the checkpoints, mean over agents."""
    return np.asarray(found["best"].mean(axis=0)[np.array(CHECKPOINTS) - 1], dtype=np.float64)


def cost(directory: Path, variant: str, num_seeds: int) -> tuple[float, float, float] | None:
    """Return bytes down and up per agent, and CPU seconds, of studies on Hartmann-6; medians over seeds."""
    paths = [directory / f"Hartmann-6-{variant}-{seed}.npz" for seed in range(num_seeds)]
    found = [np.load(path) for path in paths if path.exists()]
    if not found:
        return None
    down, up = np.median([f["bytes"] for f in found], axis=0)
    return float(down), float(up), float(np.median([f["cpu"] for f in found]))


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", nargs="+", default=[*CURVES, *SHARED])
    arguments = parser.parse_args()
    run_all(arguments.out, arguments.seeds, arguments.only)
    report(arguments.out, arguments.seeds, arguments.only)


if __name__ == "__main__":
    main()
