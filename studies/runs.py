"""Run one algorithm on one problem in this process, and read curves and traffic off the study."""

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

BYTES, FLOATS = ("bytes_down", "bytes_up"), ("floats_down", "floats_up")


def run(
    problem: Any,
    algorithm: str,
    options: Mapping[str, Any],
    num_rounds: int | None = None,
    seed: int = 0,
    **more: Any,
) -> Study:
    """Return the study of an algorithm, named with its options, on the engine "inline"."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    made = make_algorithm(algorithm, options)
    return simulate(problem, algorithm=made, num_rounds=num_rounds, seed=seed, engine="inline", **more)


def rounds_of(algorithm: str, num_initial: int, budget: int) -> int:
    """Return the rounds for at least `budget` evaluations of every agent, one a round after the first."""
    return budget - num_initial + (2 if algorithm == "fed-ei" else 1)  # it has a round without a trial


def run_budget(problem: Problem, algorithm: str, options: Mapping[str, Any], seed: int, budget: int) -> Study:
    """Run a study in which every agent makes at least `budget` evaluations."""
    number = make_algorithm(algorithm, options).num_initial
    return run(problem, algorithm, options, rounds_of(algorithm, number, budget), seed)


def traffic(study: Study, columns: Sequence[str] = BYTES) -> Array:
    """Return what was sent in a whole study per agent: bytes down and up, or other columns of its rounds."""
    agents = int(study.settings["runs"][0]["num_agents"])
    return np.array([float(np.sum(study.rounds[name])) / agents for name in columns])


def score(problem: Problem, config: Config, partition: int) -> float | None:
    """Return an agent's value without noise, scale and offset; None: what it observed has neither."""
    found = getattr(problem, "score", None)
    return None if found is None else float(found(config, partition))


def evaluations(study: Study, agent: int | str, budget: int | None = None) -> tuple[list[Config], Array]:
    """Return an agent's configurations and values `(n,)`, in the order of its trials."""
    mine = study.trials.where(agent=str(agent))
    order = np.argsort(mine["trial"], kind="stable")[:budget]
    return [mine["config"][row] for row in order], np.asarray(mine["value"], dtype=np.float64)[order]


def best_so_far(study: Study, problem: Problem, budget: int) -> Array:
    """Return the scores `(agents, budget)` of the best values so far."""
    agents = range(problem.num_agents)
    return np.array([curve_of(problem, agent, *evaluations(study, agent, budget)) for agent in agents])


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
    study = run(problem, "random", {}, number, seed)
    return [evaluations(study, agent, number)[0] for agent in range(problem.num_agents)]
