"""Interpolate a function known at scattered points of the unit cube.

The points are triangulated (Delaunay); in each simplex the interpolant is linear between the corners. So it
is continuous, exact at the points, and attains its maximum at one of them. Notation: `n` points, `D` axes, 1
to 3.
"""

from __future__ import annotations

import itertools

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray

MAX_DIMENSION = 3
EDGE = 1e-9  # points closer to a face are moved inside, because rounding may put them outside


class DelaunayInterpolant:
    """Piecewise linear interpolation of values at scattered points.

    Parameters
    ----------
    points : `(n, D)`, all different, including all corners of the cube
    values : `(n,)`
    """

    def __init__(self, points: Array, values: Array) -> None:
        dimension = points.shape[1] if points.ndim == 2 else 0
        if not 1 <= dimension <= MAX_DIMENSION or values.shape != (len(points),):
            raise ConfigError(
                f"points: expected (n, D) with D from 1 to {MAX_DIMENSION}, and values (n,), "
                f"got {points.shape} and {values.shape}"
            )
        if not (np.isfinite(points).all() and np.isfinite(values).all()):
            raise ConfigError("points: expected finite numbers, and values too")
        for corner in itertools.product((0.0, 1.0), repeat=dimension):
            if not (points == corner).all(axis=1).any():
                raise ConfigError(f"points: expected all corners of the cube, {list(corner)} is missing")
        self.points, self.values = points, values
        if points.shape[1] > 1:
            from scipy.interpolate import LinearNDInterpolator
            from scipy.spatial import Delaunay

            self._triangulation = Delaunay(points)
            self._linear = LinearNDInterpolator(self._triangulation, values)

    @property
    def simplices(self) -> IntArray:
        """Indices of the corners of every simplex, `(m, D + 1)`."""
        if self.points.shape[1] == 1:
            order = np.argsort(self.points[:, 0])
            return np.stack([order[:-1], order[1:]], axis=1)
        return np.asarray(self._triangulation.simplices, dtype=np.int64)

    def __call__(self, z: Array) -> Array:
        """Return the interpolated values `(m,)` at `z (m, D)`."""
        dimension = self.points.shape[1]
        if z.ndim != 2 or z.shape[1] != dimension:
            raise ConfigError(f"points: expected (m, {dimension}), got {z.shape}")
        if dimension == 1:
            order = np.argsort(self.points[:, 0])
            return np.interp(z[:, 0], self.points[order, 0], self.values[order])
        result = np.array(self._linear(np.clip(z, EDGE, 1.0 - EDGE)), dtype=np.float64)
        # in no simplex or a degenerate one: take the nearest point
        for i in np.flatnonzero(~np.isfinite(result)):
            result[i] = self.values[((self.points - z[i]) ** 2).sum(axis=1).argmin()]
        return result
