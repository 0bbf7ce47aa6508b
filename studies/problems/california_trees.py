"""Tune an ensemble of trees that predicts house values, one region of California per agent.

A mixed and conditional space on real data that are split by nature: boosting or a forest, each with
parameters of its own, for 32 regions of equal size that differ in what makes a house expensive.

References
----------
Pace and Barry. Sparse spatial autoregressions. Statistics and Probability Letters 33, 1997.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fbo_flower.clients import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import Config, Problem, number
from fbo_flower.space import Categorical, Float, Int, SearchSpace
from studies.problems.data import CALIFORNIA_FILE, Rows, data_file

COLUMNS = (
    "longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population",
    "households", "median_income", "median_house_value",
)  # fmt: skip


@lru_cache(maxsize=1)
def districts(path: str) -> Array:
    """Return the table of all districts, `(20640, 9)`, with the columns `COLUMNS`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        columns = tuple(next(lines).strip().split(","))
        table: Array = np.loadtxt(lines, delimiter=",", ndmin=2)
    if columns != COLUMNS or table.shape[1] != len(columns):
        raise ConfigError(f"{path}: expected the columns {', '.join(COLUMNS)}, got {', '.join(columns)}")
    return table


def features_and_values(table: Array) -> tuple[Array, Array]:
    """Return features `(n, 8)` and house values `(n,)` in 100 000 dollars.

    The file's columns are totals of a district, not averages per household; the features are the logarithms
    of rooms, bedrooms, population and households, and the other columns as they are.
    """
    x = table[:, :-1].copy()
    x[:, 3:7] = np.log1p(x[:, 3:7])
    return x, table[:, -1] / 1e5


def regions(table: Array, halvings: int) -> list[IntArray]:
    """Return the rows of `2^halvings` regions of equal size: halve the longer side of each in turn."""
    parts = [np.arange(len(table))]
    for _ in range(halvings):
        halves: list[IntArray] = []
        for part in parts:
            places = table[part, :2]
            axis = int(np.argmax(np.ptp(places, axis=0)))
            order = np.lexsort((part, places[:, 1 - axis], places[:, axis]))
            halves += [part[order[: len(part) // 2]], part[order[len(part) // 2 :]]]
        parts = halves
    return parts


HALVINGS = 5
NUM_TRAIN = 200
SPACE = SearchSpace({
    "ensemble": Categorical(["boosting", "forest"]),
    "num_trees": Int(5, 100, log=True),
    "max_depth": Int(1, 10),
    "max_features": Float(0.1, 1.0),
    "min_leaf": Int(1, 32, log=True),
    "learning_rate": Float(0.01, 1.0, log=True, active_when={"ensemble": "boosting"}),
    "subsample": Float(0.3, 1.0, active_when={"ensemble": "boosting"}),
    "max_samples": Float(0.3, 1.0, active_when={"ensemble": "forest"}),
})  # fmt: skip


@dataclass(frozen=True)
class CaliforniaTrees(Problem):
    """Validation R2 of boosted trees or a random forest, in eight parameters; deterministic."""

    name: ClassVar[str] = "california-trees"
    metric: ClassVar[str] = "validation R2"
    default_agents: ClassVar[int] = 2**HALVINGS
    max_agents: ClassVar[int | None] = 2**HALVINGS

    def check_data(self) -> None:
        data_file(CALIFORNIA_FILE)

    @property
    def space(self) -> SearchSpace:
        return SPACE

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor  # takes a second

        self.check_partition(partition)
        train, validation = _region(str(data_file(CALIFORNIA_FILE)), partition, self.seed)
        shared: dict[str, Any] = {
            "n_estimators": int(number(config, "num_trees")),
            "max_depth": int(number(config, "max_depth")),
            "max_features": number(config, "max_features"),
            "min_samples_leaf": int(number(config, "min_leaf")),
            "random_state": partition,
        }
        if config["ensemble"] == "forest":
            model = RandomForestRegressor(max_samples=number(config, "max_samples"), **shared)
        else:
            rate, subsample = number(config, "learning_rate"), number(config, "subsample")
            model = GradientBoostingRegressor(learning_rate=rate, subsample=subsample, **shared)
        return float(model.fit(*train).score(*validation))


@lru_cache(maxsize=64)
def _region(path: str, partition: int, seed: int) -> tuple[Rows, Rows]:
    """Return the rows of a region: 200 districts drawn at random train, the other 445 validate."""
    x, y = features_and_values(districts(path)[regions(districts(path), HALVINGS)[partition]])
    order = generator(seed, CaliforniaTrees.name, "split", partition).permutation(len(y))
    train, validation = np.split(order, [NUM_TRAIN])
    return Rows(x[train], y[train]), Rows(x[validation], y[validation])
