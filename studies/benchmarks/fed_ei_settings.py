"""`fed-ei` minus `ei` with other numbers of agents and with noise, and the time of a step.

    python -m studies.benchmarks.fed_ei_settings --agents 3 --seeds 8
    python -m studies.benchmarks.fed_ei_settings --noise 0.3 --seeds 4
    python -m studies.benchmarks.fed_ei_settings --agents 300 --first 1 --seeds 3 --budget 10 [--centres 16]
    python -m studies.benchmarks.fed_ei_settings --agents 100 --multiplier 1 --budget 10 --problem branin

Prints the difference of best values so far, mean over agents, with the standard error over seeds, and the CPU
time of a step of each algorithm. Values are without the noise. Constants were chosen on the seeds 0 to 7.
`--multiplier` compares the trend alone, with noise on its sums as if all agents were in one secure sum.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from studies.papers.ei.experiment import FEDERATED, WITHOUT_CONSENT
from studies.papers.ei.late import joined_late
from studies.papers.ei.problems import ShiftedFunction

CHECKPOINTS = (3, 5, 10, 20, 50)


def options(agents: int, multiplier: float | None) -> dict[str, Any]:
    """Return the options of `fed-ei`; sums in the clear, each agent with its part of the noise."""
    if multiplier is None:
        return FEDERATED
    return {**WITHOUT_CONSENT, "noise_multiplier": multiplier / agents**0.5}


def curves(
    name: Any,
    agents: int,
    noise: float,
    multiplier: float | None,
    centres: Mapping[str, int],
    seed: int,
    budget: int,
) -> tuple[dict[str, Array], dict[str, float]]:
    """Return the mean best value so far `(budget,)` of each algorithm, and seconds of CPU time per step."""
    problem = ShiftedFunction(agents, seed, name, noise=noise)
    best, seconds = {}, {}
    for algorithm, given in (("ei", {}), ("fed-ei", {**options(agents, multiplier), **centres})):
        start = time.process_time()
        # all agents but the first "join late", with nothing held before: all start together
        best[algorithm] = joined_late(problem, algorithm, given, agents - 1, 0, budget, seed).mean(axis=0)
        seconds[algorithm] = (time.process_time() - start) / (agents * (budget - 3))
    return best, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", default="hartmann-6")
    parser.add_argument("--multiplier", type=float, help="of noise on sums; 0: the trend alone, no noise")
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--centres", type=int, help="largest number of others' points that an agent receives")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--budget", type=int, default=20)
    given = parser.parse_args()
    setting = given.problem, given.agents, given.noise, given.multiplier
    centres = {"num_centres": given.centres} if given.centres else {}
    seeds = range(given.first, given.first + given.seeds)
    runs = [curves(*setting, centres, seed, given.budget) for seed in seeds]
    difference = np.array([best["fed-ei"] - best["ei"] for best, _ in runs])
    print(f"problem, agents, noise, multiplier: {setting}; {given.seeds} seeds")
    for at in CHECKPOINTS:
        if at <= given.budget:
            column = difference[:, at - 1]
            error = column.std(ddof=1) / len(column) ** 0.5 if len(column) > 1 else float("nan")
            print(f"at {at}: {column.mean():+.3f} ± {error:.3f}")
    for name in ("ei", "fed-ei"):
        print(f"{name}: {1e3 * np.mean([seconds[name] for _, seconds in runs]):.1f} ms per step")


if __name__ == "__main__":
    main()
