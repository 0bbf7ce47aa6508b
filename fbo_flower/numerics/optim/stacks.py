"""Many functions evaluated side by side, each at its own points, for `maximise_many`.

The functions of many agents have equal shapes. Evaluated one after the other, each costs dozens of small
NumPy calls; stacked, all together cost as many. Two rules hold for every stack:

- Each function is computed by itself: the number of functions is only ever a loop or an elementwise
  dimension, never one of BLAS. So a value does not depend, bit for bit, on the other functions.
- `scores` and `value_and_gradient` may be rough (here in float32, in which NumPy's cosine takes a thirtieth
  of the time). They only say where to look. `values` is exact to rounding, and decides.

Notation: `B` functions, `m` points of each, `M` cosines, `F` columns, `n` observations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.optim.functions import Differentiable, LinearFunction
from fbo_flower.numerics.surrogates import gp, kernels, rff

Single = npt.NDArray[np.float32]


class Stack(Protocol):
    """`B` functions with gradients."""

    @property
    def exact_scores(self) -> bool:
        """Whether `scores` are as exact as `values`."""

    @property
    def value_tolerance(self) -> float:
        """A gain in value that `value_and_gradient` cannot tell from rounding."""

    def scores(self, z: Array, /) -> Array:
        """Return rough values `(B, m)` at `z (B, m, F)`."""

    def values(self, z: Array, /) -> Array:
        """Return values `(B, m)` at `z (B, m, F)`."""

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return rough values `(B, m)` and gradients `(B, m, F)`."""

    def take(self, rows: IntArray, /) -> Stack:
        """Return the functions in `rows`."""


class Stackable(ABC):
    """A function that can be stacked with others of its class and `shape`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[object, ...]:
        """What two functions of this class must have in common to be stacked."""

    @staticmethod
    @abstractmethod
    def stacked(functions: Sequence[Any]) -> Stack:
        """Return functions of this class and of one shape as a stack."""


@dataclass(frozen=True)
class Each:
    """Functions of any kind, evaluated one after the other."""

    functions: Sequence[Differentiable]
    exact_scores: bool = True
    value_tolerance: float = 1e-8

    def scores(self, z: Array, /) -> Array:
        return np.array([f(points) for f, points in zip(self.functions, z, strict=True)])

    def values(self, z: Array, /) -> Array:
        return self.scores(z)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(B, m)` and gradients `(B, m, F)`."""
        found = [f.value_and_gradient(points) for f, points in zip(self.functions, z, strict=True)]
        return np.array([value for value, _ in found]), np.array([gradient for _, gradient in found])

    def take(self, rows: IntArray, /) -> Each:
        return Each([self.functions[row] for row in rows])


@dataclass(frozen=True)
class Cosines:
    """`cos(S z + b)` of `B` sets of random features: in float32, and exactly.

    Parameters
    ----------
    frequencies, phases, weights : `(B, M, F)`, `(B, M)`, `(B, M)`
    """

    frequencies: Array
    phases: Array
    weights: Array
    rough: tuple[Single, Single]  # frequencies and phases `(B, F + 1, M)`, weights `(B, M)`

    @staticmethod
    def of(functions: Sequence[gp.SamplePath | LinearFunction]) -> Cosines:
        """Return the features of functions, with their copies in float32."""
        frequencies = np.array([f.features.frequencies for f in functions])
        phases = np.array([f.features.phases for f in functions])
        weights = np.array([f.weights for f in functions])
        both = np.concatenate([frequencies.transpose(0, 2, 1), phases[:, None, :]], axis=1)
        return Cosines(frequencies, phases, weights, (both.astype(np.float32), weights.astype(np.float32)))

    def rough_cosines(self, row: int, z: Single) -> Single:
        """Return the cosines `(m, M)` of one function at `z (m, F + 1)`, whose last column is 1."""
        angles: Single = z @ self.rough[0][row]
        return np.cos(angles, out=angles)

    def rough_angles(self, z: Array) -> Single:
        """Return `S z + b`, `(B, m, M)`, at `z (B, m, F)`."""
        angles: Single = with_one(z) @ self.rough[0]
        return angles

    @property
    def rough_frequencies(self) -> Single:
        """The frequencies in float32, `(B, M, F)`."""
        return self.rough[0][:, :-1].transpose(0, 2, 1)

    def exact(self, z: Array) -> Array:
        """Return the cosines `(B, m, M)` at `z (B, m, F)`."""
        angles = z @ self.frequencies.transpose(0, 2, 1)
        angles += self.phases[:, None, :]
        rff.cosine_in_place(angles.reshape(-1))
        return angles

    def take(self, rows: IntArray) -> Cosines:
        """Return the features in `rows`."""
        rough = self.rough[0][rows], self.rough[1][rows]
        return Cosines(self.frequencies[rows], self.phases[rows], self.weights[rows], rough)


@dataclass(frozen=True)
class PathStack:
    """`SamplePath`s with equal numbers of features and of observations.

    Parameters
    ----------
    prior : the prior draws
    x, coefficients : `(B, n, F)` and `(B, n)`, the update by the observations
    inverse_squares : `(B, F)`, `l^-2`
    """

    kernel: str
    prior: Cosines
    x: Array
    coefficients: Array
    inverse_squares: Array
    exact_scores: bool = False
    value_tolerance: float = 1e-6

    @staticmethod
    def of(paths: Sequence[gp.SamplePath]) -> PathStack:
        """Stack paths of equal shape and kernel."""
        scales = np.array([path.hyperparameters.lengthscales for path in paths])
        x, coefficients = np.array([p.x for p in paths]), np.array([p.coefficients for p in paths])
        return PathStack(paths[0].hyperparameters.kernel, Cosines.of(paths), x, coefficients, scales**-2.0)

    def scores(self, z: Array, /) -> Array:
        found = np.empty(z.shape[:2])
        for row, points in enumerate(with_one(z)):
            score = self.prior.rough_cosines(row, points) @ self.prior.rough[1][row]
            if self.x.shape[1]:
                scales = np.sqrt(self.inverse_squares[row]).astype(np.float32)
                scaled, own = points[:, :-1] * scales, self.x[row].astype(np.float32) * scales
                r2 = np.zeros((len(points), len(own)), dtype=np.float32)
                for column in range(len(scales)):
                    difference = np.subtract.outer(scaled[:, column], own[:, column])
                    difference *= difference
                    r2 += difference
                score += kernels.profile(self.kernel, cast(Array, r2)) @ self.coefficients[row].astype(
                    np.float32
                )
            found[row] = score
        return found

    def values(self, z: Array, /) -> Array:
        values: Array = (self.prior.exact(z) @ self.prior.weights[:, :, None])[:, :, 0]
        if self.x.shape[1]:
            k = kernels.profile(self.kernel, self._squared_distances(z)[0])
            values += (k @ self.coefficients[:, :, None])[:, :, 0]
        return values

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(B, m)` and gradients `(B, m, F)`."""
        frequencies, weights = self.prior.rough_frequencies, self.prior.rough[1]
        angles = self.prior.rough_angles(z)
        values = (np.cos(angles) @ weights[:, :, None])[:, :, 0].astype(np.float64)
        slopes = np.sin(angles, out=angles)
        slopes *= -weights[:, None, :]
        gradients = (slopes @ frequencies).astype(np.float64)
        if self.x.shape[1]:
            r2, differences = self._squared_distances(z)
            k, slope = kernels.profile_and_slope(self.kernel, r2)
            values += (k @ self.coefficients[:, :, None])[:, :, 0]
            weighted = slope * self.coefficients[:, None, :]
            # -sum_i w_i slope_i (z - x_i) / l^2
            pull = (differences * weighted[:, :, :, None]).sum(axis=2)
            gradients -= pull * self.inverse_squares[:, None, :]
        return values, gradients

    def take(self, rows: IntArray, /) -> PathStack:
        parts = self.x[rows], self.coefficients[rows], self.inverse_squares[rows]
        return PathStack(self.kernel, self.prior.take(rows), *parts)

    def _squared_distances(self, z: Array) -> tuple[Array, Array]:
        """Return `r^2 (B, m, n)` and the differences `(B, m, n, F)`."""
        differences = z[:, :, None, :] - self.x[:, None, :, :]
        return (np.square(differences) * self.inverse_squares[:, None, None, :]).sum(axis=3), differences


@dataclass(frozen=True)
class LinearStack:
    """`LinearFunction`s with equally many features: `phi(z)^T weights + offset`."""

    features: Cosines
    offsets: Array
    exact_scores: bool = False
    value_tolerance: float = 1e-6

    @staticmethod
    def of(functions: Sequence[LinearFunction]) -> LinearStack:
        """Stack functions of equal shape."""
        return LinearStack(Cosines.of(functions), np.array([f.offset for f in functions]))

    def scores(self, z: Array, /) -> Array:
        found = np.empty(z.shape[:2])
        for row, points in enumerate(with_one(z)):
            u = self.features.rough_cosines(row, points)
            found[row] = u @ self.features.rough[1][row]
            u *= u
            found[row] /= np.sqrt(np.maximum(u.sum(axis=1), np.finfo(np.float32).tiny))
        return found + self.offsets[:, None]

    def values(self, z: Array, /) -> Array:
        u = self.features.exact(z)
        products = (u @ self.features.weights[:, :, None])[:, :, 0]
        norms = np.sqrt(np.square(u).sum(axis=2))
        values: Array = products / np.maximum(norms, np.finfo(np.float64).tiny)
        return values + self.offsets[:, None]

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(B, m)` and gradients `(B, m, F)`; see `RandomFeatures.value_and_gradient`."""
        frequencies, weights = self.features.rough_frequencies, self.features.rough[1]
        angles = self.features.rough_angles(z)
        u = np.cos(angles)
        q = np.sqrt(np.maximum(np.square(u).sum(axis=2), np.finfo(np.float32).tiny))
        v = (u @ weights[:, :, None])[:, :, 0] / q
        slopes = np.sin(angles, out=angles)
        slopes *= (v / q)[:, :, None] * u - weights[:, None, :]
        gradients = (slopes @ frequencies) / q[:, :, None]
        return v.astype(np.float64) + self.offsets[:, None], gradients.astype(np.float64)

    def take(self, rows: IntArray, /) -> LinearStack:
        return LinearStack(self.features.take(rows), self.offsets[rows])


def with_one(z: Array) -> Single:
    """Return `z (B, m, F)` in float32 with a last column of ones, which a matrix product uses for phases."""
    return np.concatenate([z, np.ones((*z.shape[:2], 1))], axis=2).astype(np.float32)


def stack_of(functions: Sequence[Differentiable]) -> Stack:
    """Return functions of one `shape_of` as a stack."""
    first = functions[0]
    if isinstance(first, Stackable):
        return first.stacked(functions)
    if all(type(f) is gp.SamplePath for f in functions):
        return PathStack.of([f for f in functions if isinstance(f, gp.SamplePath)])
    if all(type(f) is LinearFunction for f in functions):
        return LinearStack.of([f for f in functions if isinstance(f, LinearFunction)])
    return Each(functions)


def shape_of(function: Differentiable) -> tuple[object, ...]:
    """Return what two functions must have in common to be stacked; functions of other kinds have it all."""
    if type(function) is gp.SamplePath:
        return "path", function.hyperparameters.kernel, function.features.frequencies.shape, function.x.shape
    if type(function) is LinearFunction:
        return "linear", function.features.frequencies.shape
    if isinstance(function, Stackable):
        return type(function).__name__, *function.shape
    return (type(function).__name__,)
