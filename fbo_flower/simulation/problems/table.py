"""A problem read from a file of values: hundreds of studies on it take as long as one on the real objective.

`python -m studies tabulate` of the repository makes such files; `docs/results/README.md` there describes the
format. Values between the tabulated points are interpolated, so a table is only close to the problem from
which it was made; the file holds held-out points that measure how close.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.scattered import DelaunayInterpolant
from fbo_flower.simulation.problems.base import Config, Problem
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.files import read_arrays
from fbo_flower.storage.paths import path_of

PREFIX = "table:"
FORMAT = "fbo-flower table 1"
MADE = "a file made by `python -m studies tabulate` of the repository"


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
