"""Two objectives that train step by step, for `pruning.py`: a small network by epochs, boosting by trees.

Each agent has its own rows. A third of them trains, a third judges configurations while they are tuned, and
the last third is what tuning does not see.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from fbo_flower import Float, Int, SearchSpace

NUM_AGENTS, NUM_STEPS = 5, 15
TRAIN, VALIDATE, TEST = 0, 1, 2
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # x, y and the part of each row


@dataclass(frozen=True)
class Network:
    """Digits, dealt by a Dirichlet distribution over classes; a step is an epoch of a small network."""

    title: ClassVar[str] = "a small network on digits, by epochs; accuracy"
    space: ClassVar[SearchSpace] = SearchSpace(
        {
            "rate": Float(1e-4, 1.0, log=True),
            "decay": Float(1e-6, 1.0, log=True),
            "width": Int(4, 64, log=True),
            "batch": Int(4, 64, log=True),
        }
    )

    @cache  # noqa: B019
    def rows(self, seed: int) -> tuple[Rows, ...]:
        """Return the images of each agent."""
        rng = np.random.default_rng([seed, 23])
        x, y = load_digits(return_X_y=True)
        owners = np.empty(len(y), dtype=int)
        for label in range(10):
            rows = np.flatnonzero(y == label)
            owners[rows] = rng.choice(NUM_AGENTS, len(rows), p=rng.dirichlet(np.ones(NUM_AGENTS)))
        return split(x / 16.0, y, owners, rng)

    def values(self, config: dict[str, Any], data: Rows, part: int, start: int) -> Iterator[float]:
        """Train and yield the accuracy on one part of the agent's images after each epoch."""
        x, y, parts = data
        train, judged = parts == TRAIN, parts == part
        model = MLPClassifier(
            (config["width"],), solver="sgd", learning_rate_init=config["rate"], alpha=config["decay"],
            batch_size=min(config["batch"], int(train.sum())), random_state=start,
        )  # fmt: skip
        for _ in range(NUM_STEPS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                warnings.simplefilter("ignore", RuntimeWarning)  # large learning rates diverge
                model.partial_fit(x[train], y[train], classes=np.arange(10))
                try:
                    yield float(model.score(x[judged], y[judged]))
                except ValueError:  # the weights are not finite
                    yield 0.0


@dataclass(frozen=True)
class Boosting:
    """Diabetes patients, dealt by age; a step is six more boosted trees."""

    title: ClassVar[str] = "boosting on diabetes patients, by six trees; R^2"
    space: ClassVar[SearchSpace] = SearchSpace(
        {
            "rate": Float(0.005, 1.0, log=True),
            "depth": Int(1, 8),
            "subsample": Float(0.2, 1.0),
            "leaf": Int(1, 30, log=True),
            "columns": Float(0.1, 1.0),
        }
    )
    trees: ClassVar[int] = 6

    @cache  # noqa: B019
    def rows(self, seed: int) -> tuple[Rows, ...]:
        """Return the patients of each agent: mostly of one age group."""
        rng = np.random.default_rng([seed, 29])
        x, y = load_diabetes(return_X_y=True)
        order = np.argsort(x[:, 0] + x[:, 0].std() * rng.standard_normal(len(y)))
        owners = np.empty(len(y), dtype=int)
        owners[order] = np.arange(len(y)) * NUM_AGENTS // len(y)
        return split(x, (y - y.mean()) / y.std(), owners, rng)

    def values(self, config: dict[str, Any], data: Rows, part: int, start: int) -> Iterator[float]:
        """Train and yield `R^2`, at least -1, on one part of the agent's patients after each step."""
        x, y, parts = data
        train, judged = parts == TRAIN, parts == part
        model = GradientBoostingRegressor(
            learning_rate=config["rate"], max_depth=config["depth"], subsample=config["subsample"],
            min_samples_leaf=config["leaf"], max_features=config["columns"], n_estimators=0,
            random_state=start, warm_start=True,
        )  # fmt: skip
        for step in range(NUM_STEPS):
            model.n_estimators = (step + 1) * self.trees
            model.fit(x[train], y[train])
            yield max(float(model.score(x[judged], y[judged])), -1.0)


def split(x: np.ndarray, y: np.ndarray, owners: np.ndarray, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Return the rows of each agent in random order, with the part that each row belongs to."""
    held = []
    for agent in range(NUM_AGENTS):
        rows = rng.permutation(np.flatnonzero(owners == agent))
        held.append((x[rows], y[rows], np.arange(len(rows)) % 3))
    return tuple(held)


PROBLEMS: dict[str, Network | Boosting] = {"network": Network(), "boosting": Boosting()}


@cache
def final_value(problem: str, seed: int, agent: int, config: tuple[tuple[str, Any], ...]) -> float:
    """Return the value on unseen rows of a configuration that is trained to the end with another seed."""
    rows = PROBLEMS[problem].rows(seed)[agent]
    *_, value = PROBLEMS[problem].values(dict(config), rows, TEST, 10**6 + seed)
    return value
