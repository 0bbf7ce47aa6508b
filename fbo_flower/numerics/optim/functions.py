"""Functions with gradients, evaluated at many points at a time, that `maximise` can maximise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

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
class ActiveOnly:
    """A function whose gradient is 0 in the columns of inactive parameters.

    Otherwise the maximisation would move along inactive parameters, and snapping the result to the search
    space would undo these moves and change its value.

    Parameters
    ----------
    function : the wrapped function
    columns : `(c,)`, feature columns of the continuous parameters
    candidates : `(S, F)`, starting points of the maximisation, which changes only `columns`
    active : `(S, c)`, whether each of the columns is active at each candidate
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
        fixed = np.delete(np.arange(z.shape[1]), self.columns)  # they determine what is active
        same = (z[:, None, fixed] == self.candidates[None, :, fixed]).all(axis=2)  # (n, S)
        gradient = gradient.copy()
        gradient[:, self.columns] *= self.active[same.argmax(axis=1)]
        return value, gradient


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
