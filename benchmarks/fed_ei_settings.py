"""`fed-ei` minus `ei` on Hartmann-6 with other numbers of agents and with noise, and the time of a step.

    python benchmarks/fed_ei_settings.py --agents 3 --seeds 8
    python benchmarks/fed_ei_settings.py --noise 0.3 --seeds 4
    python benchmarks/fed_ei_settings.py --agents 300 --seeds 1 --budget 10

Prints the difference of best values so far, mean over agents, with the standard error over seeds, and the CPU
time of a step of each algorithm. Values are without the noise. Seeds begin at 0, where constants were chosen.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from fbo_flower.experiments.ei.experiment import FEDERATED
from fbo_flower.experiments.ei.late import joined_late
from fbo_flower.experiments.ei.problems import ShiftedFunction
from fbo_flower.numerics.arrays import Array

CHECKPOINTS = (3, 5, 10, 20, 50)


def curves(agents: int, noise: float, seed: int, budget: int) -> tuple[dict[str, Array], dict[str, float]]:
    """Return the mean best value so far `(budget,)` of each algorithm, and seconds of CPU time per step."""
    problem = ShiftedFunction(agents, seed, "hartmann-6", noise=noise)
    best, seconds = {}, {}
    for name, options in (("ei", {}), ("fed-ei", FEDERATED)):
        start = time.process_time()
        # all agents but the first "join late", with nothing held before: all start together
        best[name] = joined_late(problem, name, options, agents - 1, 0, budget, seed).mean(axis=0)
        seconds[name] = (time.process_time() - start) / (agents * (budget - 3))
    return best, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--budget", type=int, default=20)
    given = parser.parse_args()
    runs = [curves(given.agents, given.noise, seed, given.budget) for seed in range(given.seeds)]
    difference = np.array([best["fed-ei"] - best["ei"] for best, _ in runs])
    print(f"Hartmann-6, {given.agents} agents, noise {given.noise}, {given.seeds} seeds")
    for at in CHECKPOINTS:
        if at <= given.budget:
            column = difference[:, at - 1]
            error = column.std(ddof=1) / len(column) ** 0.5 if len(column) > 1 else float("nan")
            print(f"at {at}: {column.mean():+.3f} ± {error:.3f}")
    for name in ("ei", "fed-ei"):
        print(f"{name}: {1e3 * np.mean([seconds[name] for _, seconds in runs]):.1f} ms per step")


if __name__ == "__main__":
    main()
