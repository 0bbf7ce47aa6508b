"""Tune a logistic regression that separates a patient's severe recordings from the mild ones.

It replaces the activity-recognition experiments of [Dai2020], whose data are not available, with the same
three hyperparameters of a logistic regression per person. 42 people with Parkinson's disease, about 140 voice
recordings each; 16 voice measures and the time of the recording are the features.

A recording is *severe* if its UPDRS score exceeds the subject's median, or reaches it if that gives more
equal halves (some scores stay at their maximum for months). A threshold shared by all subjects does not work:
with the best one only 15 of the 42 subjects have more than 5 % of both classes, because a person's score
changes by a few points in half a year while people differ by forty.

The regression takes steps along the mean gradient of a mini-batch. `SGDClassifier.partial_fit` would
take one step per row for every batch size, so that `batch_size` would have no effect.

References
----------
[Dai2020] Dai, Low, Jaillet. Federated Bayesian optimization via Thompson sampling. NeurIPS 2020, Sec. 5.2.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fbo_flower.clients import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import by_group, train_validation
from fbo_flower.simulation.problems import Config, Problem, number
from fbo_flower.space import Float, Int, SearchSpace
from studies.problems.data import PARKINSONS_FILE, Rows, data_file, standardised

NUM_SUBJECTS = 42
SPACE = SearchSpace(
    {"batch_size": Int(20, 60), "l2": Float(1e-6, 1.0, log=True), "learning_rate": Float(0.01, 0.1, log=True)}
)
NOT_FEATURES = ("subject#", "age", "sex", "motor_UPDRS", "total_UPDRS")


@dataclass(frozen=True)
class ParkinsonsLR(Problem):
    """Validation accuracy of a mini-batch logistic regression; deterministic unless `noisy`.

    Attributes
    ----------
    target : name of the score whose median separates severe from mild
    num_epochs : passes over the training rows
    train_fraction : share of each subject's rows, class by class, that train; the others validate
    noisy : draw a new order of the rows in each evaluation, as is usual in training
    """

    target: Literal["total_UPDRS", "motor_UPDRS"] = "total_UPDRS"
    num_epochs: int = 30
    train_fraction: float = 0.5
    noisy: bool = False

    name: ClassVar[str] = "parkinsons-lr"
    metric: ClassVar[str] = "validation accuracy"
    default_agents: ClassVar[int] = NUM_SUBJECTS
    max_agents: ClassVar[int | None] = NUM_SUBJECTS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("num_epochs", self.num_epochs >= 1, "at least 1")
        self.expect("train_fraction", 0 < self.train_fraction < 1, "a number between 0 and 1")

    def check_data(self) -> None:
        data_file(PARKINSONS_FILE)

    @property
    def space(self) -> SearchSpace:
        return SPACE

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        rng = context.rng if self.noisy else self._order(context.partition)
        return self._accuracy(config, context.partition, rng)

    def true_value(self, config: Config, partition: int) -> float | None:
        return None if self.noisy else self._accuracy(config, partition, self._order(partition))

    def _order(self, partition: int) -> np.random.Generator:
        return generator(self.seed, self.name, "order", partition)

    def _accuracy(self, config: Config, partition: int, rng: np.random.Generator) -> float:
        self.check_partition(partition)
        train, validation = _subject(self, str(data_file(PARKINSONS_FILE)), partition)
        weights, intercept = fit_logistic_regression(
            *train,
            batch_size=int(number(config, "batch_size")),
            l2=number(config, "l2"),
            learning_rate=number(config, "learning_rate"),
            num_epochs=self.num_epochs,
            rng=rng,
        )
        severe = validation.x @ weights + intercept > 0
        return float(np.mean(severe == (validation.y == 1)))


def fit_logistic_regression(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    *,
    batch_size: int,
    l2: float,
    learning_rate: float,
    num_epochs: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], float]:
    """Minimise `mean_i log(1 + exp(-s_i (w^T x_i + b))) + l2 / 2 ||w||^2`, `s_i = 2 y_i - 1`, in batches.

    Parameters
    ----------
    x : `(n, d)`
    y : `(n,)`, 0 or 1
    batch_size : rows per step; the last step of an epoch takes the remaining rows
    learning_rate : constant step size
    rng : draws a new order of the rows in each epoch

    Returns
    -------
    `w`, `(d,)`, and `b`
    """
    weights, intercept = np.zeros(x.shape[1]), 0.0
    for _ in range(num_epochs):
        order = rng.permutation(len(y))
        for start in range(0, len(y), batch_size):
            rows = order[start : start + batch_size]
            batch = x[rows]
            # tanh never overflows: sigmoid(z) = (1 + tanh(z / 2)) / 2
            residual = 0.5 + 0.5 * np.tanh(0.5 * (batch @ weights + intercept)) - y[rows]
            weights = weights - learning_rate * (residual @ batch / len(rows) + l2 * weights)
            intercept -= learning_rate * float(residual.mean())
    return weights, intercept


@lru_cache(maxsize=2)
def _recordings(path: str) -> tuple[tuple[str, ...], NDArray[np.float64], list[NDArray[np.intp]]]:
    """Return the column names, the table and the rows of each subject."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        columns = tuple(next(lines).strip().split(","))
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    missing = [column for column in (*NOT_FEATURES, "test_time") if column not in columns]
    if missing:
        raise ConfigError(f"{path}: expected the columns {', '.join(missing)}, found none")
    subjects = by_group(table[:, columns.index("subject#")])
    if len(subjects) != NUM_SUBJECTS:
        raise ConfigError(f"{path}: expected {NUM_SUBJECTS} subjects, got {len(subjects)}")
    return columns, table, subjects


@lru_cache(maxsize=1024)
def _subject(problem: ParkinsonsLR, path: str, partition: int) -> tuple[Rows, Rows]:
    columns, table, subjects = _recordings(path)
    rows = table[subjects[partition]]
    score = rows[:, columns.index(problem.target)]
    severe = _upper_half(score).astype(np.float64)
    rng = generator(problem.seed, problem.name, "split", partition)
    train, validation = train_validation(severe, problem.train_fraction, rng)
    x = rows[:, [index for index, column in enumerate(columns) if column not in NOT_FEATURES]]
    return standardised(x, severe, train, validation)


def _upper_half(score: NDArray[np.float64]) -> NDArray[np.bool_]:
    above, not_below = score > np.median(score), score >= np.median(score)
    return not_below if abs(not_below.mean() - 0.5) < abs(above.mean() - 0.5) else above
