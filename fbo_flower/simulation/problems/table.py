"""A problem read from a file of values: hundreds of studies on it take as long as one on the real objective.

`python -m studies tabulate` of the repository makes such files; `docs/results/README.md` there describes the
format. Values between the tabulated points are interpolated, so a table is only close to the problem from
which it was made; the file holds held-out points that measure how close.

The points are triangulated (Delaunay); in each simplex the interpolant is linear between the corners. So it
is continuous, exact at the points, and attains its maximum at one of them. Notation: `n` points, `D` axes, 1
to 3.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.simulation.problems.base import Config, Problem
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.files import read_arrays
from fbo_flower.storage.paths import path_of

MAX_DIMENSION = 3
EDGE = 1e-9  # points closer to a face are moved inside, because rounding may put them outside
PREFIX = "table:"
FORMAT = "fbo-flower table 1"
MADE = "a file made by `python -m studies tabulate` of the repository"


class DelaunayInterpolant:
    """Piecewise linear interpolation of values at scattered points.

    Parameters
    ----------
    points : `(n, D)`, all different, including all corners of the cube
    values : `(n,)`
    """

    def __init__(self, points: Array, values: Array) -> None:
        dimension = points.shape[1] if points.ndim == 2 else 0
        if not 1 <= dimension <= MAX_DIMENSION or values.shape != (len(points),):
            raise ConfigError(
                f"points: expected (n, D) with D from 1 to {MAX_DIMENSION}, and values (n,), "
                f"got {points.shape} and {values.shape}"
            )
        if not (np.isfinite(points).all() and np.isfinite(values).all()):
            raise ConfigError("points: expected finite numbers, and values too")
        for corner in itertools.product((0.0, 1.0), repeat=dimension):
            if not (points == corner).all(axis=1).any():
                raise ConfigError(f"points: expected all corners of the cube, {list(corner)} is missing")
        self.points, self.values = points, values
        if points.shape[1] > 1:
            from scipy.interpolate import LinearNDInterpolator
            from scipy.spatial import Delaunay

            self._triangulation = Delaunay(points)
            self._linear = LinearNDInterpolator(self._triangulation, values)

    @property
    def simplices(self) -> IntArray:
        """Indices of the corners of every simplex, `(m, D + 1)`."""
        if self.points.shape[1] == 1:
            order = np.argsort(self.points[:, 0])
            return np.stack([order[:-1], order[1:]], axis=1)
        return np.asarray(self._triangulation.simplices, dtype=np.int64)

    def __call__(self, z: Array) -> Array:
        """Return the interpolated values `(m,)` at `z (m, D)`."""
        dimension = self.points.shape[1]
        if z.ndim != 2 or z.shape[1] != dimension:
            raise ConfigError(f"points: expected (m, {dimension}), got {z.shape}")
        if dimension == 1:
            order = np.argsort(self.points[:, 0])
            return np.interp(z[:, 0], self.points[order, 0], self.values[order])
        result = np.array(self._linear(np.clip(z, EDGE, 1.0 - EDGE)), dtype=np.float64)
        # in no simplex or a degenerate one: take the nearest point
        for i in np.flatnonzero(~np.isfinite(result)):
            result[i] = self.values[((self.points - z[i]) ** 2).sum(axis=1).argmin()]
        return result


@dataclass(frozen=True)
class TableData:
    """The content of a table file.

    Parameters
    ----------
    header : format, problem, problem_options, seed, metric, version
    space : the search space
    surfaces : one per agent
    checks : for each agent, held-out points `(k, D)` and the real objective's values there `(k,)`
    """

    header: Mapping[str, Any]
    space: SearchSpace
    surfaces: tuple[DelaunayInterpolant, ...]
    checks: tuple[tuple[Array, Array], ...]


@dataclass(frozen=True)
class TableProblem(Problem):
    """The tabulated objectives of another problem; deterministic, with known optima.

    Attributes
    ----------
    file : path of a file made by `python -m studies tabulate` of the repository
    """

    file: str = field(default="")

    name: ClassVar[str] = "table"
    metric: ClassVar[str] = "tabulated value"
    default_agents: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        data = self.data
        most = len(data.surfaces)
        if self.num_agents > most:
            raise ConfigError(f"{self.file}: expected at most {most} agents, got {self.num_agents}")
        # tables and pictures print the name and the metric of the file
        object.__setattr__(self, "name", f"{PREFIX}{self.file}")
        object.__setattr__(self, "metric", str(data.header["metric"]))

    @property
    def data(self) -> TableData:
        """Return the content of the file, which is read once per process."""
        return read_table(self.file)

    @property
    def space(self) -> SearchSpace:
        return self.data.space

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        self.check_partition(partition)
        data = self.data
        return float(data.surfaces[partition](data.space.encode(config)[None, :])[0])

    def optimum(self, partition: int) -> float:
        self.check_partition(partition)
        return float(self.data.surfaces[partition].values.max())


def table_problem(
    file: str, num_agents: int | None, seed: int, options: Mapping[str, object]
) -> TableProblem:
    """Return the problem in a file, with its first `num_agents` agents; None: all."""
    if options:
        raise ConfigError(f"{PREFIX}{file}: expected no options; got {', '.join(options)}")
    count = len(read_table(file).surfaces) if num_agents is None else num_agents
    return TableProblem(count, seed, file)


def read_table(file: str) -> TableData:
    """Return the content of a file; ConfigError if it is no table. A file that has changed is read again."""
    path = path_of(file, "table")
    try:
        return _read(str(path.resolve()), path.stat().st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"table: expected {MADE}, got {file} ({error.strerror})") from error


@lru_cache(maxsize=8)
def _read(path: str, modified: int) -> TableData:
    try:
        file = read_arrays(path)
        header = json.loads(str(file["header"]))
        names = ("agent", "points", "values", "check_agent", "check_points", "check_values")
        agent, points, values, check_agent, check_points, check_values = (file[n] for n in names)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"format: expected {FORMAT!r}")
        space = SearchSpace.from_json(json.dumps(header["space"]))
        count = int(agent.max()) + 1
        surfaces = tuple(DelaunayInterpolant(points[agent == a], values[agent == a]) for a in range(count))
        checks = tuple((check_points[check_agent == a], check_values[check_agent == a]) for a in range(count))
    except (FBOError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: expected {MADE} ({error})") from error
    if points.shape[1] != space.dimension:
        raise ConfigError(f"{path}: expected {space.dimension} columns of points, got {points.shape[1]}")
    return TableData(header, space, surfaces, checks)
