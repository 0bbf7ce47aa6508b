"""A network with one hidden layer, trained by Adam and fast enough to be evaluated many times.

Shapes: `n` rows, `d` features, `h` hidden units. The initial weights are drawn for the widest network;
a narrower network takes the first columns. Every width sees the rows in the same order. This makes the loss
as smooth in the width as possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fbo_flower.numerics.arrays import Array

ADAM_MEAN, ADAM_SQUARE, ADAM_EPSILON = 0.9, 0.999, 1e-8  # beta1, beta2, epsilon of Kingma and Ba 2015


class Rows(NamedTuple):
    """Features `(n, d)` and targets `(n,)`."""

    x: Array
    y: Array


@dataclass(frozen=True)
class Training:
    """The fixed settings of training, which are not tuned.

    Attributes
    ----------
    classify : True: targets are 0 or 1, and the loss is the log loss; False: targets are numbers, and the
        loss is the squared error
    num_epochs : passes over the rows
    batch_size : rows per step; the last step of an epoch takes the remaining rows
    max_width : largest number of hidden units
    """

    classify: bool
    num_epochs: int
    batch_size: int
    max_width: int


def validation_loss(
    train: Rows,
    validation: Rows,
    learning_rate: float,
    width: int,
    training: Training,
    rng: np.random.Generator,
) -> float:
    """Train on some rows and return the mean loss on others.

    Parameters
    ----------
    learning_rate : learning rate of Adam, positive
    width : `h`, the number of hidden units; the activation is ReLU
    rng : draws the initial weights and the order of the rows
    """
    dimension, widest = train.x.shape[1], training.max_width
    scale = np.sqrt(2.0 / dimension)  # He et al. 2015
    hidden = scale * rng.standard_normal((dimension, widest))[:, :width]
    out = np.sqrt(1.0 / width) * rng.standard_normal(widest)[:width]
    weights = np.concatenate([hidden.ravel(), np.zeros(width), out, np.zeros(1)])
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    step = 0
    for _ in range(training.num_epochs):
        order = rng.permutation(len(train.y))
        for start in range(0, len(order), training.batch_size):
            rows = order[start : start + training.batch_size]
            gradient = _gradient(weights, train.x[rows], train.y[rows], width, training.classify)
            step += 1
            mean += (1 - ADAM_MEAN) * (gradient - mean)
            square += (1 - ADAM_SQUARE) * (gradient * gradient - square)
            rate = learning_rate * np.sqrt(1 - ADAM_SQUARE**step) / (1 - ADAM_MEAN**step)
            weights -= rate * mean / (np.sqrt(square) + ADAM_EPSILON)
    return loss(predict(weights, validation.x, width), validation.y, training.classify)


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
