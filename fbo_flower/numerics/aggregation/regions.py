"""Divide a cube into boxes, and define functions with different weights in each box.

Notation: `P` boxes, `c` axes that are divided, `F` columns of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.surrogates.rff import RandomFeatures


@dataclass(frozen=True)
class Boxes:
    """Disjoint boxes that cover the unit cube of `c` axes.

    Parameters
    ----------
    low, high : `(P, c)`, lower and upper corners
    """

    low: Array
    high: Array

    @staticmethod
    def halve(num_boxes: int, num_axes: int) -> Boxes:
        """Return `num_boxes` boxes, made by halving the first largest one along its longest side."""
        if num_boxes < 1 or (num_axes < 1 and num_boxes > 1):
            raise ConfigError(f"boxes: expected at least one, and an axis to cut, got {num_boxes, num_axes}")
        low, high = [np.zeros(num_axes)], [np.ones(num_axes)]
        while len(low) < num_boxes:
            sides = np.array(high) - np.array(low)
            largest = int(np.argmax(sides.prod(axis=1)))
            axis = int(np.argmax(sides[largest]))
            middle = (low[largest][axis] + high[largest][axis]) / 2
            upper, lower = low[largest].copy(), high[largest].copy()
            upper[axis] = lower[axis] = middle
            low.insert(largest + 1, upper)
            high.insert(largest + 1, high[largest])
            high[largest] = lower
        return Boxes(np.array(low), np.array(high))

    def __len__(self) -> int:
        return len(self.low)

    def index(self, x: Array) -> IntArray:
        """Return the index of the box of every row of `x (n, c)`: `(n,)`; a box includes its lower faces."""
        below = (x[:, None, :] < self.high) | (self.high == 1.0)
        inside: IntArray = ((x[:, None, :] >= self.low) & below).all(axis=2).argmax(axis=1)
        return inside

    def stretch(self, x: Array, box: int) -> Array:
        """Return points of the cube `(n, c)` scaled into one box."""
        return np.asarray(self.low[box] + x * (self.high[box] - self.low[box]))


@dataclass(frozen=True)
class BoxwiseLinearFunction:
    """The function `phi(z)^T weights[i]` for `z` in box `i`.

    Parameters
    ----------
    features : `M` shared random features
    weights : `(P, M)`, one row per box
    boxes : the boxes
    columns : `(c,)`, the feature columns that the boxes divide
    """

    features: RandomFeatures
    weights: Array
    boxes: Boxes
    columns: IntArray

    def __call__(self, z: Array, /) -> Array:
        own = self.weights[self.boxes.index(z[:, self.columns])]
        return np.asarray(np.einsum("nm,nm->n", self.features(z), own))

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`; jumps between boxes are ignored."""
        values, gradients = np.empty(len(z)), np.empty(z.shape)
        place = self.boxes.index(z[:, self.columns])
        for box in np.unique(place):
            rows = place == box
            values[rows], gradients[rows] = self.features.value_and_gradient(z[rows], self.weights[box])
        return values, gradients
