"""Evaluate a problem on many points per agent and save the values in a file, see `problems.table`.

A quarter of the points form a regular grid; in a few further stages, points are added where the values are
steep. Processes share the agents. Every finished stage is saved, so that a stopped run can continue.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import (
    FORMAT,
    MAX_DIMENSION,
    DelaunayInterpolant,
    Problem,
    TableData,
    read_table,
)
from fbo_flower.storage import atomic_file, path_of
from studies.experiment import Arrays, OnJob, has, job, load, open_directory, run_jobs, save

NUM_STAGES = 6  # after the grid
GRID_SHARE = 0.25
SHORTEST = 1e-3  # shorter edges are not halved
EXPLORING = 0.2  # share of new points that halve the longest edges, whatever the values


def tabulate(
    problem: Problem,
    out: str | os.PathLike[str],
    num_points: int = 1000,
    num_checks: int = 100,
    num_workers: int = 1,
    on_job: OnJob | None = None,
    version: str = "",
) -> Path:
    """Tabulate a problem and return the path of the file.

    Parameters
    ----------
    out : file to write; until all is done, the folder `OUT.parts` beside it holds the finished stages
    num_points : points per agent
    num_checks : held-out points per agent, at which the error is measured
    on_job : called with the name of the stage, the number of its finished jobs and the number of all
    version : version of this package, for the header

    Raises
    ------
    ConfigError
        If the space cannot be tabulated, a noiseless value is unknown, or `OUT.parts` belongs to another
        table.
    """
    path = path_of(out)
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
    jobs = [job(tabulate_agent, agent, problem=problem, **common) for agent in range(problem.num_agents)]
    run_jobs(jobs, directory, num_workers, on_job, "agents")
    _write(path, directory, header, problem)
    shutil.rmtree(directory)
    return path


def stage_sizes(num_points: int, dimension: int) -> list[int]:
    """Return the number of points of the grid and of every refinement; their sum is `num_points`."""
    grid = len(first_design(max(2**dimension, int(GRID_SHARE * num_points)), dimension))
    rest = max(0, num_points - grid)
    edges = np.linspace(0, rest, NUM_STAGES + 1).astype(int)
    return [grid, *(int(n) for n in np.diff(edges) if n)]


def check_space(problem: Problem) -> None:
    """Raise ConfigError if the space has too many parameters or one that is not Float."""
    dimension = problem.space.dimension
    axes = problem.space.continuous
    if dimension > MAX_DIMENSION or len(axes) < dimension:
        names = ", ".join(f"{name}: {type(p).__name__}" for name, p in problem.space.parameters.items())
        raise ConfigError(
            f"{problem.name}: expected at most {MAX_DIMENSION} parameters, all of them Float, got {names}"
        )


def accuracy(data: TableData) -> dict[str, Array]:
    """Return the absolute error of every agent's surface at its held-out points: several numbers `(agents,)`.

    "correlation" is that of table and objective, "spread" the objective's standard deviation there.
    """
    rows = []
    for surface, (points, values) in zip(data.surfaces, data.checks, strict=True):
        table = surface(points)
        error = np.abs(table - values)
        varies = np.ptp(table) > 0 and np.ptp(values) > 0
        correlation = np.corrcoef(table, values)[0, 1] if varies else np.nan
        rows.append([error.mean(), np.sqrt(np.mean(error**2)), error.max(), correlation, values.std()])
    names = ("mean", "root mean square", "largest", "correlation", "spread")
    return dict(zip(names, np.array(rows, dtype=np.float64).T, strict=True))


def describe(file: str | os.PathLike[str]) -> str:
    """Return a text that says what a table holds and how large its error is."""
    data = read_table(str(file))
    numbers, sizes = accuracy(data), [len(surface.values) for surface in data.surfaces]
    correlation = numbers["correlation"][np.isfinite(numbers["correlation"])]
    return (
        f"{data.header['problem']}: {len(sizes)} agents, {min(sizes)} points each, {data.header['metric']}\n"
        f"error at held-out points: mean {numbers['mean'].mean():.5f}, root mean square "
        f"{np.sqrt(np.mean(numbers['root mean square'] ** 2)):.5f}, largest {numbers['largest'].max():.4f}; "
        f"the objective's standard deviation there {numbers['spread'].mean():.4f}; "
        f"correlation {np.median(correlation):.4f} (median of agents), {correlation.min():.4f} (least)"
    )


def _write(path: Path, directory: Path, header: Mapping[str, Any], problem: Problem) -> None:
    found = [load(directory, tabulate_agent, agent) for agent in range(problem.num_agents)]
    arrays: dict[str, Any] = {name: np.concatenate([result[name] for result in found]) for name in found[0]}
    for name, of in (("agent", "values"), ("check_agent", "check_values")):
        arrays[name] = np.repeat(np.arange(len(found)), [len(result[of]) for result in found])
    text = json.dumps({**header, "space": json.loads(problem.space.to_json())}, sort_keys=True)
    with atomic_file(path) as stream:
        np.savez_compressed(stream, header=np.array(text), **arrays)


# -- one agent ---------------------------------------------------------------------------------


def tabulate_agent(agent: int, problem: Problem, num_points: int, num_checks: int, directory: str) -> Arrays:
    """Evaluate all points of one agent; each stage is saved as soon as it is done."""
    dimension = problem.space.dimension
    points, values = np.empty((0, dimension)), np.empty(0)
    for stage, count in enumerate(stage_sizes(num_points, dimension)):
        part = job(tabulate_agent, agent, "stage", stage)
        if has(Path(directory), part.function, *part.row):
            done = load(Path(directory), part.function, *part.row)
            new, observed = done["points"], done["values"]
        else:
            new = first_design(count, dimension) if stage == 0 else next_design(points, values, count)
            observed = evaluate(problem, agent, new)
            save(Path(directory), part, {"points": new, "values": observed})
        points, values = np.concatenate([points, new]), np.concatenate([values, observed])
    checks = generator(problem.seed, "table", "held-out", agent).random((num_checks, dimension))
    observed = evaluate(problem, agent, checks)
    return {"points": points, "values": values, "check_points": checks, "check_values": observed}


def evaluate(problem: Problem, agent: int, points: Array) -> Array:
    """Return the noiseless values `(n,)` at points `(n, D)`."""
    values = [problem.true_value(problem.space.decode(point), agent) for point in points]
    if None in values:
        raise ConfigError(f"{problem.name}: expected a problem whose values are known without noise")
    return np.array(values, dtype=np.float64)


def first_design(num_points: int, dimension: int) -> Array:
    """Return the largest regular grid `(k^D, D)` of at most `num_points` points; at least `k = 2`."""
    if not 1 <= dimension <= MAX_DIMENSION:
        raise ConfigError(f"dimension: expected 1 to {MAX_DIMENSION}, got {dimension}")
    side = 2
    while (side + 1) ** dimension <= num_points:
        side += 1
    return np.array(list(itertools.product(np.linspace(0.0, 1.0, side), repeat=dimension)))


def next_design(points: Array, values: Array, num_points: int) -> Array:
    """Return up to `num_points` new points `(k, D)`, most of them where the function is steep.

    The points are midpoints of edges of the triangulation: four fifths of the edges with the largest product
    of length and difference of the values at their ends, one fifth of the longest edges.
    """
    corners = DelaunayInterpolant(points, values).simplices
    pairs = itertools.combinations(range(points.shape[1] + 1), 2)
    edges = np.unique(np.sort(np.concatenate([corners[:, pair] for pair in pairs]), axis=1), axis=0)
    length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    edges, length = edges[length > SHORTEST], length[length > SHORTEST]
    middles = 0.5 * (points[edges[:, 0]] + points[edges[:, 1]])
    steep = np.abs(values[edges[:, 0]] - values[edges[:, 1]]) * length
    known = {p.tobytes() for p in points}  # a midpoint may coincide with another or with a point
    chosen: list[Array] = []
    for score, count in ((steep, num_points - int(EXPLORING * num_points)), (length, num_points)):
        for i in np.argsort(-score, kind="stable"):
            if len(chosen) >= count or score[i] <= 0.0:
                break
            if middles[i].tobytes() not in known:
                known.add(middles[i].tobytes())
                chosen.append(middles[i])
    return np.array(chosen).reshape(-1, points.shape[1])
