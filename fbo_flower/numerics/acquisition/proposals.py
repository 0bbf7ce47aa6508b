"""Choose the next point from observed losses: by expected improvement, or for several losses as ParEGO does.

Losses are minimised; this module converts them to values that are maximised. A surrogate models the
standardised negative losses, and the acquisition is the logarithm of the expected improvement, which has a
useful gradient even where the improvement itself underflows [Ament2023].

Many losses are equal or nearly equal (half of all random configurations give a constant classifier), and
points may repeat. So equal points are merged and their losses averaged, the noise is fitted, and losses that
differ only by rounding count as equal; `linalg.cholesky` adds jitter if still needed. By default the
incumbent is the largest posterior mean at an observed point, because a single low loss may be due to noise.
For two losses the front is that of the posterior means; the default reference point is computed from it.

**ParEGO** [Knowles2006] makes one loss of several by the augmented Tchebycheff function. `f` in `[0, 1]^k`
are the losses, scaled so that the least observed value of each is 0 and the largest 1. The weights `w` sum to
1 and are drawn anew for each proposal. The scalar loss is

`max_j w_j f_j + rho sum_j w_j f_j`

Its minimisers over all `w` are the whole front, including concave parts. `rho > 0` excludes points that are
equal in the worst loss and worse in others.

[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
[Knowles2006] Knowles. ParEGO: a hybrid algorithm with on-line landscape approximation for expensive
multiobjective optimization problems. IEEE Trans. Evolutionary Computation 10 (2006) 50-66.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.expected_improvement import LEAST_STDDEV, LogImprovement, moments
from fbo_flower.numerics.acquisition.hypervolume import free_boxes, log_improvement, non_dominated
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.transforms import standardise

RESOLUTION = 100_000  # s of the lattice, as in [Sun2019]; Knowles uses 10
RHO = 0.05


def normalise(losses: Array) -> Array:
    """Return `losses (n, k)` with each column scaled to `[0, 1]`; constant columns become 0."""
    if losses.ndim != 2 or not np.isfinite(losses).all():
        raise ConfigError(f"losses: expected finite numbers (n, k), got {losses.shape}")
    if len(losses) == 0:
        return losses.copy()
    least = losses.min(axis=0)
    span = losses.max(axis=0) - least
    noise = span <= 1e-12 * np.abs(losses).max(axis=0)  # columns that vary only by rounding count as constant
    return np.asarray(np.where(noise, 0.0, (losses - least) / np.where(noise, 1.0, span)), dtype=np.float64)


def draw_weights(num_losses: int, rng: np.random.Generator) -> Array:
    """Draw weights `(k,)` uniformly from all `(l_1, ..., l_k) / s` with integers `l_j >= 0`, `sum l_j = s`.

    Parameters
    ----------
    num_losses : `k`, at least 1
    """
    if num_losses < 1:
        raise ConfigError(f"weights: expected k from 1, got {num_losses}")
    # stars and bars: choose k - 1 bars among s + k - 1 places; the l_j are the numbers of stars between them
    places = RESOLUTION + num_losses - 1
    bars = np.sort(rng.choice(places, size=num_losses - 1, replace=False))
    edges = np.concatenate([[-1], bars, [places]])
    return np.asarray((np.diff(edges) - 1) / RESOLUTION, dtype=np.float64)


def tchebycheff(losses: Array, weights: Array) -> Array:
    """Return the augmented Tchebycheff loss `(n,)` of normalised `losses (n, k)` for `weights (k,)`.

    Examples
    --------
    >>> tchebycheff(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.5, 0.5])).round(4).tolist()
    [0.525, 0.275]
    """
    if losses.ndim != 2 or weights.shape != losses.shape[1:]:
        raise ConfigError(f"weights: expected one per column of {losses.shape}, got {weights.shape}")
    weighted = losses * weights
    return np.asarray(weighted.max(axis=1) + RHO * weighted.sum(axis=1), dtype=np.float64)


KERNEL = "matern52"
NUM_CANDIDATES = 512
MIN_DISTANCE = 0.005
INCUMBENTS = ("mean", "observed")
REFERENCE_MARGIN = 0.1  # distance from the worst losses of the front, relative to the range of all losses


@dataclass(frozen=True)
class LogVolumeImprovement:
    """`log EHVI` under two independent posteriors.

    Parameters
    ----------
    posteriors : of the standardised negative losses, one each
    values : `(n, 2)`, those of the front in the posteriors' units
    reference : `(2,)`, in the same units
    """

    posteriors: tuple[gp.Posterior, gp.Posterior]
    values: Array
    reference: Array

    @cached_property
    def boxes(self) -> tuple[Array, Array]:
        """Corners of what the front leaves free."""
        return free_boxes(self.values, self.reference)

    def __call__(self, z: Array, /) -> Array:
        means, variances = (
            np.array(part) for part in zip(*(p.predict(z) for p in self.posteriors), strict=True)
        )
        stddevs = np.sqrt(np.maximum(variances, LEAST_STDDEV**2))
        return log_improvement(means, stddevs, *self.boxes)[0]

    def value_and_gradient(self, z: Array, /) -> tuple[Array, Array]:
        means, stddevs, mean_slopes, stddev_slopes = (
            np.array(part) for part in zip(*(moments(p, z) for p in self.posteriors), strict=True)
        )
        values, in_means, in_stddevs = log_improvement(means, stddevs, *self.boxes)
        gradients = in_means[:, :, None] * mean_slopes + in_stddevs[:, :, None] * stddev_slopes
        return values, gradients.sum(axis=0)


@dataclass(frozen=True)
class ProposalPlan:
    """Data of surrogates that are not fitted yet, and a function that builds their acquisition.

    A caller with many plans can fit the hyperparameters of all of them together (`surrogates.fitting`).

    Parameters
    ----------
    x : `(n, F)`, different points
    targets : `(n,)` each, the standardised negative losses that are modelled
    build : from the posteriors of the targets to the acquisition
    """

    x: Array
    targets: tuple[Array, ...]
    build: Callable[[Sequence[gp.Posterior]], Differentiable]

    def fitted(self, kernel: str) -> Differentiable:
        """Fit every surrogate by itself and return the acquisition."""
        return self.given([fitting.fit_one(self.x, y, kernel) for y in self.targets])

    def given(self, hyperparameters: Sequence[gp.Hyperparameters]) -> Differentiable:
        """Return the acquisition with these hyperparameters, one set per target."""
        pairs = zip(self.targets, hyperparameters, strict=True)
        return self.build([gp.posterior(self.x, y, h) for y, h in pairs])


def plan_improvement(x: Array, losses: Array, incumbent: str = "mean") -> ProposalPlan:
    """Return the plan for the logarithm of the expected improvement of one loss.

    Parameters
    ----------
    x : `(n, F)`, features of the points, `n > 0`
    losses : `(n,)`, finite
    incumbent : one of `INCUMBENTS`; what to improve on: "mean", the best posterior mean at an observed point,
        or "observed", the best observation
    """
    if incumbent not in INCUMBENTS:
        raise ConfigError(f"incumbent: expected one of {', '.join(INCUMBENTS)}, got {incumbent!r}")
    x, merged = merge_equal(x, losses[:, None])

    def build(posteriors: Sequence[gp.Posterior]) -> LogImprovement:
        (posterior,) = posteriors
        best = posterior.y if incumbent == "observed" else posterior.predict(x)[0]
        return LogImprovement(posterior, float(best.max()))

    return ProposalPlan(x, (standardise(-merged[:, 0]),), build)


def plan_volume_improvement(x: Array, losses: Array, reference: Array | None = None) -> ProposalPlan:
    """Return the plan for the logarithm of the expected hypervolume improvement of two losses.

    Parameters
    ----------
    x : `(n, F)`, features of the points, `n > 0`
    losses : `(n, 2)`, finite
    reference : `(2,)`, reference point of the hypervolume; None: the worst losses of the front of posterior
        means plus a tenth of the range of all losses
    """
    x, merged = merge_equal(x, losses)
    targets = tuple(standardise(-column) for column in merged.T)
    offset = merged.mean(axis=0)
    stddev = merged.std(axis=0)
    scale = np.where(stddev > 1e-12 * np.abs(merged).max(axis=0), stddev, 1.0)
    span = np.ptp(targets, axis=1)
    margin = REFERENCE_MARGIN * np.where(span > 0, span, 1.0)

    def build(posteriors: Sequence[gp.Posterior]) -> LogVolumeImprovement:
        first, second = posteriors
        # the front of the posterior means at the observed points, like the incumbent for one loss
        believed = np.stack([posterior.predict(x)[0] for posterior in posteriors], axis=1)
        if reference is None:
            # the observed front can end before the believed one; a corner from it would cut off the ends
            corner = believed[non_dominated(believed)].min(axis=0) - margin
        else:
            corner = (offset - reference) / scale
        return LogVolumeImprovement((first, second), believed, corner)

    return ProposalPlan(x, targets, build)


def merge_equal(x: Array, losses: Array) -> tuple[Array, Array]:
    """Return the different rows of `x (n, F)` in order of appearance, and their mean losses `(n', k)`."""
    if x.ndim != 2 or losses.ndim != 2 or len(x) != len(losses) or len(x) == 0:
        raise ConfigError(f"losses: expected one row per point, got {x.shape} and {losses.shape}")
    if not (np.isfinite(x).all() and np.isfinite(losses).all()):
        raise ConfigError("losses: expected finite numbers, got some that are not")
    if len(np.unique(x[:, 0])) == len(x):  # all rows differ already in the first feature
        return x, losses.astype(np.float64)
    _, first, group, counts = np.unique(x, axis=0, return_index=True, return_inverse=True, return_counts=True)
    sums = np.zeros((len(first), losses.shape[1]))
    # divided before summing, so that the sum cannot overflow
    np.add.at(sums, group.ravel(), losses / counts[group.ravel(), None])
    order = np.argsort(first)
    return x[first[order]], sums[order]
