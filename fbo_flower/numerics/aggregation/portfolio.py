"""What the agents of FTS make of each other's messages: a portfolio of points, or a function for each box.

**The portfolio** is of points that together are good for many functions, the agents' messages.
`S` candidate points, `N` messages; `z (S, N)` is the function of message `n` at candidate `s`,
standardised over the candidates, so that every agent has the same weight.

The first point maximises `mean_n z_n(x)`. Each further point maximises the mean improvement
`mean_n max(0, z_n(x) - max_{j <= k} z_n(x_j))`, so it helps the agents for which no earlier point is good.
The objective is monotone and submodular, so the greedy portfolio reaches at least `1 - 1/e` of the best
possible value [Nemhauser, Wolsey and Fisher 1978].

**The boxes** divide the cube, and a function has other weights in each of them. `P` boxes, `c` axes that are
divided, `F` columns of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.surrogates.rff import RandomFeatures
from fbo_flower.numerics.surrogates.transforms import mean_ranks

LEAST_GAIN = 1e-12  # in standard deviations of a message; a smaller one is rounding


def standardise_columns(values: Array) -> Array:
    """Return `values` `(S, N)` with mean 0 and s.d. 1 in every column; constant columns become zeros."""
    centred = values - values.mean(axis=0)
    stddev = centred.std(axis=0)
    return np.asarray(centred / np.where(stddev > 1e-12, stddev, np.inf), dtype=np.float64)


def next_point(z: Array, taken: Array) -> int | None:
    """Return the index of the candidate with the largest mean improvement over the points already taken.

    Returns
    -------
    None, if no candidate is better than the others or than the points taken: the messages say nothing more.

    Parameters
    ----------
    z : `(S, N)`, standardised messages at the candidates
    taken : `(k, N)`, the same messages at the points taken so far; `k` may be 0
    """
    if len(taken) == 0:
        gain = z.mean(axis=1)
        gain = gain - gain.min()
    else:
        gain = np.maximum(z - taken.max(axis=0), 0.0).mean(axis=1)
    best = int(np.argmax(gain))
    return best if gain[best] > LEAST_GAIN else None


def rank_agreement(z: Array, target: Array) -> Array:
    """Return Spearman's rank correlation `(N,)` of every column of `z` `(S, N)` with `target` `(S,)`."""
    ranks = np.column_stack([mean_ranks(column) for column in z.T]) if z.shape[1] else z
    own = mean_ranks(target)
    centred, own = ranks - ranks.mean(axis=0), own - own.mean()
    norms = np.sqrt((centred**2).sum(axis=0) * (own @ own))
    return np.asarray(own @ centred / np.where(norms > 0, norms, np.inf), dtype=np.float64)


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
