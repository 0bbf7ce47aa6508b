"""Measure what PF-PNE gains if ten agents with other shifts start from the survivors of an earlier stage 1.

python -m studies.benchmarks.warm_bandits
"""

from __future__ import annotations

import tempfile

import numpy as np

from fbo_flower.simulation import Keep, Start
from fbo_flower.study import Study
from studies.benchmarks.bench import both, options, say
from studies.report import head
from studies.runs import run

BUDGET, NUM_AGENTS, NUM_SEEDS = 2000, 10, 10
COLUMNS = ("cumulative", "simple", "floats")


def figures(study: Study) -> tuple[float, float, float]:
    """Return cumulative and simple regret at the end and floats sent, means over agents."""
    ends = [study.regret.where(agent=agent) for agent in sorted(set(study.regret["agent"].tolist()))]
    cumulative, simple = (float(np.mean([end[name][-1] for end in ends])) for name in COLUMNS[:2])
    return cumulative, simple, float(study.rounds["floats_up"].sum()) / NUM_AGENTS


def pair(problem: str, algorithm: str, seed: int) -> tuple[tuple[float, float, float], ...]:
    """Return the figures of a cold study and of one that starts from another federation's survivors."""
    common = problem, algorithm, {"budget": BUDGET}, None
    with tempfile.TemporaryDirectory() as earlier:
        run(*common, 100 + seed, agents=NUM_AGENTS, keep=Keep(out=earlier))
        warm = run(*common, seed, agents=NUM_AGENTS, start=Start(warm_start=earlier))
    return figures(run(*common, seed, agents=NUM_AGENTS)), figures(warm)


def main() -> None:
    """Print the table."""
    options(__doc__)
    columns = ["regret, cold", "warm - cold", "simple", "warm - cold", "floats, cold, warm"]
    print(head(["algorithm, problem", *columns]))
    for algorithm in ("pf-pne", "fed-pne"):
        for problem in ("garland", "himmelblau"):
            found = np.array([pair(problem, algorithm, seed) for seed in range(NUM_SEEDS)])
            cold, warm = found.mean(axis=0)
            regret, simple = (both(found[:, 1, i] - found[:, 0, i], d)[0] for i, d in ((0, 0), (1, 4)))
            floats = f"{cold[2]:.0f}, {warm[2]:.0f}"
            say(f"{algorithm}, {problem}", f"{cold[0]:.0f}", regret, f"{cold[1]:.4f}", simple, floats)


if __name__ == "__main__":
    main()
