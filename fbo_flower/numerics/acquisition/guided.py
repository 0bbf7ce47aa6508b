"""`log EI` over a trend plus a tilt, for many agents side by side: what `ei` and `fed-ei` maximise.

`LogExpectedImprovement` and `Tilt` have the formulas; here they are computed for `B` agents at once, with few
calls. Notation: as there and in `numerics.optim.stacks`; `o` is the outputscale, `k` the kernel with
outputscale 1, `A = o (K + s2 I)^-1`, `P = k A`. So the variance is `o (1 - k^T P)`, and

    d log EI = Phi / (h sigma) (d m + o alpha^T dk) - phi / (h sigma^2) o P^T dk.

Both terms in `dk` need only one product with the observed points. The trend is rough (float32) in `scores`
and `value_and_gradient`, and so is the tilt in `scores`; `values` has float64 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from fbo_flower.numerics.acquisition.log_ei import LEAST_VARIANCE
from fbo_flower.numerics.acquisition.normal import excess_ratios
from fbo_flower.numerics.acquisition.tilt import FLOOR, Tilt
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.optim.stacks import LinearStack, Stackable
from fbo_flower.numerics.surrogates import kernels
from fbo_flower.numerics.surrogates.condition_many import Conditioned

LEAST_GAIN = 1e-3  # of log EI: a step of the climb that gains less than a thousandth of EI is the last


@dataclass(frozen=True)
class GuidedImprovement(Stackable):
    """`log EI` of a Gaussian process over a trend, plus a tilt, a `Differentiable`.

    Parameters
    ----------
    process : of the function, or of its residuals if there is a trend
    best : value to improve on
    trend : None: 0
    tilt : None: 0
    """

    process: Conditioned
    best: float
    trend: LinearFunction | None = None
    tilt: Tilt | None = None

    def __call__(self, z: Array, /) -> Array:
        """Return values `(m,)` at `z (m, F)`."""
        values: Array = GuidedStack.of([self]).values(z[None])[0]
        return values

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return rough values `(m,)` and gradients `(m, F)` at `z (m, F)`."""
        values, gradients = GuidedStack.of([self]).value_and_gradient(z[None])
        return values[0], gradients[0]

    @property
    def shape(self) -> tuple[object, ...]:
        trend = None if self.trend is None else self.trend.features.frequencies.shape
        tilt = None if self.tilt is None else self.tilt.centres.shape
        return self.process.hyperparameters.kernel, self.process.x.shape, trend, tilt

    @staticmethod
    def stacked(functions: Sequence[GuidedImprovement]) -> GuidedStack:
        """Stack functions of one shape."""
        return GuidedStack.of(functions)


@dataclass(frozen=True)
class Tilts:
    """`Tilt`s with equally many centres.

    Parameters
    ----------
    centres : `(B, k, F)`
    sharpness : `(B,)`, `1 / h^2`
    weights : `(B,)`
    """

    centres: Array
    sharpness: Array
    weights: Array

    @staticmethod
    def of(tilts: Sequence[Tilt]) -> Tilts:
        """Stack tilts of one shape."""
        widths = np.array([tilt.width for tilt in tilts])
        return Tilts(np.array([t.centres for t in tilts]), widths**-2.0, np.array([t.weight for t in tilts]))

    def values(self, z: Array) -> Array:
        """Return values `(B, m)` at `z (B, m, F)`, in the precision of `z`."""
        density = FLOOR + self._bumps(z).sum(axis=2) / self.centres.shape[1]
        return np.asarray(self.weights[:, None] * np.log(density), dtype=np.float64)

    def value_and_gradient(self, z: Array) -> tuple[Array, Array]:
        """Return values `(B, m)` and gradients `(B, m, F)` at `z (B, m, F)`."""
        bumps = self._bumps(z)
        total, count = bumps.sum(axis=2), self.centres.shape[1]
        density = FLOOR + total / count
        factor = (self.sharpness * self.weights / count)[:, None] / density
        slopes = bumps @ self.centres
        slopes -= z * total[:, :, None]
        slopes *= factor[:, :, None]
        return self.weights[:, None] * np.log(density), slopes

    def take(self, rows: IntArray) -> Tilts:
        return Tilts(self.centres[rows], self.sharpness[rows], self.weights[rows])

    def _bumps(self, z: Array) -> Array:
        """Return `exp(-|z - c|^2 / (2 h^2))`, `(B, m, k)`, in the precision of `z`."""
        centres = self.centres.astype(z.dtype)
        squares = z @ (-2.0 * centres).transpose(0, 2, 1)
        squares += np.square(z).sum(axis=2)[:, :, None]
        squares += np.square(centres).sum(axis=2)[:, None, :]
        np.maximum(squares, 0.0, out=squares)
        squares *= (-0.5 * self.sharpness).astype(z.dtype)[:, None, None]
        return np.exp(squares, out=squares)


@dataclass(frozen=True)
class GuidedStack:
    """`GuidedImprovement`s of one shape.

    Parameters
    ----------
    x : `(B, n, F)`, observed points divided by the lengthscales
    inverse_scales : `(B, F)`
    alpha, inverses : `(B, n)`, `o (K + s2 I)^-1 y`, and `A (B, n, n)`
    outputscale, best : `(B,)`
    """

    kernel: str
    x: Array
    inverse_scales: Array
    alpha: Array
    inverses: Array
    outputscale: Array
    best: Array
    trend: LinearStack | None
    tilt: Tilts | None
    exact_scores: bool = False
    value_tolerance: float = LEAST_GAIN

    @staticmethod
    def of(functions: Sequence[GuidedImprovement]) -> GuidedStack:
        """Stack functions of one shape."""
        processes = [function.process for function in functions]
        inverse_scales = 1.0 / np.array([p.hyperparameters.lengthscales for p in processes])
        outputscale = np.array([p.hyperparameters.outputscale for p in processes])
        return GuidedStack(
            processes[0].hyperparameters.kernel,
            np.array([p.x for p in processes]) * inverse_scales[:, None, :],
            inverse_scales,
            outputscale[:, None] * np.array([p.alpha for p in processes]),
            outputscale[:, None, None] * np.array([p.inverse for p in processes]),
            outputscale,
            np.array([function.best for function in functions]),
            LinearStack.of([f.trend for f in functions if f.trend is not None])
            if functions[0].trend is not None
            else None,
            Tilts.of([f.tilt for f in functions if f.tilt is not None])
            if functions[0].tilt is not None
            else None,
        )

    def scores(self, z: Array, /) -> Array:
        found = np.empty(z.shape[:2])
        for row in range(len(z)):  # one function's candidates fit into the caches, those of all do not
            one, points = self.take(np.array([row])), z[row : row + 1]
            trend = None if one.trend is None else one.trend.scores(points)
            found[row] = one._log_improvement(points, trend)[0]
            if one.tilt is not None:
                found[row] += one.tilt.values(cast(Array, points.astype(np.float32)))[0]
        return found

    def values(self, z: Array, /) -> Array:
        found = self._log_improvement(z, None if self.trend is None else self.trend.values(z))
        return found if self.tilt is None else found + self.tilt.values(z)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        """Return values `(B, m)` and gradients `(B, m, F)`."""
        scaled, r2 = self._squared_distances(z)
        k, slope = kernels.profile_and_slope(self.kernel, r2)
        projected = k @ self.inverses
        mean = (k @ self.alpha[:, :, None])[:, :, 0] - self.best[:, None]
        if self.trend is not None:
            trend, trend_gradient = self.trend.value_and_gradient(z)
            mean += trend
        share = 1.0 - (k * projected).sum(axis=2)  # variance / o
        stddev = np.sqrt(self.outputscale[:, None] * np.maximum(share, LEAST_VARIANCE))
        log_h, density, probability = excess_ratios(mean / stddev)
        probability /= stddev
        # where the variance is cut off, its gradient is 0
        density *= np.where(share > LEAST_VARIANCE, -self.outputscale[:, None], 0.0) / np.square(stddev)
        projected *= density[:, :, None]
        projected += probability[:, :, None] * self.alpha[:, None, :]
        projected *= slope
        # sum_i w_i dk(z, x_i) / dz = sum_i w_i slope_i (x_i - z) / l^2
        gradient = projected @ self.x
        gradient -= scaled * projected.sum(axis=2)[:, :, None]
        gradient *= self.inverse_scales[:, None, :]
        if self.trend is not None:
            gradient += probability[:, :, None] * trend_gradient
        value = np.log(stddev) + log_h
        if self.tilt is not None:
            tilt, tilt_gradient = self.tilt.value_and_gradient(z)
            value += tilt
            gradient += tilt_gradient
        return value, gradient

    def take(self, rows: IntArray, /) -> GuidedStack:
        return GuidedStack(
            self.kernel,
            self.x[rows],
            self.inverse_scales[rows],
            self.alpha[rows],
            self.inverses[rows],
            self.outputscale[rows],
            self.best[rows],
            None if self.trend is None else self.trend.take(rows),
            None if self.tilt is None else self.tilt.take(rows),
        )

    def _log_improvement(self, z: Array, trend: Array | None) -> Array:
        """Return `log EI`, `(B, m)`, at `z (B, m, F)`, given the trend's values there."""
        k = kernels.profile(self.kernel, self._squared_distances(z)[1])
        mean = (k @ self.alpha[:, :, None])[:, :, 0] - self.best[:, None]
        if trend is not None:
            mean += trend
        share = 1.0 - (k * (k @ self.inverses)).sum(axis=2)
        stddev = np.sqrt(self.outputscale[:, None] * np.maximum(share, LEAST_VARIANCE))
        return np.asarray(np.log(stddev) + excess_ratios(mean / stddev)[0], dtype=np.float64)

    def _squared_distances(self, z: Array) -> tuple[Array, Array]:
        """Return `z / l`, and `r^2 (B, m, n)` by one matrix product."""
        scaled = z * self.inverse_scales[:, None, :]
        r2 = scaled @ (-2.0 * self.x).transpose(0, 2, 1)
        r2 += np.square(scaled).sum(axis=2)[:, :, None]
        r2 += np.square(self.x).sum(axis=2)[:, None, :]
        return scaled, np.maximum(r2, 0.0, out=r2)  # the product may leave -1e-16 for equal rows
