"""Two objectives that train step by step, for `pruning.py`, and replays of stop rules on their whole curves.

One is a small network by epochs, the other boosting by trees. Each agent has its own rows. A third of them
trains, a third judges configurations while they are tuned, and the last third is what tuning does not see.

Replays record the curves of studies that stop nothing, on other seeds than `pruning.py`, where what was lost
is known. They ask of each rule, with the trials in the order in which they were made: what share of the steps
would it have saved, and how many of the stopped trials would have become the agent's best or ended above the
median of those completed before? Algorithms do not react to the rule here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.clients import Pruning
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.curves import limit_of
from fbo_flower.simulation import Agents
from studies.experiment import Arrays, run

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


# -- replays ----------------------------------------

FIRST_SEED, NUM_TRIALS, LEAST = 100, 14, 5
# values of completed trials at a step, and their final ones -> the value below which a trial stops
LIMITS: dict[str, Callable[[Array, Array], float]] = {
    "median": lambda x, f: float(np.median(x)),
    "median, margin 2.5": lambda x, f: min(float(np.median(x)), limit_of(x, f, 2.5)),
}


def recorded(problem: str, seed: int) -> Iterator[Array]:
    """Yield the whole curves `(trials, steps)` of each agent of a study."""
    made, curves = PROBLEMS[problem], [list[list[float]]() for _ in range(NUM_AGENTS)]

    def objective(config: dict[str, Any], agent: int, context: Any) -> float:
        start = int(context.rng.integers(2**31))
        curves[agent].append(list(made.values(config, made.rows(seed)[agent], VALIDATE, start)))
        return curves[agent][-1][-1]

    agents = Agents(list(range(NUM_AGENTS)), pruning=Pruning("off"))
    run(objective, "fed-ei", {"num_candidates": 128}, NUM_TRIALS, seed, space=made.space, agents=agents)
    yield from map(np.array, curves)


def replayed(problem: str, seed: int, num_studies: int) -> Arrays:
    """Return the numbers of all rules on the recorded curves of some studies."""
    found = Arrays()
    studies = range(FIRST_SEED + seed, FIRST_SEED + seed + num_studies)
    agents = [curves for study in studies for curves in recorded(problem, study)]
    for rule, limit in LIMITS.items():
        saved, stopped = 0, list[tuple[bool, bool]]()
        for curves in agents:
            completed: list[Array] = []
            for curve in curves:
                known = np.array(completed)
                for step in range(NUM_STEPS - 1) if len(completed) >= LEAST else ():
                    if curve[: step + 1].max() < limit(known[:, step], known[:, -1]):
                        saved += NUM_STEPS - 1 - step
                        stopped.append((curve[-1] > known[:, -1].max(), curve[-1] > np.median(known[:, -1])))
                        break
                else:
                    completed.append(curve)
        best, above = np.array(stopped).reshape(-1, 2).sum(axis=0) / max(len(stopped), 1)
        numbers = {
            "share of steps saved": saved / sum(curves.size for curves in agents),
            "stopped": len(stopped), "would be best": best, "above the median": above,
        }  # fmt: skip
        found |= {f"{rule}/{name}": np.array(float(value)) for name, value in numbers.items()}
    return found
