"""Replay stop rules on recorded whole curves, where what was lost is known.

Records the curves of studies that stop nothing, on other seeds than `pruning.py`, then asks of each rule,
with the trials in the order in which they were made: what share of the steps would it have saved, and how
many of the stopped trials would have become the agent's best or ended above the median of those completed
before? Algorithms do not react to the rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fbo_flower.clients import Pruning
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.curves import limit_of
from fbo_flower.simulation import Agents
from studies.benchmarks.pruning_problems import NUM_AGENTS, NUM_STEPS, PROBLEMS, VALIDATE
from studies.experiment import Arrays, run

FIRST_SEED, NUM_TRIALS, LEAST = 100, 14, 5
# values of completed trials at a step, and their final ones -> the value below which a trial stops
RULES: dict[str, Callable[[Array, Array], float]] = {
    "median": lambda x, f: float(np.median(x)),
    "median, margin 2.5": lambda x, f: min(float(np.median(x)), limit_of(x, f, 2.5)),
}


def recorded(problem: str, seed: int) -> Iterator[Array]:
    """Yield the whole curves `(trials, steps)` of each agent of a study."""
    made, curves = PROBLEMS[problem], [list[list[float]]() for _ in range(NUM_AGENTS)]

    def objective(config: dict[str, Any], agent: int, context: Any) -> float:
        start = int(context.rng.integers(2**31))
        curves[agent].append(list(made.values(config, made.rows(seed)[agent], VALIDATE, start)))
        return curves[agent][-1][-1]

    agents = Agents(list(range(NUM_AGENTS)), pruning=Pruning("off"))
    run(objective, "fed-ei", {"num_candidates": 128}, NUM_TRIALS, seed, space=made.space, agents=agents)
    yield from map(np.array, curves)


def replayed(problem: str, seed: int, num_studies: int) -> Arrays:
    """Return the numbers of all rules on the recorded curves of some studies."""
    found = Arrays()
    studies = range(FIRST_SEED + seed, FIRST_SEED + seed + num_studies)
    agents = [curves for study in studies for curves in recorded(problem, study)]
    for rule, limit in RULES.items():
        saved, stopped = 0, list[tuple[bool, bool]]()
        for curves in agents:
            completed: list[Array] = []
            for curve in curves:
                known = np.array(completed)
                for step in range(NUM_STEPS - 1) if len(completed) >= LEAST else ():
                    if curve[: step + 1].max() < limit(known[:, step], known[:, -1]):
                        saved += NUM_STEPS - 1 - step
                        stopped.append((curve[-1] > known[:, -1].max(), curve[-1] > np.median(known[:, -1])))
                        break
                else:
                    completed.append(curve)
        best, above = np.array(stopped).reshape(-1, 2).sum(axis=0) / max(len(stopped), 1)
        numbers = {
            "share of steps saved": saved / sum(curves.size for curves in agents),
            "stopped": len(stopped), "would be best": best, "above the median": above,
        }  # fmt: skip
        found |= {f"{rule}/{name}": np.array(float(value)) for name, value in numbers.items()}
    return found
