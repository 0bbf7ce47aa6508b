"""`log EI` of an agent's process, alone or with what agents share, side by side for many agents.

`expected_improvement.LogImprovement` has the formula for one agent. Notation: as there and in
`optim.functions`; `o` is the outputscale, `k` the kernel with outputscale 1, `A = o (K + s2 I)^-1`, `P = k
A`. So the variance is `o (1 - k^T P)`, and

    d log EI = Phi / (h sigma) (d m + o alpha^T dk) - phi / (h sigma^2) o P^T dk.

Both terms in `dk` need only one product with the observed points.

With the rows of others (`numerics.surrogates.trend`) the agent's function is `g + h`: `g` has the kernel
`rho k_F`, `h` the kernel `o k + tau`. The rows observe `g` with white noise, the agent's values `g + h`. So
the covariance with all `M + n` observations is `rho k_F(x, [X_o, X]) + [0, o k(x, X) + tau]`, and mean,
variance and gradient have the same form, with one inverse for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fbo_flower.numerics.acquisition.expected_improvement import excess_ratios
from fbo_flower.numerics.arrays import Array, IntArray
from fbo_flower.numerics.categories import add_squared_distances, category_columns, without
from fbo_flower.numerics.optim.functions import Stack, Stackable
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates.gp import Posterior
from fbo_flower.numerics.surrogates.trend import KERNEL, SharedRows

LEAST_VARIANCE = 1e-10  # relative to the outputscale: the variance at an observed point is rounding noise
LEAST_GAIN = 1e-3  # of log EI: a step of the climb that gains less than a thousandth of EI is the last

# from slopes `(B, m)` of a function in means and deviations to its gradients `(B, m, F)`
Pull = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Shared:
    """What an agent's process takes from the rows of others.

    Parameters
    ----------
    rows : the rows
    share : `rho`
    tau : prior variance of the agent's level
    """

    rows: SharedRows
    share: float
    tau: float

    def prior(self, x: Array) -> tuple[Array, Array]:
        """Return mean `(n,)` and covariance `(n, n)` of own values, as trend and level explain them."""
        mean, reduction = self.rows.moments(self.rows.cross(x), self.share)
        common = self.share * gp.kernel(KERNEL, x, x, self.rows.lengthscales)
        return mean, common + self.tau - reduction

    def joint(self, process: Posterior) -> tuple[Array, Array]:
        """Return `K^-1 [z_o, y] (M + n,)` and `K^-1 (M + n, M + n)` of all observations.

        With the process conditioned on `y` minus the trend, its inverse is the lower right block.
        """
        solved, inverse = self.rows.solve(self.share)
        if not len(process.x):
            return solved, inverse
        # G = A^-1 k_F(X_o, X) rho; the blocks follow from S = the covariance given the rows
        common = gp.kernel(KERNEL, self.rows.x, process.x, self.rows.lengthscales)
        g = inverse @ (self.share * common)
        corner = -g @ process.inverse
        whole = np.block([[inverse - corner @ g.T, corner], [corner.T, process.inverse]])
        return np.concatenate([solved - g @ process.alpha, process.alpha]), whole


@dataclass(frozen=True)
class GuidedImprovement(Stackable):
    """`log EI` of a Gaussian process, a `Differentiable`.

    Parameters
    ----------
    process : of the function; with `shared`, of what the trend leaves of it
    best : value to improve on
    shared : what is known from others; None: nothing
    """

    process: Posterior
    best: float
    shared: Shared | None = None

    def mean(self, z: Array) -> Array:
        """Return the posterior mean `(m,)` at `z (m, F)`."""
        stack = self.stacked([self])
        k = stack.covariances(z[None], slopes=False)[0]
        return np.asarray((k @ stack.alpha[:, :, None])[0, :, 0], dtype=np.float64)

    def moments(self, z: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation `(1, m)` at points `z (m, F)`, as of one output."""
        mean, stddev, _ = self.stacked([self]).moments(z[None])
        return mean, stddev

    @property
    def shape(self) -> tuple[object, ...]:
        rows = None if self.shared is None else self.shared.rows.x.shape
        return self.process.hyperparameters.kernel, self.process.x.shape, rows

    @staticmethod
    def stacked(functions: Sequence[GuidedImprovement]) -> GuidedStack:
        """Stack functions of one shape."""
        processes = [function.process for function in functions]
        inverse_scales = 1.0 / np.array([p.hyperparameters.lengthscales for p in processes])
        outputscale = np.array([p.hyperparameters.outputscale for p in processes])
        x, best = np.array([p.x for p in processes]), np.array([f.best for f in functions])
        own = Scaled.of(processes[0].hyperparameters.kernel, x, inverse_scales)
        shared = [function.shared for function in functions if function.shared is not None]
        if not shared:
            alpha = outputscale[:, None] * np.array([p.alpha for p in processes])
            inverses = outputscale[:, None, None] * np.array([p.inverse for p in processes])
            return GuidedStack(own, alpha, inverses, outputscale, best)
        joint = [one.joint(process) for one, process in zip(shared, processes, strict=True)]
        alpha, inverses = (np.array(parts) for parts in zip(*joint, strict=True))
        scales = 1.0 / np.array([one.rows.lengthscales for one in shared])
        points = np.concatenate([np.array([one.rows.x for one in shared]), x], axis=1)
        common = Scaled.of(KERNEL, points, scales)
        share, tau = np.array([one.share for one in shared]), np.array([one.tau for one in shared])
        return GuidedStack(own, alpha, inverses, outputscale, best, common, share, tau)


@dataclass(frozen=True)
class Scaled:
    """Observed points divided by the lengthscales of a kernel.

    Parameters
    ----------
    points : `(B, n, F)`
    x : the same divided, with 0 for categories
    inverse_scales : `(B, F)`
    """

    kernel: str
    points: Array
    x: Array
    inverse_scales: Array

    @staticmethod
    def of(kernel: str, points: Array, inverse_scales: Array) -> Scaled:
        numbers = without(points, category_columns(points))
        return Scaled(kernel, points, numbers * inverse_scales[:, None, :], inverse_scales)

    def squared_distances(self, z: Array) -> tuple[Array, Array]:
        """Return `z / l`, and `r^2 (B, m, n)` by one matrix product."""
        categories = category_columns(self.points)
        scaled = without(z, categories) * self.inverse_scales[:, None, :]
        r2 = scaled @ (-2.0 * self.x).transpose(0, 2, 1)
        r2 += np.square(scaled).sum(axis=2)[:, :, None]
        r2 += np.square(self.x).sum(axis=2)[:, None, :]
        np.maximum(r2, 0.0, out=r2)  # the product may leave -1e-16 for equal rows
        add_squared_distances(r2, z, self.points, categories, self.inverse_scales**2)
        return scaled, r2

    def pull(self, scaled: Array, weights: Array) -> Array:
        """Return `sum_i w_i slope_i (x_i - z) / l^2`, `(B, m, F)`, given `w_i slope_i (B, m, n)`."""
        gradient = weights @ self.x
        gradient -= scaled * weights.sum(axis=2)[:, :, None]
        gradient *= self.inverse_scales[:, None, :]
        return np.asarray(gradient, dtype=np.float64)

    def take(self, rows: IntArray) -> Scaled:
        return Scaled(self.kernel, self.points[rows], self.x[rows], self.inverse_scales[rows])


@dataclass(frozen=True)
class GuidedStack(Stack):
    """`GuidedImprovement`s of one shape.

    Parameters
    ----------
    own : the agents' points
    alpha, inverses : `(B, M + n)`, `o (K + s2 I)^-1 y`, and `A (B, M + n, M + n)`; with rows of others `o`
        is in the kernels, and 1 here
    outputscale, best : `(B,)`
    common : the points of all `M + n` observations; None: there are no others
    share, tau : `(B,)`
    """

    own: Scaled
    alpha: Array
    inverses: Array
    outputscale: Array
    best: Array
    common: Scaled | None = None
    share: Array | None = None
    tau: Array | None = None
    value_tolerance: ClassVar[float] = LEAST_GAIN

    def values(self, z: Array, /) -> Array:
        """Return `log EI`, `(B, m)`, at `z (B, m, F)`."""
        k = self.covariances(z, slopes=False)[0]
        mean = (k @ self.alpha[:, :, None])[:, :, 0] - self.best[:, None]
        stddev = self._deviation(k, k @ self.inverses)[0]
        return np.asarray(np.log(stddev) + excess_ratios(mean / stddev)[0], dtype=np.float64)

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        k, parts = self.covariances(z, slopes=True)
        projected = k @ self.inverses
        mean = (k @ self.alpha[:, :, None])[:, :, 0] - self.best[:, None]
        stddev, factor = self._deviation(k, projected)
        log_h, density, probability = excess_ratios(mean / stddev)
        probability /= stddev
        density *= factor / np.square(stddev)
        projected *= density[:, :, None]
        projected += probability[:, :, None] * self.alpha[:, None, :]
        gradient = np.zeros(z.shape)
        for points, scaled, slope in parts:  # the own points are the last of all
            gradient += points.pull(scaled, slope * projected[:, :, projected.shape[2] - slope.shape[2] :])
        return np.log(stddev) + log_h, gradient

    def moments(self, z: Array, /) -> tuple[Array, Array, Pull]:
        """Return means and deviations `(B, m)`, and their `Pull`; `best` is not used."""
        k, parts = self.covariances(z, slopes=True)
        projected = k @ self.inverses
        mean = (k @ self.alpha[:, :, None])[:, :, 0]
        stddev, factor = self._deviation(k, projected)

        def pull(in_mean: Array, in_stddev: Array) -> Array:
            weights = projected * (in_stddev * factor / stddev)[:, :, None]
            weights += in_mean[:, :, None] * self.alpha[:, None, :]
            gradient = np.zeros(z.shape)
            for points, scaled, slope in parts:
                gradient += points.pull(scaled, slope * weights[:, :, weights.shape[2] - slope.shape[2] :])
            return gradient

        return mean, stddev, pull

    def covariances(self, z: Array, *, slopes: bool) -> tuple[Array, list[tuple[Scaled, Array, Array]]]:
        """Return covariances with all observations `(B, m, M + n)`, and their slopes for each kernel."""
        scaled, r2 = self.own.squared_distances(z)
        k, slope = _profiles(self.own.kernel, r2, slopes)
        if self.common is None or self.share is None or self.tau is None:
            return k, [(self.own, scaled, slope)]
        others, r2 = self.common.squared_distances(z)
        share, outputscale = self.share[:, None, None], self.outputscale[:, None, None]
        whole, wide = _profiles(self.common.kernel, r2, slopes)
        whole *= share
        whole[:, :, whole.shape[2] - k.shape[2] :] += outputscale * k + self.tau[:, None, None]
        return whole, [(self.common, others, share * wide), (self.own, scaled, outputscale * slope)]

    def take(self, rows: IntArray, /) -> GuidedStack:
        common = None if self.common is None else self.common.take(rows)
        share, tau = (None if a is None else a[rows] for a in (self.share, self.tau))
        parts = self.alpha[rows], self.inverses[rows], self.outputscale[rows], self.best[rows]
        return GuidedStack(self.own.take(rows), *parts, common, share, tau)

    def _deviation(self, k: Array, projected: Array) -> tuple[Array, Array]:
        """Return the standard deviation `(B, m)`, and what its square falls by per unit of `k^T P`."""
        explained, scale = (k * projected).sum(axis=2), self.outputscale[:, None]
        if self.share is None or self.tau is None:
            left, unit = 1.0 - explained, scale
        else:
            prior = scale + (self.share + self.tau)[:, None]
            left, unit = (prior - explained) / prior, prior
        stddev = np.sqrt(unit * np.maximum(left, LEAST_VARIANCE))
        # where the variance is cut off, its gradient is 0
        falls = scale if self.share is None else 1.0
        return stddev, np.where(left > LEAST_VARIANCE, -falls, 0.0)


def _profiles(kernel: str, r2: Array, slopes: bool) -> tuple[Array, Array]:
    """Return a kernel and its slope at squared distances; without `slopes` the slope is not made."""
    return gp.profile_and_slope(kernel, r2) if slopes else (gp.profile(kernel, r2), r2)
