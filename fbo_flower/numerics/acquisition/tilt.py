"""A preference for the neighbourhoods of some points, which is added to the logarithm of an acquisition.

`log pi(x) = log(floor + mean_c exp(-|x - c|^2 / (2 h^2)))`: near one of `k` centres about `log(1 / k)`, far
from all of them `log floor`. Added to `log EI` with a weight that falls like `1 / t`, it is a prior over the
place of the optimum that the observations overrule in time [Hvarfner2022].

[Hvarfner2022] Hvarfner, Stoll, Souza, Lindauer, Hutter, Nardi: piBO: augmenting acquisition functions with
user beliefs for Bayesian optimization, ICLR 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array

FLOOR = 0.02


@dataclass(frozen=True)
class Tilt:
    """`weight log pi(x)`, a `Differentiable`.

    Parameters
    ----------
    centres : `(k, F)`, `k > 0`
    width : `h`, positive
    weight : not negative
    """

    centres: Array
    width: float
    weight: float

    def __call__(self, z: Array, /) -> Array:
        """Return values `(m,)` at `z (m, F)`."""
        return np.asarray(self.weight * np.log(FLOOR + self._bumps(z).mean(axis=1)), dtype=np.float64)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(m,)` and gradients `(m, F)` at `z (m, F)`."""
        bumps = self._bumps(z)
        density = FLOOR + bumps.mean(axis=1)
        # d exp(-|x - c|^2 / (2 h^2)) = exp(...) (c - x) / h^2
        slope = (bumps @ self.centres - z * bumps.sum(axis=1)[:, None]) / (len(self.centres) * self.width**2)
        return self.weight * np.log(density), self.weight * slope / density[:, None]

    def _bumps(self, z: Array) -> Array:
        squares = (z * z).sum(axis=1)[:, None] - 2.0 * (z @ self.centres.T)
        squares += (self.centres * self.centres).sum(axis=1)
        return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0) / self.width**2), dtype=np.float64)
