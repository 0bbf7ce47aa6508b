"""A point set in the coordinates of a prior, in which the server of several agents compares functions.

In whitened coordinates `v (r,)` (`pivots`) a function's values are `basis v`. In the coordinates `u = scale v
(k,)` the distance of two functions equals their distance on the point set (`pivots.principal`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates.gp import Hyperparameters
from fbo_flower.numerics.surrogates.pivots import choose_pivots, extend, principal


@dataclass(frozen=True)
class Frame:
    """A point set in the coordinates of a prior.

    Attributes
    ----------
    points : `(S, D)`
    basis : `(S, r)`; the function's values at the points are `basis v`
    lift : `(S, k)`; they are also `lift u`
    scale : `(k, r)`, `u = scale v`
    """

    points: Array
    basis: Array
    lift: Array
    scale: Array

    def extended(
        self, added: Array, features: Array, pivots: Array, hyperparameters: Hyperparameters
    ) -> Frame:
        """Return the frame with points `(K, D)` appended, given their features and those of the pivots."""
        rows = extend(features, pivots, hyperparameters)
        back = np.linalg.pinv(self.scale)  # (r, k)
        points, basis = np.concatenate([self.points, added]), np.vstack([self.basis, rows])
        return Frame(points, basis, np.vstack([self.lift, rows @ back]), self.scale)


def with_best_pivots(
    points: Array, features: Array, hyperparameters: Hyperparameters, rank_cut: float
) -> Frame:
    """Return the frame of points `(S, D)` with features `(S, F)`, whose pivots are chosen among them."""
    pivots = choose_pivots(features, hyperparameters, rank_cut)
    inner = principal(pivots.basis, rank_cut)
    return Frame(points, pivots.basis, inner.directions, inner.scale)


def with_pivots(
    points: Array, features: Array, pivots: Array, hyperparameters: Hyperparameters, rank_cut: float
) -> Frame:
    """Return the frame of points `(S, D)` with features `(S, F)`, for pivots with features `(r, F)`."""
    basis = extend(features, pivots, hyperparameters)
    inner = principal(basis, rank_cut)
    return Frame(points, basis, inner.directions, inner.scale)
