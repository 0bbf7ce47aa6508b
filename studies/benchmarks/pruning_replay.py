"""Replay stop rules and predictions on recorded whole curves, where what was lost is known.

Records the curves of studies that stop nothing, on other seeds than `pruning.py`, then asks of each rule,
with the trials in the order in which they were made: what share of the steps would it have saved, how many of
the stopped trials would have become the agent's best or ended above the median of those completed before,
and how far from their real ends are predictions? Algorithms do not react to the rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fbo_flower.clients import Pruning
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.curves import forecast, limit_of
from fbo_flower.simulation import Agents
from studies.benchmarks.pruning_problems import NUM_AGENTS, NUM_STEPS, PROBLEMS, VALIDATE
from studies.experiment import Arrays, run

FIRST_SEED, NUM_TRIALS, LEAST = 100, 14, 5
Limit = Callable[[Array, Array], float]  # values of completed trials at a step, and their final ones


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


def ranked(values: Array, finals: Array, least: float) -> float:
    """Return the median if values rank final ones well enough, else `-inf`."""
    from scipy.stats import spearmanr

    constant = np.ptp(values) == 0.0 or np.ptp(finals) == 0.0
    tells = not constant and spearmanr(values, finals).statistic >= least
    return float(np.median(values)) if tells else -np.inf


RULES: dict[str, tuple[int, Limit]] = {
    "median": (0, lambda x, f: float(np.median(x))),
    "median, warm-up 5": (5, lambda x, f: float(np.median(x))),
    "median, rank correlation .5": (0, lambda x, f: ranked(x, f, 0.5)),
    "median, rank correlation .7": (0, lambda x, f: ranked(x, f, 0.7)),
    **{
        f"median, margin {margin}": (0, lambda x, f, m=margin: min(float(np.median(x)), limit_of(x, f, m)))
        for margin in (1.0, 1.5, 2.0, 2.5, 3.0)
    },
}


def line(values: Array, finals: Array, value: float) -> float:
    """Return the end that a least-squares line predicts."""
    spread = float(((values - values.mean()) ** 2).sum())
    slope = float(((values - values.mean()) * (finals - finals.mean())).sum()) / spread if spread else 0.0
    return float(finals.mean() + slope * (value - values.mean()))


def replay(agents: list[Array], first: int, limit: Limit) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the numbers of a rule, and the errors of predictions for the trials that it stops."""
    saved = stopped = best = above = 0
    errors: dict[str, list[float]] = {name: [] for name in ("last value", "mean end", "line", "gain")}
    for curves in agents:
        completed: list[Array] = []
        for curve in curves:
            known = np.array(completed)
            step = next(
                (
                    s
                    for s in range(first, NUM_STEPS - 1)
                    if len(known) >= LEAST and curve[: s + 1].max() < limit(known[:, s], known[:, -1])
                ),
                None,
            )
            if step is None:
                completed.append(curve)
                continue
            values, finals, end = known[:, step], known[:, -1], float(curve[-1])
            saved += NUM_STEPS - 1 - step
            stopped += 1
            best += end > finals.max()
            above += end > np.median(finals)
            errors["last value"].append(curve[step] - end)
            errors["mean end"].append(float(finals.mean()) - end)
            errors["line"].append(line(values, finals, float(curve[step])) - end)
            errors["gain"].append(forecast(values, finals, float(curve[step])) - end)
    total = sum(curves.size for curves in agents)
    shares = {"would be best": best / max(stopped, 1), "above the median": above / max(stopped, 1)}
    return {"share of steps saved": saved / total, "stopped": float(stopped), **shares}, errors


def replayed(problem: str, seed: int, num_studies: int) -> Arrays:
    """Return the numbers of all rules on the recorded curves of some studies."""
    found = Arrays()
    studies = range(FIRST_SEED + seed, FIRST_SEED + seed + num_studies)
    agents = [curves for study in studies for curves in recorded(problem, study)]
    for rule, (first, limit) in RULES.items():
        numbers, errors = replay(agents, first, limit)
        found |= {f"{rule}/{name}": np.array(value) for name, value in numbers.items()}
        for name, error in errors.items():
            found[f"{rule}/error of: {name}"] = np.sqrt(np.mean(np.square(error)))
    return found
