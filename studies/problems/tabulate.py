"""Evaluate a problem on many points per agent and save the values in a file, see `problems.table`.

A quarter of the points form a regular grid; in a few further stages, points are added where the values are
steep. Processes share the agents, and a stopped run continues with those that are missing.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import FORMAT, MAX_DIMENSION, DelaunayInterpolant, Problem, read_table
from fbo_flower.storage import atomic_file, path_of
from studies.experiment import Arrays, OnJob, job, load, open_directory, run_jobs

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
    out : file to write; until all is done, the folder `OUT.parts` beside it holds the finished agents
    num_points : points per agent
    num_checks : held-out points per agent, at which the error is measured
    on_job : called with the number of finished agents and of all
    version : version of this package, for the header

    Raises
    ------
    ConfigError
        If the space cannot be tabulated, a noiseless value is unknown, or `OUT.parts` belongs to another
        table.
    """
    path, space = path_of(out), problem.space
    if space.dimension > MAX_DIMENSION or len(space.continuous) < space.dimension:
        names = ", ".join(f"{name}: {type(p).__name__}" for name, p in space.parameters.items())
        raise ConfigError(
            f"{problem.name}: expected at most {MAX_DIMENSION} parameters, all of them Float, got {names}"
        )
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
    agents, common = range(problem.num_agents), {"num_points": num_points, "num_checks": num_checks}
    jobs = [job(tabulate_agent, agent, problem=problem, **common) for agent in agents]
    run_jobs(jobs, directory, num_workers, on_job, "agents")
    found = [load(directory, tabulate_agent, agent) for agent in agents]
    arrays: dict[str, Any] = {name: np.concatenate([result[name] for result in found]) for name in found[0]}
    for name, of in (("agent", "values"), ("check_agent", "check_values")):
        arrays[name] = np.repeat(agents, [len(result[of]) for result in found])
    text = json.dumps({**header, "space": json.loads(space.to_json())}, sort_keys=True)
    with atomic_file(path) as stream:
        np.savez_compressed(stream, header=np.array(text), **arrays)
    shutil.rmtree(directory)
    return path


def describe(file: str | os.PathLike[str]) -> str:
    """Return a text that says what a table holds and how large its error is at the held-out points."""
    data = read_table(str(file))
    truth = [values for _, values in data.checks]
    told = [surface(points) for surface, (points, _) in zip(data.surfaces, data.checks, strict=True)]
    error = np.abs(np.array(told) - np.array(truth))
    return (
        f"{data.header['problem']}: {len(truth)} agents, {min(len(s.values) for s in data.surfaces)} points "
        f"each, {data.header['metric']}\n"
        f"error at held-out points: mean {error.mean():.5f}, root mean square "
        f"{np.sqrt(np.mean(error**2)):.5f}, largest {error.max():.4f}; "
        f"the objective's standard deviation there {np.std(truth, axis=1).mean():.4f}"
    )


# -- one agent ---------------------------------------------------------------------------------


def tabulate_agent(agent: int, problem: Problem, num_points: int, num_checks: int) -> Arrays:
    """Evaluate all points of one agent."""
    dimension = problem.space.dimension
    points = first_design(max(2**dimension, int(GRID_SHARE * num_points)), dimension)
    values = evaluate(problem, agent, points)
    ends = np.linspace(0, max(0, num_points - len(points)), NUM_STAGES + 1).astype(int)
    for count in np.diff(ends)[np.diff(ends) > 0].tolist():
        new = next_design(points, values, count)
        points, values = np.concatenate([points, new]), np.append(values, evaluate(problem, agent, new))
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
