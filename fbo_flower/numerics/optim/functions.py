"""Functions of the features that a maximiser can climb: values and gradients, many points at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates.rff import RandomFeatures


class Differentiable(Protocol):
    """A function of points `(n, F)`."""

    def __call__(self, z: Array, /) -> Array:
        """Return values `(n,)`."""
        ...

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        ...


@dataclass(frozen=True)
class LinearFunction:
    """`phi(z)^T weights + offset`, what an agent's message stands for.

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
class ActiveOnly:
    """A function that is flat in the columns that mean nothing where they are.

    Without it, a climb would leave through a parameter that is inactive, to a point that is another one
    once it is snapped.

    Parameters
    ----------
    columns : `(c,)`, feature columns of the continuous parameters
    candidates : `(S, F)`, points from which a climb starts; it changes `columns` only
    active : `(S, c)`, which of the columns mean something at each candidate
    """

    function: Differentiable
    columns: npt.NDArray[np.int64]
    candidates: Array
    active: npt.NDArray[np.bool_]

    def __call__(self, z: Array, /) -> Array:
        return self.function(z)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        value, gradient = self.function.value_and_gradient(z)
        fixed = np.delete(np.arange(z.shape[1]), self.columns)  # discrete parameters decide what is active
        same = (z[:, None, fixed] == self.candidates[None, :, fixed]).all(axis=2)  # (n, S)
        gradient = gradient.copy()
        gradient[:, self.columns] *= self.active[same.argmax(axis=1)]
        return value, gradient


@dataclass(frozen=True)
class Sum:
    """The sum of two functions: a trend and what is left."""

    first: Differentiable
    second: Differentiable

    def __call__(self, z: Array, /) -> Array:
        return self.first(z) + self.second(z)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, F)`."""
        (one, slope), (two, other) = self.first.value_and_gradient(z), self.second.value_and_gradient(z)
        return one + two, slope + other
