"""Tune a small neural network on data that all agents share [Zhan2025, Sec. IV-C].

The paper tunes learning rate and hidden width of a 3-layer network (input, one hidden layer, output) and says
that its agents maximise one identical black box without noise. Therefore all agents have the same rows, split
once, the same initial weights and the same order of rows. The paper does not give ranges, optimiser, epochs
and sizes; we chose them so that an evaluation takes some tens of milliseconds. Shapes: `n` rows, `d`
features, `h` hidden units. Initial weights are drawn for the widest network; a narrower one takes the first
columns, so that the loss is as smooth in the width as possible.

References
----------
[Zhan2025] Zhan, Zhang, Righter, Zheng, Anderson. Collaborative Bayesian optimization via Wasserstein
barycenters.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import train_validation
from fbo_flower.simulation.problems import Config, Problem, number
from fbo_flower.space import Float, Int, SearchSpace
from studies.problems.california_trees import districts, features_and_values
from studies.problems.data import CALIFORNIA_FILE, Rows, data_file, standardised

ADAM_MEAN, ADAM_SQUARE, ADAM_EPSILON = 0.9, 0.999, 1e-8  # beta1, beta2, epsilon of Kingma and Ba 2015


def predict(weights: Array, x: Array, width: int) -> Array:
    """Return the output `(n,)`: logits, or numbers."""
    hidden, bias, out, offset = _split(weights, x.shape[1], width)
    return np.maximum(x @ hidden + bias, 0.0) @ out + offset


def loss(output: Array, y: Array, classify: bool) -> float:
    """Return the mean log loss of logits, or the mean squared error."""
    if not classify:
        return float(np.mean((output - y) ** 2))
    return float(np.mean(np.logaddexp(0.0, output) - y * output))


def _gradient(weights: Array, x: Array, y: Array, width: int, classify: bool) -> Array:
    """Return the gradient of the mean loss with respect to all weights, by back-propagation."""
    hidden, bias, out, offset = _split(weights, x.shape[1], width)
    active = np.maximum(x @ hidden + bias, 0.0)
    output = active @ out + offset
    # d loss / d output; tanh never overflows: sigmoid(z) = (1 + tanh(z / 2)) / 2
    residual = 0.5 + 0.5 * np.tanh(0.5 * output) - y if classify else 2.0 * (output - y)
    residual /= len(y)
    below = np.outer(residual, out) * (active > 0)
    return np.concatenate([(x.T @ below).ravel(), below.sum(axis=0), residual @ active, [residual.sum()]])


def _split(weights: Array, dimension: int, width: int) -> tuple[Array, Array, Array, Array]:
    """Return views: hidden weights `(d, h)` and biases `(h,)`, output weights `(h,)` and bias `()`."""
    first, second = dimension * width, dimension * width + width
    return weights[:first].reshape(dimension, width), weights[first:second], weights[second:-1], weights[-1]


MAX_WIDTH, BATCH_SIZE = 64, 32
SPACE = SearchSpace(
    {"learning_rate": Float(1e-4, 1e-1, log=True), "hidden_width": Int(2, MAX_WIDTH, log=True)}
)


@dataclass(frozen=True)
class SharedNetwork(Problem):
    """Minus the validation loss of a network with one hidden layer; the same for all agents.

    Attributes
    ----------
    num_epochs : passes over the training rows
    """

    num_epochs: int = 20

    metric: ClassVar[str] = "minus validation loss"
    default_agents: ClassVar[int] = 4
    classify: ClassVar[bool]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("num_epochs", self.num_epochs >= 1, "at least 1")

    @property
    def space(self) -> SearchSpace:
        return SPACE

    @abstractmethod
    def rows(self) -> tuple[Rows, Rows]:
        """Return the training rows and the validation rows."""

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        """Train with a configuration and return minus the loss."""
        self.check_partition(partition)
        rng = generator(self.seed, self.name, "training")
        (train, validation), rate = self.rows(), number(config, "learning_rate")
        width, dimension = int(number(config, "hidden_width")), train.x.shape[1]
        scale = np.sqrt(2.0 / dimension)  # He et al. 2015
        hidden = scale * rng.standard_normal((dimension, MAX_WIDTH))[:, :width]
        out = np.sqrt(1.0 / width) * rng.standard_normal(MAX_WIDTH)[:width]
        weights = np.concatenate([hidden.ravel(), np.zeros(width), out, np.zeros(1)])
        mean, square = np.zeros_like(weights), np.zeros_like(weights)
        step = 0
        for _ in range(self.num_epochs):
            order = rng.permutation(len(train.y))
            for start in range(0, len(order), BATCH_SIZE):  # the last step takes the remaining rows
                rows = order[start : start + BATCH_SIZE]
                gradient = _gradient(weights, train.x[rows], train.y[rows], width, self.classify)
                step += 1
                mean += (1 - ADAM_MEAN) * (gradient - mean)
                square += (1 - ADAM_SQUARE) * (gradient * gradient - square)
                corrected = rate * np.sqrt(1 - ADAM_SQUARE**step) / (1 - ADAM_MEAN**step)
                weights -= corrected * mean / (np.sqrt(square) + ADAM_EPSILON)
        return -loss(predict(weights, validation.x, width), validation.y, self.classify)


class BreastCancerMLP(SharedNetwork):
    """Minus log loss of a network that separates malignant from benign tumours (Wisconsin)."""

    name: ClassVar[str] = "breast-cancer-mlp"
    classify: ClassVar[bool] = True

    def rows(self) -> tuple[Rows, Rows]:
        return _breast_cancer(self.seed)


class CaliforniaMLP(SharedNetwork):
    """Minus squared error of a network that predicts house values in California, in (100 000 dollars)^2.

    All columns are standardised by the training rows. Of 2000 districts half train.
    """

    name: ClassVar[str] = "california-mlp"
    classify: ClassVar[bool] = False

    def check_data(self) -> None:
        data_file(CALIFORNIA_FILE)

    def rows(self) -> tuple[Rows, Rows]:
        return _california(self.seed, str(data_file(CALIFORNIA_FILE)))


@lru_cache(maxsize=8)
def _breast_cancer(seed: int) -> tuple[Rows, Rows]:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    train, validation = train_validation(y, 0.7, generator(seed, "breast-cancer-mlp", "split"))
    return standardised(x, y.astype(np.float64), train, validation)


@lru_cache(maxsize=8)
def _california(seed: int, path: str) -> tuple[Rows, Rows]:
    table = districts(path)
    chosen = generator(seed, "california-mlp", "split").permutation(len(table))[:2000]
    x, y = features_and_values(table)
    y = y - y[chosen[:1000]].mean()  # outputs start near 0
    return standardised(x, y, chosen[:1000], chosen[1000:])
