"""Tune an ensemble of trees that predicts house values, one region of California per agent.

A mixed and conditional space on real data that are split by nature: boosting or a forest, each with
parameters of its own, for 32 regions of equal size that differ in what makes a house expensive.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import Config, Problem, number
from fbo_flower.space import Categorical, Float, Int, SearchSpace
from studies.problems.california import districts, features_and_values, regions
from studies.problems.data import CALIFORNIA_FILE, data_file

HALVINGS = 5
NUM_TRAIN = 200
SPACE = SearchSpace(
    {
        "ensemble": Categorical(["boosting", "forest"]),
        "num_trees": Int(5, 100, log=True),
        "max_depth": Int(1, 10),
        "max_features": Float(0.1, 1.0),
        "min_leaf": Int(1, 32, log=True),
        "learning_rate": Float(0.01, 1.0, log=True, active_when={"ensemble": "boosting"}),
        "subsample": Float(0.3, 1.0, active_when={"ensemble": "boosting"}),
        "max_samples": Float(0.3, 1.0, active_when={"ensemble": "forest"}),
    }
)


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
        self.check_partition(partition)
        region = _region(str(data_file(CALIFORNIA_FILE)), partition, self.seed)
        model = _ensemble(config, random_state=partition)
        model.fit(region.x_train, region.y_train)
        return float(model.score(region.x_validation, region.y_validation))


class _Region(NamedTuple):
    x_train: Array
    y_train: Array
    x_validation: Array
    y_validation: Array


@lru_cache(maxsize=64)
def _region(path: str, partition: int, seed: int) -> _Region:
    """Return the rows of a region: 200 districts drawn at random train, the other 445 validate."""
    x, y = features_and_values(districts(path)[regions(districts(path), HALVINGS)[partition]])
    order = generator(seed, CaliforniaTrees.name, "split", partition).permutation(len(y))
    train, validation = np.split(order, [NUM_TRAIN])
    return _Region(x[train], y[train], x[validation], y[validation])


def _ensemble(config: Config, random_state: int) -> Any:
    """Return the unfitted ensemble of a configuration."""
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor  # take a second to import

    shared: dict[str, Any] = {
        "n_estimators": int(number(config, "num_trees")),
        "max_depth": int(number(config, "max_depth")),
        "max_features": number(config, "max_features"),
        "min_samples_leaf": int(number(config, "min_leaf")),
        "random_state": random_state,
    }
    if config["ensemble"] == "forest":
        return RandomForestRegressor(max_samples=number(config, "max_samples"), **shared)
    return GradientBoostingRegressor(
        learning_rate=number(config, "learning_rate"), subsample=number(config, "subsample"), **shared
    )
