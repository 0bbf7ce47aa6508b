"""Average the designs of several agents in a search space with categories and conditions.

Agent `k` evaluates `sum_j w_kj(t) x_j`, where `W(t)` moves from `1/K` everywhere to the identity [Yue2025]:

    w_kj(t) = (1 - s) / K + s [j = k],      s = min(t / T, 1).

Floats, integers and ordinals are averaged on their axis of the unit cube, then snapped. Categories cannot be
averaged: the one with the largest total weight wins, the agent's own in a tie. On the axis of a conditional
parameter only designs in which it is active count, with their weights scaled to the sum 1. If it is active in
none of them, it is at 0.5.

[Yue2025] Yue, Liu, Berahas, Johnson, Al Kontar: Collaborative and distributed Bayesian optimization via
consensus, IEEE Transactions on Automation Science and Engineering, 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import Array, IntArray
from fbo_flower.space import Categorical, SearchSpace


@dataclass(frozen=True)
class Designs:
    """The designs `x_j` of `K` agents, and their sums, so that each average takes a time independent of `K`.

    Attributes
    ----------
    points : `(K, D)`, snapped to the search space
    active : `(K, D)`, 1 where a parameter is active, else 0
    total : `(D,)`, sums of the active coordinates
    count : `(D,)`, in how many designs each parameter is active
    bins : axis of a category -> `(K,)`, index of its value in each design
    votes : axis of a category -> how many designs have each of its values
    """

    space: SearchSpace
    points: Array
    active: Array
    total: Array
    count: Array
    bins: Mapping[int, IntArray]
    votes: Mapping[int, Array]

    @staticmethod
    def of(space: SearchSpace, points: Array) -> Designs:
        """Return the designs at points `(K, D)` in the unit cube."""
        points = space.snap(points)
        active = space.active(points).astype(np.float64)
        bins: dict[int, IntArray] = {}
        votes: dict[int, Array] = {}
        for axis, parameter in enumerate(space.parameters.values()):
            if isinstance(parameter, Categorical):
                indices = parameter.bin_of(np.ascontiguousarray(points[:, axis]))
                bins[axis] = np.asarray(indices, dtype=np.int64)
                tally = np.bincount(bins[axis], weights=active[:, axis], minlength=parameter.num_values)
                votes[axis] = np.asarray(tally, dtype=np.float64)
        return Designs(space, points, active, (active * points).sum(axis=0), active.sum(axis=0), bins, votes)

    def mixed(self, row: int, progress: float) -> Array:
        """Return `sum_j w_kj x_j`, `(D,)`, for the agent of a row.

        Parameters
        ----------
        progress : `s`, from 0 (all agents alike) to 1 (the agent's own design)
        """
        share = (1.0 - progress) / len(self.points)
        own = progress * self.active[row]
        weight = share * self.count + own
        sums = share * self.total + own * self.points[row]
        point = np.where(weight > 0.0, sums / np.maximum(weight, 1e-300), 0.5)
        for axis, bins in self.bins.items():
            parameter = self.space.parameters[self.space.names[axis]]
            assert isinstance(parameter, Categorical)
            tally = share * self.votes[axis]
            if own[axis] or self.active[row, axis]:
                tally[bins[row]] += own[axis] + 1e-12  # the own category wins a tie
            point[axis] = parameter.centre_of(np.array([int(np.argmax(tally))]))[0]
        mixed: Array = self.space.snap(np.clip(point, 0.0, 1.0)[None, :])[0]
        return mixed
