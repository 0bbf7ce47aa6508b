"""Functions with gradients that `maximise` can maximise, of many agents side by side.

The functions of many agents have equal shapes. Evaluated one after the other, each costs dozens of small
NumPy calls; stacked, all together cost as many. Two rules hold for every stack:

- Each function is computed by itself: the number of functions is only ever a loop or an elementwise
  dimension, never one of BLAS. So a value does not depend, bit for bit, on the other functions.
- `scores` and `value_and_gradient` may be rough (here in float32, in which NumPy's cosine takes a thirtieth
  of the time). They only say where to look. `values` is exact to rounding, and decides.

A function alone is a stack of one.

Sources: [Wilson2020] Efficiently sampling functions from Gaussian process posteriors; [Dai2020] Federated
Bayesian optimization via Thompson sampling. Notation: `B` functions, `m` points of each, `M` cosines, `F`
columns, `n` observations; otherwise as in `surrogates.gp`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.categories import add_squared_distances, category_columns, unit_differences, without
from fbo_flower.numerics.linalg import solve
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.rff import (
    RandomFeatures,
    add_categories,
    cosines_of,
    draw_features,
    stack_features,
)

Single = npt.NDArray[np.float32]


class Differentiable(Protocol):
    """A function of points `(n, F)` with gradients."""

    def __call__(self, z: Array, /) -> Array:
        """Return values `(n,)`."""

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""


class Stack(ABC):
    """`B` functions with gradients.

    Attributes
    ----------
    exact_scores : whether `scores` are as exact as `values`
    value_tolerance : a gain in value that `value_and_gradient` cannot tell from rounding
    """

    exact_scores: ClassVar[bool] = False
    value_tolerance: ClassVar[float] = 1e-6

    def scores(self, z: Array, /) -> Array:
        """Return values `(B, m)` at `z (B, m, F)`, here exact; overridden where rough ones are cheaper.

        Each function's by themselves: its candidates fit into the caches, those of all do not.
        """
        return np.array([self.take(np.array([row])).values(z[row : row + 1])[0] for row in range(len(z))])

    @abstractmethod
    def values(self, z: Array, /) -> Array:
        """Return values `(B, m)` at `z (B, m, F)`."""

    @abstractmethod
    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return rough values `(B, m)` and gradients `(B, m, F)`."""

    @abstractmethod
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

    def __call__(self, z: Array, /) -> Array:
        """Return values `(m,)` at `z (m, F)`."""
        values: Array = self.stacked([self]).values(z[None])[0]
        return values

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)` at `z (m, F)`, rough where the stack's are."""
        values, gradients = self.stacked([self]).value_and_gradient(z[None])
        return values[0], gradients[0]


@dataclass(frozen=True)
class Each(Stack):
    """Functions of any kind, evaluated one after the other."""

    functions: Sequence[Differentiable]
    exact_scores: ClassVar[bool] = True
    value_tolerance: ClassVar[float] = 1e-8

    def scores(self, z: Array, /) -> Array:
        return np.array([f(points) for f, points in zip(self.functions, z, strict=True)])

    def values(self, z: Array, /) -> Array:
        return self.scores(z)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        found = [f.value_and_gradient(points) for f, points in zip(self.functions, z, strict=True)]
        return np.array([value for value, _ in found]), np.array([gradient for _, gradient in found])

    def take(self, rows: IntArray, /) -> Each:
        return Each([self.functions[row] for row in rows])


def stack_of(functions: Sequence[Differentiable]) -> Stack:
    """Return functions of one `shape_of` as a stack."""
    first = functions[0]
    return first.stacked(functions) if isinstance(first, Stackable) else Each(functions)


def shape_of(function: Differentiable) -> tuple[object, ...]:
    """Return what two functions must have in common to be stacked; functions of other kinds have it all."""
    return type(function).__name__, *(function.shape if isinstance(function, Stackable) else ())


# -- functions drawn from a posterior -----------------------------------------------------------------


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
    def of(functions: Sequence[SamplePath | LinearFunction]) -> Cosines:
        """Return the features of functions, with their copies in float32."""
        frequencies, phases = stack_features([f.features for f in functions])
        weights = np.array([f.weights for f in functions])
        both = np.concatenate([frequencies.transpose(0, 2, 1), phases[:, None, :]], axis=1)
        return Cosines(frequencies, phases, weights, (both.astype(np.float32), weights.astype(np.float32)))

    def rough_cosines(self, row: int, z: Array) -> Single:
        """Return the cosines `(m, M)` of one function at `z (m, F)`."""
        angles: Single = with_one(z) @ self.rough[0][row]
        one = slice(row, row + 1)
        add_categories(angles[None], self.frequencies[one], self.phases[one], z[None])
        return np.cos(angles, out=angles)

    def rough_angles(self, z: Array) -> Single:
        """Return `S z + b`, `(B, m, M)`, at `z (B, m, F)`."""
        angles: Single = with_one(z) @ self.rough[0]
        add_categories(angles, self.frequencies, self.phases, z)
        return angles

    @property
    def rough_frequencies(self) -> Single:
        """The frequencies in float32, `(B, M, F)`."""
        return self.rough[0][:, :-1].transpose(0, 2, 1)

    def exact(self, z: Array) -> Array:
        """Return the cosines `(B, m, M)` at `z (B, m, F)`."""
        return cosines_of(self.frequencies, self.phases, z)

    def take(self, rows: IntArray) -> Cosines:
        """Return the features in `rows`."""
        rough = self.rough[0][rows], self.rough[1][rows]
        return Cosines(self.frequencies[rows], self.phases[rows], self.weights[rows], rough)


@dataclass(frozen=True)
class SamplePath(Stackable):
    """A function drawn from a posterior: `prior(z) + k(z, X) coefficients`.

    Attributes
    ----------
    features : random features of the prior draw
    weights : `(M,)`, weights of the cosines, including the factor `sqrt(2 outputscale / M)`
    x : `(n, F)`, the observed points
    coefficients : `(n,)`, including the factor outputscale
    hyperparameters : hyperparameters of the posterior
    """

    features: RandomFeatures
    weights: Array
    x: Array
    coefficients: Array
    hyperparameters: gp.Hyperparameters

    @property
    def shape(self) -> tuple[object, ...]:
        return self.hyperparameters.kernel, self.features.frequencies.shape, self.x.shape

    @staticmethod
    def stacked(functions: Sequence[SamplePath]) -> PathStack:
        scales = np.array([path.hyperparameters.lengthscales for path in functions])
        x, coefficients = np.array([p.x for p in functions]), np.array([p.coefficients for p in functions])
        kernel = functions[0].hyperparameters.kernel
        return PathStack(kernel, Cosines.of(functions), x, coefficients, scales**-2.0)


def sample_paths(
    x: Array,
    y: Array,
    hyperparameters: Sequence[gp.Hyperparameters],
    num_features: int,
    rngs: Sequence[np.random.Generator],
    deviation_scale: float = 1.0,
) -> list[SamplePath]:
    """Draw one function from each posterior by pathwise conditioning [Wilson2020].

    `f(z) = f_0(z) + k(z, X) (K + s2 I)^-1 (y - f_0(X) - e)` with `f_0` a draw of the prior by random features
    and `e ~ N(0, s2 I)`. Mean and covariance are those of the posterior for any number of features, because
    they are drawn anew. The law is normal only in the limit: if the posterior variance is small, its tails
    are heavier (at 8 observations in 2-D, excess kurtosis up to .3 for "rbf" and .5 for "matern52" at 256
    features, .8 and 1.9 at 64, below .2 at 1024).

    Parameters
    ----------
    x : `(B, n, F)`
    y : `(B, n)`, standardised observations
    hyperparameters : one per process, all of one kernel
    num_features : `M`, of the prior draws
    rngs : one generator per process
    deviation_scale : `beta`; a path has the law of `mean + beta (f - mean)` [Dai2020, Alg. 1]
    """
    categories = category_columns(x)
    drawn = [
        draw_features(num_features, h.lengthscales, len(h.lengthscales), rng, h.kernel, categories)
        for h, rng in zip(hyperparameters, rngs, strict=True)
    ]
    normals = np.array([rng.standard_normal(num_features + y.shape[1]) for rng in rngs])
    outputscale = np.array([h.outputscale for h in hyperparameters])
    noise_variance = np.array([h.noise_variance for h in hyperparameters])
    weights, noise = normals[:, :num_features], normals[:, num_features:]
    weights = (deviation_scale * np.sqrt(2.0 * outputscale / num_features))[:, None] * weights
    noise = (deviation_scale * np.sqrt(noise_variance))[:, None] * noise

    # f_0(X), then (K + s2 I)^-1 (y - f_0(X) - e)
    prior = (cosines_of(*stack_features(drawn), x) @ weights[:, :, None])[:, :, 0]
    residual = y - prior - noise
    coefficients = outputscale[:, None] * solve(gp.covariances(x, hyperparameters), residual)
    return [
        SamplePath(*parts) for parts in zip(drawn, weights, x, coefficients, hyperparameters, strict=True)
    ]


@dataclass(frozen=True)
class PathStack(Stack):
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

    def scores(self, z: Array, /) -> Array:
        found, categories = np.empty(z.shape[:2]), category_columns(self.x)
        for row, points in enumerate(z):
            score = self.prior.rough_cosines(row, points) @ self.prior.rough[1][row]
            if self.x.shape[1]:
                scales = np.sqrt(self.inverse_squares[row]).astype(np.float32)
                scaled, own = (p.astype(np.float32) * scales for p in (points, self.x[row]))
                r2 = np.zeros((len(points), len(own)), dtype=np.float32)
                for column in sorted({*range(len(scales))} - {*categories.tolist()}):
                    difference = np.subtract.outer(scaled[:, column], own[:, column])
                    difference *= difference
                    r2 += difference
                squares = cast(Array, r2)
                add_squared_distances(squares, points, self.x[row], categories, self.inverse_squares[row])
                k = gp.profile(self.kernel, squares)
                score += k @ self.coefficients[row].astype(np.float32)
            found[row] = score
        return found

    def values(self, z: Array, /) -> Array:
        values: Array = (self.prior.exact(z) @ self.prior.weights[:, :, None])[:, :, 0]
        if self.x.shape[1]:
            k = gp.profile(self.kernel, self._squared_distances(z)[0])
            values += (k @ self.coefficients[:, :, None])[:, :, 0]
        return values

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        frequencies, weights = self.prior.rough_frequencies, self.prior.rough[1]
        angles = self.prior.rough_angles(z)
        values = (np.cos(angles) @ weights[:, :, None])[:, :, 0].astype(np.float64)
        slopes = np.sin(angles, out=angles)
        slopes *= -weights[:, None, :]
        gradients = (slopes @ frequencies).astype(np.float64)
        if self.x.shape[1]:
            r2, differences = self._squared_distances(z)
            k, slope = gp.profile_and_slope(self.kernel, r2)
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
        differences = unit_differences(z[:, :, None, :] - self.x[:, None, :, :], category_columns(self.x))
        return (np.square(differences) * self.inverse_squares[:, None, None, :]).sum(axis=3), differences


# -- linear functions and sums ------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearFunction(Stackable):
    """`phi(z)^T weights + offset`: the function that the weights in an agent's message define.

    Parameters
    ----------
    features : `M` shared random features
    weights : `(M,)`
    """

    features: RandomFeatures
    weights: Array
    offset: float = 0.0

    @property
    def shape(self) -> tuple[object, ...]:
        return (self.features.frequencies.shape,)

    @staticmethod
    def stacked(functions: Sequence[LinearFunction]) -> LinearStack:
        return LinearStack(Cosines.of(functions), np.array([f.offset for f in functions]))


@dataclass(frozen=True)
class LinearStack(Stack):
    """`LinearFunction`s with equally many features: `phi(z)^T weights + offset`."""

    features: Cosines
    offsets: Array

    def scores(self, z: Array, /) -> Array:
        found = np.empty(z.shape[:2])
        for row, points in enumerate(z):
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
        # the formula: `RandomFeatures.value_and_gradient`
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
    """Return `z (..., F)` in float32, 0 for categories, with a last column of ones for the phases."""
    numbers = without(z, category_columns(z))
    return np.concatenate([numbers, np.ones((*z.shape[:-1], 1))], axis=-1).astype(np.float32)


@dataclass(frozen=True)
class Sum(Stackable):
    """The sum of two functions, e.g. of a trend and a model of its residuals."""

    first: Differentiable
    second: Differentiable

    @property
    def shape(self) -> tuple[object, ...]:
        return shape_of(self.first), shape_of(self.second)

    @staticmethod
    def stacked(functions: Sequence[Sum]) -> SumStack:
        return SumStack(stack_of([f.first for f in functions]), stack_of([f.second for f in functions]))


@dataclass(frozen=True)
class SumStack(Stack):
    """`Sum`s of functions that can be stacked."""

    first: Stack
    second: Stack

    def scores(self, z: Array, /) -> Array:
        return self.first.scores(z) + self.second.scores(z)

    def values(self, z: Array, /) -> Array:
        return self.first.values(z) + self.second.values(z)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        (one, slope), (two, other) = self.first.value_and_gradient(z), self.second.value_and_gradient(z)
        return one + two, slope + other

    def take(self, rows: IntArray, /) -> SumStack:
        return SumStack(self.first.take(rows), self.second.take(rows))
