"""Evaluate a problem once, densely, agent by agent, and keep the values in a file: see `problems.table`.

A regular grid takes a quarter of the points; then the points go where the values are steep, in a few stages.
Agents are spread over processes; every stage of every agent is kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.scattered import MAX_DIMENSION, first_design, next_design
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.jobs import Arrays, Job, has_cell, load_job, open_directory, run_jobs
from fbo_flower.simulation.problems import Problem
from fbo_flower.simulation.problems.table import FORMAT, TableData, read_table
from fbo_flower.storage.files import atomic_file

NUM_STAGES = 6  # after the grid
GRID_SHARE = 0.25


@dataclass(frozen=True)
class Accuracy:
    """How far a table is from the real objective at points that are not in it.

    Parameters
    ----------
    mean, root_mean_square, largest : of the absolute error
    correlation : between table and objective
    spread : standard deviation of the objective at these points
    """

    mean: float
    root_mean_square: float
    largest: float
    correlation: float
    spread: float


def tabulate(
    problem: Problem,
    out: str | os.PathLike[str],
    num_points: int = 1000,
    num_checks: int = 100,
    num_workers: int = 1,
    on_job: Callable[[str, int, int], None] | None = None,
    version: str = "",
) -> Path:
    """Tabulate a problem and return the file.

    Parameters
    ----------
    out : the file; beside it `OUT.parts` holds what is done until all is
    num_points : per agent
    num_checks : per agent, more points at which the real objective is kept, to measure the error
    on_job : called with the name of the stage and how many of its cells are done
    version : of this package, for the header

    Raises
    ------
    ConfigError
        If the space cannot be tabulated, a value is unknown, or the parts are those of another table.
    """
    path = Path(out)
    check_space(problem)
    problem.check_data()
    header: dict[str, Any] = {
        "format": FORMAT,
        "problem": problem.name,
        "problem_options": {name: getattr(problem, name) for name in problem.options()},
        "seed": problem.seed,
        "metric": problem.metric,
        "num_points": num_points,
        "num_checks": num_checks,
        "version": version,
    }
    directory = open_directory(path.with_name(path.name + ".parts"), {**header, "agents": problem.num_agents})
    common = {"num_points": num_points, "num_checks": num_checks, "directory": str(directory)}
    cells = [
        Job(f"agent-{agent}", tabulate_agent, {"problem": problem, "agent": agent, **common})
        for agent in range(problem.num_agents)
    ]
    run_jobs(cells, directory, num_workers, None if on_job is None else partial(on_job, "agents"))
    _write(path, directory, header, problem)
    shutil.rmtree(directory)
    return path


def stage_sizes(num_points: int, dimension: int) -> list[int]:
    """Return how many points the grid and every refinement take; their sum is `num_points`."""
    grid = len(first_design(max(2**dimension, int(GRID_SHARE * num_points)), dimension))
    rest = max(0, num_points - grid)
    edges = np.linspace(0, rest, NUM_STAGES + 1).astype(int)
    return [grid, *(int(n) for n in np.diff(edges) if n)]


def check_space(problem: Problem) -> None:
    """Raise ConfigError unless the space is a cube of few continuous parameters."""
    dimension = problem.space.dimension
    axes, _ = problem.space.continuous
    if dimension > MAX_DIMENSION or len(axes) < dimension:
        names = ", ".join(f"{name}: {type(p).__name__}" for name, p in problem.space.parameters.items())
        raise ConfigError(
            f"{problem.name}: expected at most {MAX_DIMENSION} parameters, all of them Float, got {names}"
        )


def accuracy(data: TableData) -> list[Accuracy]:
    """Return the error of every agent's surface at its held-out points."""
    found = []
    for surface, (points, values) in zip(data.surfaces, data.checks, strict=True):
        table = surface(points)
        error = np.abs(table - values)
        varies = np.ptp(table) > 0 and np.ptp(values) > 0
        correlation = float(np.corrcoef(table, values)[0, 1]) if varies else float("nan")
        squared = float(np.sqrt(np.mean(error**2)))
        found.append(
            Accuracy(float(error.mean()), squared, float(error.max()), correlation, float(values.std()))
        )
    return found


def describe(file: str | os.PathLike[str]) -> str:
    """Return what a table holds and how near it is to the real objective, as text."""
    data = read_table(str(file))
    each = accuracy(data)
    numbers = {name: np.array([getattr(a, name) for a in each]) for name in Accuracy.__dataclass_fields__}
    sizes = [len(surface.values) for surface in data.surfaces]
    correlation = numbers["correlation"][np.isfinite(numbers["correlation"])]
    return (
        f"{data.header['problem']}: {len(sizes)} agents, {min(sizes)} points each, {data.header['metric']}\n"
        f"error at held-out points: mean {numbers['mean'].mean():.5f}, root mean square "
        f"{np.sqrt(np.mean(numbers['root_mean_square'] ** 2)):.5f}, largest {numbers['largest'].max():.4f}; "
        f"the objective's standard deviation there {numbers['spread'].mean():.4f}; "
        f"correlation {np.median(correlation):.4f} (median of agents), {correlation.min():.4f} (least)"
    )


def _write(path: Path, directory: Path, header: Mapping[str, Any], problem: Problem) -> None:
    found = [load_job(directory, f"agent-{agent}") for agent in range(problem.num_agents)]
    arrays: dict[str, Any] = {name: np.concatenate([cell[name] for cell in found]) for name in found[0]}
    for name, of in (("agent", "values"), ("check_agent", "check_values")):
        arrays[name] = np.repeat(np.arange(len(found)), [len(cell[of]) for cell in found])
    text = json.dumps({**header, "space": json.loads(problem.space.to_json())}, sort_keys=True)
    with atomic_file(path) as stream:
        np.savez_compressed(stream, header=np.array(text), **arrays)


# -- one agent ---------------------------------------------------------------------------------


def tabulate_agent(problem: Problem, agent: int, num_points: int, num_checks: int, directory: str) -> Arrays:
    """Evaluate everything of one agent; what a stage found is kept as soon as it is done."""
    dimension = problem.space.dimension
    points, values = np.empty((0, dimension)), np.empty(0)
    for stage, count in enumerate(stage_sizes(num_points, dimension)):
        part = Path(directory) / "cells" / f"agent-{agent}-stage-{stage}"
        if has_cell(Path(directory), part.name):
            done = load_job(Path(directory), part.name)
            new, observed = done["points"], done["values"]
        else:
            new = first_design(count, dimension) if stage == 0 else next_design(points, values, count)
            observed = evaluate(problem, agent, new)
            with atomic_file(part.with_suffix(".npz")) as stream:
                np.savez_compressed(stream, points=new, values=observed)
        points, values = np.concatenate([points, new]), np.concatenate([values, observed])
    checks = generator(problem.seed, "table", "held-out", agent).random((num_checks, dimension))
    observed = evaluate(problem, agent, checks)
    return {"points": points, "values": values, "check_points": checks, "check_values": observed}


def evaluate(problem: Problem, agent: int, points: Array) -> Array:
    """Return the values without noise at points `(n, D)`, `(n,)`."""
    values = [problem.true_value(problem.space.decode(point), agent) for point in points]
    if None in values:
        raise ConfigError(f"{problem.name}: expected a problem whose values are known without noise")
    return np.array(values, dtype=np.float64)


__all__ = ["Accuracy", "accuracy", "check_space", "describe", "stage_sizes", "tabulate"]
