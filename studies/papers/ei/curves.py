"""Run one algorithm on one problem, and return the best values so far."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.study import Study
from studies.papers.ei.problems import ShiftedFunction

NUM_INITIAL = 3


def score(problem: Problem, config: Config, partition: int) -> float | None:
    """Return an agent's value without noise, scale and offset; None: what it observed has neither."""
    return problem.score(config, partition) if isinstance(problem, ShiftedFunction) else None


def run_study(problem: Problem, algorithm: str, options: Mapping[str, Any], seed: int, budget: int) -> Study:
    """Run a study in which every agent makes at least `budget` evaluations."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    return simulate(
        problem,
        algorithm=make_algorithm(algorithm, options),
        num_rounds=budget - NUM_INITIAL + 1,
        seed=seed,
        engine="inline",
    )


def best_so_far(study: Study, problem: Problem, budget: int) -> Array:
    """Return the best scores so far, `(agents, budget)`; a failed evaluation improves nothing."""
    curves = np.full((problem.num_agents, budget), -np.inf)
    for agent in range(problem.num_agents):
        mine = study.trials.where(agent=str(agent))
        order = np.argsort(mine["trial"], kind="stable")[:budget]
        for place, row in enumerate(order):
            known = score(problem, mine["config"][row], agent)
            curves[agent, place] = mine["value"][row] if known is None else known
    return np.asarray(np.maximum.accumulate(curves, axis=1), dtype=np.float64)
