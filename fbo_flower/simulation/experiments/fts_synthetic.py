"""FTS on functions drawn from a Gaussian process, the paper's synthetic setting [Dai2020, App. D.1].

Agent 0 is the target; the other 49 hold `t_n` observations of their own Thompson sampling of functions
that differ from the target's by `d_n` at every point. One random starting point; several functions
and several starts for each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.experiments.cells import Arrays, Cell, load_cell
from fbo_flower.simulation.problems import make_problem
from fbo_flower.simulation.runner import simulate
from fbo_flower.study import Study

NUM_AGENTS = 50
LENGTHSCALE = 0.03
NUM_OBSERVATIONS = (40, 100)  # t_n
NUM_FEATURES = (30, 50, 100)  # M
DIFFERENCES = (0.02, 1.2)  # d_n
SCHEDULES = ("1-1/sqrt(t)", "1-1/t^2")


def variants() -> dict[str, dict[str, Any]]:
    """Return label -> the options of FTS, with `t_n` under `observations`; `ts` has none."""
    found: dict[str, dict[str, Any]] = {"ts": {}}
    for observations in NUM_OBSERVATIONS:
        for num_features in NUM_FEATURES:
            found[f"fts t={observations} M={num_features}"] = {
                "observations": observations,
                "num_features": num_features,
                "schedule": SCHEDULES[0],
            }
    fast = {"observations": 100, "num_features": 100, "schedule": SCHEDULES[1]}
    return found | {
        "fts t=100 M=100 faster p_t": fast,
        "fts t=100 portfolio": {**fast, "advice": "portfolio", "schedule": "first-5"},
        "control t=100": {**fast, "advice": "random", "schedule": SCHEDULES[0]},
    }


def cells(directory: Path, num_functions: int, num_starts: int, num_iterations: int) -> list[list[Cell]]:
    """Return the work in two stages: what the others observed before, then everything else."""
    prior = [
        Cell(f"prior-{difference}-{function}", observe, {"difference": difference, "function": function})
        for difference in DIFFERENCES
        for function in range(num_functions)
    ]
    main = [
        Cell(
            f"run-{difference}-{function}",
            run_function,
            {
                "difference": difference,
                "function": function,
                "num_starts": num_starts,
                "num_iterations": num_iterations,
                "directory": str(directory),
            },
        )
        for difference in DIFFERENCES
        for function in range(num_functions)
    ]
    return [prior, main]


def curves(directory: Path, difference: float, label: str, num_functions: int) -> Array:
    """Return simple regret `(functions, starts, iterations + 1)`, the first after the starting point."""
    found = [load_cell(directory, f"run-{difference}-{function}") for function in range(num_functions)]
    return np.stack([cell[label] for cell in found])


def observe(difference: float, function: int) -> Arrays:
    """Let every agent tune for itself; return its points and values in order."""
    study = _simulate(
        "ts", {"num_initial": 1}, difference, function, 50_000 + function, max(NUM_OBSERVATIONS)
    )
    trials = study.trials
    return {
        "agent": np.array(trials["agent"].tolist(), dtype=np.int64).astype(np.float64),
        "points": np.array([[config["x"]] for config in trials["config"]], dtype=np.float64),
        "values": np.asarray(trials["value"], dtype=np.float64),
    }


def run_function(
    difference: float, function: int, num_starts: int, num_iterations: int, directory: str
) -> Arrays:
    """Run every variant on one function; return simple regret `(starts, iterations + 1)` of each."""
    prior = load_cell(Path(directory), f"prior-{difference}-{function}")
    rows: dict[str, list[Array]] = {label: [] for label in variants()}
    num_rounds = num_iterations + 1
    for start in range(num_starts):
        for label, variant in variants().items():
            options = {"num_initial": 1, **variant}
            held = _held(prior, options.pop("observations", 0))
            if label != "ts":
                options |= {"communication": "once", "lengthscale": LENGTHSCALE, "targets": ("0",)}
            algorithm = "ts" if label == "ts" else "fts"
            study = _simulate(algorithm, options, difference, function, start, num_rounds, held)
            mine = study.regret.where(agent="0")
            rows[label].append(np.asarray(mine["simple"], dtype=np.float64))
    return {label: np.array(found) for label, found in rows.items()}


def _held(prior: Arrays, count: int) -> dict[str, tuple[Array, Array]]:
    """Return the first `count` observations of every agent but the target."""
    rows = {str(agent): prior["agent"] == agent for agent in range(1, NUM_AGENTS)}
    return {a: (prior["points"][r][:count], prior["values"][r][:count]) for a, r in rows.items()}


def _simulate(
    algorithm: str,
    options: Mapping[str, Any],
    difference: float,
    function: int,
    seed: int,
    num_rounds: int,
    prior: Mapping[str, tuple[Array, Array]] | None = None,
) -> Study:
    logging.getLogger("flwr").setLevel(logging.WARNING)
    alone = algorithm == "ts" and prior is not None  # the target by itself
    problem_options = {"difference": difference, "function_seed": function}
    problem = make_problem("gp-samples", 1 if alone else NUM_AGENTS, seed, problem_options)
    return simulate(
        problem, algorithm, None, num_rounds, seed, "inline", options=options, prior=None if alone else prior
    )
