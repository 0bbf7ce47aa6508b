"""Interpolate a function known at scattered points of the unit cube, and choose further points.

The points are triangulated (Delaunay); in each simplex the interpolant is linear between the corners. So it
is continuous, exact at the points, and attains its maximum at one of them. Notation: `n` points, `D` axes, 1
to 3.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array, IntArray

MAX_DIMENSION = 3
EDGE = 1e-9  # points closer to a face are moved inside, because rounding may put them outside
SHORTEST = 1e-3  # shorter edges are not halved
EXPLORING = 0.2  # share of new points that halve the longest edges, whatever the values


class DelaunayInterpolant:
    """Piecewise linear interpolation of values at scattered points.

    Parameters
    ----------
    points : `(n, D)`, all different, including all corners of the cube
    values : `(n,)`
    """

    def __init__(self, points: Array, values: Array) -> None:
        check_points(points, values)
        self.points, self.values = points, values
        if points.shape[1] > 1:
            self._triangulation = _delaunay()(points)

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
        z = np.clip(z, EDGE, 1.0 - EDGE)
        found = self._triangulation.find_simplex(z)
        transform = self._triangulation.transform[found]
        first = np.einsum("mij,mj->mi", transform[:, :dimension], z - transform[:, dimension])
        # barycentric coordinates of z in its simplex
        shares = np.concatenate([first, 1.0 - first.sum(axis=1, keepdims=True)], axis=1)
        corners = self._triangulation.simplices[found]
        result = (shares * self.values[corners]).sum(axis=1)
        lost = np.flatnonzero(
            (found < 0) | ~np.isfinite(result)
        )  # in no simplex or a degenerate one: take the nearest point
        for i in lost:
            result[i] = self.values[((self.points - z[i]) ** 2).sum(axis=1).argmin()]
        return np.asarray(result, dtype=np.float64)


def first_design(num_points: int, dimension: int) -> Array:
    """Return the largest regular grid `(k^D, D)` of at most `num_points` points; at least `k = 2`."""
    if not 1 <= dimension <= MAX_DIMENSION:
        raise ConfigError(f"dimension: expected 1 to {MAX_DIMENSION}, got {dimension}")
    side = 2
    while (side + 1) ** dimension <= num_points:
        side += 1
    return np.array(list(itertools.product(np.linspace(0.0, 1.0, side), repeat=dimension)))


def next_design(points: Array, values: Array, num_points: int) -> Array:
    """Return up to `num_points` new points `(k, D)`, most of them where the function is steep.

    The points are midpoints of edges of the triangulation: four fifths of the edges with the largest product
    of length and difference of the values at their ends, one fifth of the longest edges.
    """
    corners = DelaunayInterpolant(points, values).simplices
    pairs = itertools.combinations(range(points.shape[1] + 1), 2)
    edges = np.unique(np.sort(np.concatenate([corners[:, pair] for pair in pairs]), axis=1), axis=0)
    length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    edges, length = edges[length > SHORTEST], length[length > SHORTEST]
    middles = 0.5 * (points[edges[:, 0]] + points[edges[:, 1]])
    steep = np.abs(values[edges[:, 0]] - values[edges[:, 1]]) * length
    known = {p.tobytes() for p in points}  # a midpoint may coincide with another or with a point
    chosen: list[Array] = []
    for score, count in ((steep, num_points - int(EXPLORING * num_points)), (length, num_points)):
        for i in np.argsort(-score, kind="stable"):
            if len(chosen) >= count or score[i] <= 0.0:
                break
            if middles[i].tobytes() not in known:
                known.add(middles[i].tobytes())
                chosen.append(middles[i])
    return np.array(chosen).reshape(-1, points.shape[1])


def check_points(points: Array, values: Array) -> None:
    """Raise ConfigError if points and values do not match or cannot be interpolated."""
    dimension = points.shape[1] if points.ndim == 2 else 0
    if not 1 <= dimension <= MAX_DIMENSION or values.shape != (len(points),):
        raise ConfigError(
            f"points: expected (n, D) with D from 1 to {MAX_DIMENSION}, and values (n,), got {points.shape} "
            f"and {values.shape}"
        )
    if not (np.isfinite(points).all() and np.isfinite(values).all()):
        raise ConfigError("points: expected finite numbers, and values too")
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=dimension)))
    for corner in corners:
        if not (points == corner).all(axis=1).any():
            raise ConfigError(f"points: expected all corners of the cube, {corner.tolist()} is missing")


@functools.cache
def _delaunay() -> type:
    from scipy.spatial import Delaunay

    return Delaunay
