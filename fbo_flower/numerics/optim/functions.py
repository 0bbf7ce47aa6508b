"""Functions with gradients, evaluated at many points at a time, that `maximise` can maximise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates.rff import RandomFeatures


class Differentiable(Protocol):
    """A function of points `(n, F)` with gradients."""

    def __call__(self, z: Array, /) -> Array:
        """Return values `(n,)`."""
        ...

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        ...


@dataclass(frozen=True)
class LinearFunction:
    """`phi(z)^T weights + offset`: the function that the weights in an agent's message define.

    Parameters
    ----------
    features : `M` shared random features
    weights : `(M,)`
    """

    features: RandomFeatures
    weights: Array
    offset: float = 0.0

    def __call__(self, z: Array, /) -> Array:
        return np.asarray(self.features(z) @ self.weights + self.offset, dtype=np.float64)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        value, gradient = self.features.value_and_gradient(z, self.weights)
        return value + self.offset, gradient


@dataclass(frozen=True)
class Sum:
    """The sum of two functions, e.g. of a trend and a model of its residuals."""

    first: Differentiable
    second: Differentiable

    def __call__(self, z: Array, /) -> Array:
        return self.first(z) + self.second(z)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        (one, slope), (two, other) = self.first.value_and_gradient(z), self.second.value_and_gradient(z)
        return one + two, slope + other
