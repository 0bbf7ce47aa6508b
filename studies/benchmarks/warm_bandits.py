"""Measure what PF-PNE gains if ten agents with other shifts start from the survivors of an earlier stage 1.

python -m studies.benchmarks.warm_bandits
"""

from __future__ import annotations

import logging
import tempfile

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.simulation import Keep, Start, simulate
from fbo_flower.study import Study

BUDGET, NUM_AGENTS, NUM_SEEDS = 2000, 10, 10
COLUMNS = ("cumulative", "simple", "floats")


def figures(study: Study) -> tuple[float, float, float]:
    """Return cumulative and simple regret at the end and floats sent, means over agents."""
    ends = [study.regret.where(agent=agent) for agent in sorted(set(study.regret["agent"].tolist()))]
    cumulative, simple = (float(np.mean([end[name][-1] for end in ends])) for name in COLUMNS[:2])
    return cumulative, simple, float(study.rounds["floats_up"].sum()) / NUM_AGENTS


def pair(problem: str, algorithm: str, seed: int) -> tuple[tuple[float, float, float], ...]:
    """Return the figures of a cold study and of one that starts from another federation's survivors."""
    options = {"budget": BUDGET}
    with tempfile.TemporaryDirectory() as earlier:
        simulate(
            problem,
            agents=NUM_AGENTS,
            algorithm=make_algorithm(algorithm, options),
            seed=100 + seed,
            engine="inline",
            keep=Keep(out=earlier),
        )
        prior = Start(warm_start=earlier)
        warm = simulate(
            problem,
            agents=NUM_AGENTS,
            algorithm=make_algorithm(algorithm, options),
            seed=seed,
            engine="inline",
            start=prior,
        )
    return figures(
        simulate(
            problem,
            agents=NUM_AGENTS,
            algorithm=make_algorithm(algorithm, options),
            seed=seed,
            engine="inline",
        )
    ), figures(warm)


def main() -> None:
    """Print the table."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print("| algorithm, problem | regret, cold | warm - cold | simple | warm - cold | floats, cold, warm |")
    print("|---|---:|---:|---:|---:|---|")
    for algorithm in ("pf-pne", "fed-pne"):
        for problem in ("garland", "himmelblau"):
            found = np.array([pair(problem, algorithm, seed) for seed in range(NUM_SEEDS)])
            cold, difference = found[:, 0].mean(axis=0), found[:, 1] - found[:, 0]
            errors = difference.std(axis=0, ddof=1) / np.sqrt(NUM_SEEDS)
            mean = difference.mean(axis=0)
            print(
                f"| {algorithm}, {problem} | {cold[0]:.0f} | {mean[0]:+.0f} ± {errors[0]:.0f} | "
                f"{cold[1]:.4f} | {mean[1]:+.4f} ± {errors[1]:.4f} | "
                f"{cold[2]:.0f}, {cold[2] + mean[2]:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
