"""Two losses: the Pareto front, the area it dominates, and the expected improvement of that area.

Losses are minimised here, as in the literature. A point dominates another if it is nowhere worse and
somewhere better. With a reference point `r`, a front `a_1 < ... < a_k` with second losses `b_1 > ... > b_k`
dominates the area of all `(u, v) <= r` that some point dominates.

Expected improvement of that area [Emmerich2011; Yang2019] in a form that is one sum: the area not yet
dominated is, for `u` in `[a_i, a_(i+1))`, all `v < b_i` (with `a_0 = -inf`, `b_0 = r_2`, `a_(k+1) = r_1`). A
point `(Y_1, Y_2)` adds the part of that area above and to the right of it, so for independent normals

`EHVI = sum_i [psi_1(a_(i+1)) - psi_1(a_i)] psi_2(b_i)`,
`psi_j(t) = E max(t - Y_j, 0) = s_j h((t - m_j) / s_j)`

with `h(z) = phi(z) + z Phi(z)`. Areas themselves are moocore's.

References
----------
[Emmerich2011] Emmerich, Deutz, Klinkenberg. Hypervolume-based expected improvement: monotonicity properties
and exact computation. CEC 2011.
[Yang2019] Yang, Emmerich, Deutz, Baeck. Efficient computation of expected hypervolume improvement using box
decomposition algorithms. J. Global Optimization 75 (2019).
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition.normal import excess, log_cdf
from fbo_flower.numerics.arrays import Array, BoolArray

SQRT_2PI = float(np.sqrt(2.0 * np.pi))


def non_dominated(losses: Array) -> BoolArray:
    """Return which of `losses (n, 2)` no other dominates, `(n,)`; of equal ones only the first.

    Examples
    --------
    >>> non_dominated(np.array([[0.1, 0.5], [0.1, 0.5], [0.3, 0.2], [0.3, 0.4]])).tolist()
    [True, False, True, False]
    """
    _check("losses", losses)
    mask = np.zeros(len(losses), dtype=np.bool_)
    order = np.lexsort((losses[:, 1], losses[:, 0]))  # stable: of equal rows the first stays the first
    second = losses[order, 1]
    least_before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]]) if len(second) else second
    mask[order] = second < least_before
    return mask


def expected_improvement(
    means: Array, stddevs: Array, losses: Array, reference: Array
) -> tuple[Array, Array, Array]:
    """Return the expected increase of the dominated area by each candidate, and its gradients.

    Parameters
    ----------
    means, stddevs : `(m, 2)`, of the candidates' losses, independent normals; deviations positive
    losses : `(n, 2)`, observed; `n` may be 0
    reference : `(2,)`

    Returns
    -------
    Values `(m,)`, gradients in the means `(m, 2)` and in the deviations `(m, 2)`.
    """
    _check("means", means)
    if stddevs.shape != means.shape or not (stddevs > 0).all():
        raise ConfigError(f"stddevs: expected {means.shape} positive numbers, got {stddevs.shape}")
    a, b = _steps(losses, reference)
    # EHVI = sum_i [psi_1(a_(i+1)) - psi_1(a_i)] psi_2(b_i); all terms are (m, k + 1)
    first = [_psi(means[:, :1], stddevs[:, :1], edge) for edge in (a[1:], a[:-1])]
    width, width_mean, width_stddev = (upper - lower for upper, lower in zip(*first, strict=True))
    height, height_mean, height_stddev = _psi(means[:, 1:], stddevs[:, 1:], b)
    values = (width * height).sum(axis=1)
    in_means = np.stack([(width_mean * height).sum(axis=1), (width * height_mean).sum(axis=1)], axis=1)
    in_stddevs = np.stack([(width_stddev * height).sum(axis=1), (width * height_stddev).sum(axis=1)], axis=1)
    return values, in_means, in_stddevs


def _psi(mean: Array, stddev: Array, t: Array) -> tuple[Array, Array, Array]:
    """Return `psi (m, k)` at `t (k,)` and its derivatives in mean and deviation; 0 at `t = -inf`."""
    z = (t - mean) / stddev
    value = np.where(np.isneginf(z), 0.0, stddev * excess(np.maximum(z, -1e150)))
    with np.errstate(over="ignore"):
        density = np.exp(-0.5 * z * z) / SQRT_2PI
    return value, -np.exp(log_cdf(z)), density


def _steps(losses: Array, reference: Array) -> tuple[Array, Array]:
    """Return the steps of a front: `a (k + 2,)` from `-inf` to `r_1`, and `b (k + 1,)` from `r_2` down."""
    _check("losses", losses)
    if reference.shape != (2,) or not np.isfinite(reference).all():
        raise ConfigError(f"reference: expected two numbers, got {reference.tolist()}")
    inside = losses[(losses < reference).all(axis=1)]
    front = inside[non_dominated(inside)]
    front = front[np.argsort(front[:, 0])]
    a = np.concatenate([[-np.inf], front[:, 0], reference[:1]])
    return a, np.concatenate([reference[1:], front[:, 1]])


def _check(name: str, losses: Array) -> None:
    if losses.ndim != 2 or losses.shape[1] != 2 or not np.isfinite(losses).all():
        raise ConfigError(f"{name}: expected finite numbers (n, 2), got {losses.shape}")
