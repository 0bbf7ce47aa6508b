"""Agents that tune only some of the shared parameters.

Every second of eight agents holds two of six parameters at values of its own. A federation is compared with
the same agents alone, and with a federation in which all tune all parameters. Values are in standard
deviations of the agent's function over the cube.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Agents
from studies.experiment import Arrays, Experiment, Part, evaluations, rounds_of, run
from studies.papers.ei.problems import ShiftedFunction

NUM_INITIAL = 3
FEW, ALL = "half tune 4", "all tune 6"
ROWS = (f"fts; {FEW}", f"ts; {FEW}", f"fts; {ALL}")


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 4 agents, 2 seeds, 5 evaluations."""
    size = {"agents": 4 if quick else 8, "budget": 5 if quick else 20}
    seeds, pairs = range(900, 902 if quick else 908), [(ROWS[0], other) for other in ROWS[1:]]
    return [Part("unequal agents", unequal, ["Hartmann-6"], ROWS, seeds, size, pairs=pairs, at=(5, 10, 20))]


EXPERIMENT = Experiment("Agents that tune only some of the shared parameters", parts)


def unequal(label: str, row: str, seed: int, agents: int, budget: int) -> Arrays:
    """Return the best values so far of the agents that tune 4 of 6 parameters, and of the others."""
    algorithm, how = row.split("; ")
    problem, fixed = ShiftedFunction(agents, seed, "hartmann-6"), dict[str, dict[str, float]]()
    for agent in range(1, agents, 2) if how == FEW else ():
        rng = generator(seed, "fixed", agent)
        point = problem.space.decode(rng.random(problem.space.dimension))
        names = rng.permutation(list(problem.space.names))[:2]
        fixed[str(agent)] = {str(name): point[str(name)] for name in names}
    rounds = rounds_of(algorithm, NUM_INITIAL, budget)
    study = run(
        problem, algorithm, {"num_initial": NUM_INITIAL}, rounds, seed, agents=Agents(fixed=fixed or None)
    )
    curves = np.array([
        np.maximum.accumulate(evaluations(study, agent)[1])[:budget] / scale(problem, agent)
        for agent in range(agents)
    ])  # fmt: skip
    return {"agents that tune 4 of 6": curves[1::2], "agents that tune all": curves[::2]}


@cache
def scale(problem: ShiftedFunction, agent: int) -> float:
    """Return the standard deviation of an agent's function over the cube."""
    points = np.random.default_rng(0).random((512, problem.space.dimension))
    return float(np.std([problem.true_value(problem.space.decode(p), agent) for p in points]))
