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

from functools import cache

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Agents
from studies.benchmarks.bench import both, options, say
from studies.papers.ei.problems import ShiftedFunction
from studies.report import head
from studies.runs import evaluations, rounds_of, run

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
    chosen = {"num_initial": NUM_INITIAL, **OPTIONS.get(algorithm, {})}
    rounds = rounds_of(algorithm, NUM_INITIAL, max(AT))
    study = run(problem, algorithm, chosen, rounds, seed, agents=Agents(fixed=fixed))
    curves = [np.maximum.accumulate(evaluations(study, agent)[1]) for agent in range(NUM_AGENTS)]
    return np.array([c[np.array(AT) - 1] / scale(problem, agent) for agent, c in enumerate(curves)])


@cache
def scale(problem: ShiftedFunction, agent: int) -> float:
    """Return the standard deviation of an agent's function over the cube."""
    points = np.random.default_rng(0).random((512, problem.space.dimension))
    return float(np.std([problem.true_value(problem.space.decode(p), agent) for p in points]))


def main() -> None:
    """Run all studies and print the table."""
    num_seeds, some, every = options(__doc__, seeds=8).seeds, slice(1, None, 2), slice(0, None, 2)
    print(head(["", *(f"at {n}" for n in AT)]))
    for together, alone in PAIRS:
        runs = []
        for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
            problem = ShiftedFunction(NUM_AGENTS, seed, "hartmann-6")
            fixed = fixed_parameters(problem, seed)
            ways = ((together, fixed), (alone, fixed), (together, None))
            runs.append([best_so_far(problem, algorithm, seed, held) for algorithm, held in ways])
        with_others, by_itself, equal = np.array(runs).swapaxes(0, 1)  # (seeds, agents, len(AT)) each
        for name, gains, agents in (
            (f"`{together}` over `{alone}`, agents that tune 4 of 6", with_others - by_itself, some),
            (f"`{together}` over `{alone}`, agents that tune all", with_others - by_itself, every),
            (f"`{together}`, agents that tune all: half tune 4, over all tune 6", with_others - equal, every),
        ):
            say(name, *both(gains[:, agents].mean(axis=1), 2))


if __name__ == "__main__":
    main()
