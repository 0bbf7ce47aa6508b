"""Compare synchronous, quorum and asynchronous federations on a simulated clock with stragglers.

Twenty agents have log-normal durations with sigma 1, and agent 0 is a hundred times slower. Every agent of
`ei` tunes alone, without waiting, for 50 evaluations; the median agent's best value then is the level. The
table has the simulated seconds until the median agent of each federation reaches this level, and how many
agents end below their own `ei` after the same time::

    python benchmarks/asynchrony.py OUT.npz --seeds 12

The file keeps finished runs, so that a run that was stopped continues.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import numpy as np

from fbo_flower.experiments.ei.curves import score
from fbo_flower.experiments.ei.problems import ShiftedFunction
from fbo_flower.simulation import simulate
from fbo_flower.simulation.durations import log_normal, slower
from fbo_flower.study.study import Study

AGENTS, BUDGET, SLOW, FACTOR = 20, 50, "0", 100.0
PLAIN = {"secure_sums": 0}
# label -> algorithm, options, mode, quorum, number of rounds
RUNS = {
    "ei alone": ("ei", {}, "async", 1.0, BUDGET + 20),
    "fed-ei sync": ("fed-ei", PLAIN, "sync", 1.0, BUDGET),
    "fed-ei quorum .8": ("fed-ei", PLAIN, "sync", 0.8, BUDGET),
    "fed-ei async": ("fed-ei", PLAIN, "async", 1.0, BUDGET),
}
GRID = np.geomspace(0.5, 20_000.0, 400)  # simulated seconds


def curves(study: Study, problem: ShiftedFunction) -> np.ndarray:
    """Return every agent's best value so far at the times of `GRID`, `(agents, 400)`."""
    found = np.full((problem.num_agents, len(GRID)), -np.inf)
    for agent in range(problem.num_agents):
        trials, times = study.trials.where(agent=str(agent)), study.times.where(agent=str(agent))
        ends = dict(zip(times["trial"].tolist(), times["ended"].tolist(), strict=True))
        for config, trial in zip(trials["config"], trials["trial"].tolist(), strict=True):
            if trial in ends:
                value = score(problem, config, agent)
                assert value is not None
                reached = ends[trial] <= GRID
                found[agent, reached] = np.maximum(found[agent, reached], value)
    return found


def evaluations(study: Study, agent: int) -> int:
    """Return the number of evaluations of an agent."""
    return len(study.trials.where(agent=str(agent)))


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--function", default="hartmann-6")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    kept = dict(np.load(arguments.file)) if arguments.file.exists() else {}
    for seed in range(arguments.seeds):
        duration = slower(log_normal(1.0, 1.0), {SLOW: FACTOR})
        for label, (algorithm, options, mode, quorum, rounds) in RUNS.items():
            key = f"{label}|{seed}"
            if key in kept:
                continue
            problem = ShiftedFunction(AGENTS, seed, arguments.function)
            study = simulate(
                problem, algorithm, None, rounds, seed, "inline", options,
                mode=mode, quorum=quorum, durations=duration,
            )  # fmt: skip
            kept[key] = curves(study, problem)
            np.savez(arguments.file, **kept)
            print(seed, label, study.rounds["seconds"].sum().round(), flush=True)
    report(kept, arguments.seeds)


def report(kept: dict[str, np.ndarray], num_seeds: int) -> None:
    """Print the table."""
    times: dict[str, list[float]] = {label: [] for label in RUNS}
    behind: dict[str, list[float]] = {label: [] for label in RUNS}
    for seed in range(num_seeds):
        if not all(f"{label}|{seed}" in kept for label in RUNS):
            continue
        alone = kept[f"ei alone|{seed}"]
        fast = np.arange(AGENTS) != int(SLOW)
        at = int(np.argmin(np.abs(GRID - 50.0 * np.exp(0.5))))  # an agent has done 50 evaluations on average
        level = float(np.median(alone[fast, at]))
        for label in RUNS:
            found = kept[f"{label}|{seed}"]
            reached = np.median(found[fast], axis=0) >= level
            times[label].append(float(GRID[np.argmax(reached)]) if reached.any() else np.inf)
            behind[label].append(float((found[:, at] < alone[:, at]).mean()))
    print("| | seconds to the level | per seed: sync / this | agents behind `ei` at that time |")
    print("|---|---|---|---|")
    sync = np.array(times["fed-ei sync"])
    for label, found in times.items():
        seconds, ratio = np.array(found), sync / np.array(found)
        error = ratio.std(ddof=1) / np.sqrt(len(ratio)) if len(ratio) > 1 else np.nan
        print(
            f"| {label} | {np.median(seconds):.1f} | {ratio.mean():.1f} ± {error:.1f} "
            f"| {100 * np.mean(behind[label]):.0f} % |"
        )


if __name__ == "__main__":
    main()
