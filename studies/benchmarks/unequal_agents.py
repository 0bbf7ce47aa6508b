"""Agents that tune only some of the shared parameters: do they gain from the others, and do the others lose?

    python -m studies.benchmarks.unequal_agents --seeds 8

Eight agents on Hartmann-6, moved and scaled for each agent. Every second agent holds two of the six
parameters at values of its own, drawn from the seed. Each federation is compared with the same agents alone
(`fed-ei` with `ei`, `fts` with `ts`), from the same random initial points, at the same number of evaluations.
The agents that tune all parameters are also compared with themselves in a federation in which all do.

A value is the agent's best one so far, in units of the standard deviation of its function over the whole
cube. Differences are means over the agents of a seed; standard errors are over seeds. Prints the tables of
`docs/results/asynchrony.md`.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from functools import cache

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Agents, simulate
from studies.papers.ei.problems import ShiftedFunction

NUM_AGENTS, AT = 8, (5, 10, 20)
FIRST_SEED, NUM_INITIAL, NUM_FIXED = 900, 3, 2
PAIRS = (("fed-ei", "ei"), ("fts", "ts"))
OPTIONS = {"fed-ei": {"secure_sums": 0}}
Fixed = dict[str, dict[str, float]]


def fixed_parameters(problem: ShiftedFunction, seed: int) -> Fixed:
    """Return agent -> two of its parameters with their values, for every second agent."""
    chosen: Fixed = {}
    for agent in range(1, NUM_AGENTS, 2):
        rng = generator(seed, "fixed", agent)
        point = problem.space.decode(rng.random(problem.space.dimension))
        names = rng.permutation(list(problem.space.names))[:NUM_FIXED]
        chosen[str(agent)] = {str(name): point[str(name)] for name in names}
    return chosen


def best_so_far(problem: ShiftedFunction, algorithm: str, seed: int, fixed: Fixed | None) -> Array:
    """Return the best values after `AT` evaluations, `(agents, len(AT))`."""
    options = {"num_initial": NUM_INITIAL, **OPTIONS.get(algorithm, {})}
    rounds = max(AT) - NUM_INITIAL + (2 if algorithm == "fed-ei" else 1)  # it has one without a trial
    study = simulate(
        problem,
        agents=Agents(fixed=fixed),
        algorithm=make_algorithm(algorithm, options),
        num_rounds=rounds,
        seed=seed,
        engine="inline",
    )
    rows = []
    for agent in range(NUM_AGENTS):
        values = study.trials.where(agent=str(agent))["value"]
        rows.append(np.maximum.accumulate(values)[np.array(AT) - 1] / scale(problem, agent))
    return np.array(rows)


@cache
def scale(problem: ShiftedFunction, agent: int) -> float:
    """Return the standard deviation of an agent's function over the cube."""
    points = np.random.default_rng(0).random((512, problem.space.dimension))
    return float(np.std([problem.true_value(problem.space.decode(p), agent) for p in points]))


def row(name: str, differences: Array) -> str:
    """Return a line of a table, of differences `(seeds, agents, len(AT))`."""
    mean = differences.mean(axis=1)
    error = mean.std(axis=0, ddof=1) / np.sqrt(len(mean))
    cells = [f"{m:+.2f} ± {e:.2f}" for m, e in zip(mean.mean(axis=0), error, strict=True)]
    return f"| {name} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all studies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    num_seeds = parser.parse_args(arguments).seeds
    logging.disable(logging.WARNING)
    some, every = slice(1, None, 2), slice(0, None, 2)
    print(f"| | {' | '.join(f'at {n}' for n in AT)} |")
    print(f"|---|{'---:|' * len(AT)}")
    for together, alone in PAIRS:
        runs: dict[str, list[Array]] = {"together": [], "alone": [], "nobody fixed": []}
        for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
            problem = ShiftedFunction(NUM_AGENTS, seed, "hartmann-6")
            fixed = fixed_parameters(problem, seed)
            runs["together"].append(best_so_far(problem, together, seed, fixed))
            runs["alone"].append(best_so_far(problem, alone, seed, fixed))
            runs["nobody fixed"].append(best_so_far(problem, together, seed, None))
        with_others, by_itself, equal = (np.array(found) for found in runs.values())
        gain = with_others - by_itself
        print(row(f"`{together}` over `{alone}`, agents that tune 4 of 6", gain[:, some]), flush=True)
        print(row(f"`{together}` over `{alone}`, agents that tune all", gain[:, every]), flush=True)
        cost = with_others - equal
        print(
            row(f"`{together}`, agents that tune all: half tune 4, over all tune 6", cost[:, every]),
            flush=True,
        )


if __name__ == "__main__":
    main()
