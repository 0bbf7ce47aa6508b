"""Run one algorithm on one problem, and return the best values so far."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.study import Study


def score(problem: Problem, config: Config, partition: int) -> float | None:
    """Return an agent's value without noise, scale and offset; None: what it observed has neither."""
    found = getattr(problem, "score", None)
    return None if found is None else float(found(config, partition))


def run_study(problem: Problem, algorithm: str, options: Mapping[str, Any], seed: int, budget: int) -> Study:
    """Run a study in which every agent makes at least `budget` evaluations."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    made = make_algorithm(algorithm, options)
    # fed-ei has a round without a trial
    rounds = budget - made.num_initial + (2 if made.name == "fed-ei" else 1)
    return simulate(problem, algorithm=made, num_rounds=rounds, seed=seed, engine="inline")


def best_so_far(study: Study, problem: Problem, budget: int) -> Array:
    """Return the scores `(agents, budget)` of the best values so far."""
    curves = []
    for agent in range(problem.num_agents):
        mine = study.trials.where(agent=str(agent))
        order = np.argsort(mine["trial"], kind="stable")[:budget]
        configs = [mine["config"][row] for row in order]
        curves.append(curve_of(problem, agent, configs, np.asarray(mine["value"], dtype=np.float64)[order]))
    return np.array(curves)


def curve_of(problem: Problem, agent: int, configs: Sequence[Config], values: Array) -> Array:
    """Return for each evaluation the score of the configuration with the best value seen so far.

    Where values are noisy, that is what an agent would use, and the score is without noise. A failed
    evaluation improves nothing.
    """
    seen = np.where(np.isfinite(values), values, -np.inf)
    best = [int(np.argmax(seen[: i + 1])) for i in range(len(seen))]
    known = [score(problem, config, agent) for config in configs]
    return np.array([values[i] if known[i] is None else known[i] for i in best], dtype=np.float64)


def starting_points(problem: Problem, seed: int, number: int) -> list[list[Config]]:
    """Return the random configurations that each agent begins with, whatever the algorithm."""
    study = simulate(
        problem, algorithm=make_algorithm("random", {}), num_rounds=number, seed=seed, engine="inline"
    )
    mine = [study.trials.where(agent=str(agent)) for agent in range(problem.num_agents)]
    return [[m["config"][i] for i in np.argsort(m["trial"], kind="stable")[:number]] for m in mine]
