"""Exact functional ANOVA of functions that are constant on boxes, such as regression trees [Hutter2014].

A tree divides the unit cube `[0, 1]^D` into boxes and has one value on each. Its variance under the uniform
distribution splits into parts: one per parameter, one per pair, and so on. The part of a set of parameters U
is the variance of the mean of the function over all other parameters, minus the parts of the subsets of U.

Notation: D parameters, L boxes `b` with values `c_b`, widths `w_bd` and volumes `v_b = prod_d w_bd`. With
`o_abd` the length of the overlap of two boxes in parameter d, the variance of the mean over all but U is
`sum_ab c_a c_b prod_{d in U} o_abd prod_{d not in U} w_ad w_bd`, if the mean of the function is 0.

[Hutter2014] Hutter et al. An efficient approach for assessing hyperparameter importance. ICML 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fbo_flower.numerics.arrays import Array


@dataclass(frozen=True)
class StepFunction:
    """A function on the unit cube that is constant on each of some boxes, which do not overlap.

    Parameters
    ----------
    low, high : `(L, D)`, corners of the boxes, which together fill the cube
    values : `(L,)`
    """

    low: Array
    high: Array
    values: Array

    @property
    def widths(self) -> Array:
        """Widths of the boxes `(L, D)`."""
        return self.high - self.low

    @property
    def mean(self) -> float:
        """Mean of the function."""
        return float(self.values @ self.widths.prod(axis=1))

    @property
    def variance(self) -> float:
        """Variance of the function."""
        return float((self.values - self.mean) ** 2 @ self.widths.prod(axis=1))


def variance_shares(boxes: StepFunction, pairs: Sequence[tuple[int, int]] = ()) -> tuple[Array, Array]:
    """Return the shares of the variance that single parameters and pairs explain [Hutter2014, Alg. 2].

    Parameters
    ----------
    pairs : pairs of parameters

    Returns
    -------
    singles : `(D,)`; 0 for a constant function
    interactions : `(len(pairs),)`, what a pair explains beyond its two parameters alone

    Examples
    --------
    The function `[x < 1/2] + 2 [y < 1/2]` is additive: its parts have the variances 1/4 and 1.

    >>> low = np.array([[0, 0], [0, 0.5], [0.5, 0], [0.5, 0.5]])
    >>> boxes = StepFunction(low, low + 0.5, np.array([3.0, 1.0, 2.0, 0.0]))
    >>> variance_shares(boxes, [(0, 1)])
    (array([0.2, 0.8]), array([0.]))
    """
    dimension, variance = boxes.low.shape[1], boxes.variance
    if not variance > 0:
        return np.zeros(dimension), np.zeros(len(pairs))
    singles = np.array([_variance_of_mean(boxes, (d,)) for d in range(dimension)])
    both = np.array([_variance_of_mean(boxes, pair) - singles[list(pair)].sum() for pair in pairs])
    return singles / variance, both.reshape(len(pairs)) / variance


def mean_over_others(boxes: StepFunction, axes: Sequence[int], points: Sequence[Array]) -> Array:
    """Return the mean of the function over all parameters but one, `(n,)`, or two, `(n, m)`.

    Parameters
    ----------
    axes : one or two parameters
    points : per parameter in `axes`, the positions `(n,)` in [0, 1] at which the mean is wanted
    """
    others = [d for d in range(boxes.low.shape[1]) if d not in axes]
    weight = boxes.values * boxes.widths[:, others].prod(axis=1)  # (L,)
    inside = []  # of each axis `(n, L)`, 1 where a position is in an interval; the last contains its end
    for d, x in zip(axes, points, strict=True):
        low, high, at = boxes.low[:, d], boxes.high[:, d], np.asarray(x, dtype=np.float64)[:, None]
        inside.append(((low <= at) & ((at < high) | ((at >= 1.0) & (high >= 1.0)))).astype(np.float64))
    first = inside[0] * weight  # (n, L)
    return np.asarray(first.sum(axis=1) if len(inside) == 1 else first @ inside[1].T)


def _variance_of_mean(boxes: StepFunction, axes: Sequence[int]) -> float:
    others = [d for d in range(boxes.low.shape[1]) if d not in axes]
    weight = (boxes.values - boxes.mean) * boxes.widths[:, others].prod(axis=1)  # (L,)
    overlap = np.ones((len(weight), len(weight)))
    for d in axes:
        low = np.maximum(boxes.low[:, None, d], boxes.low[None, :, d])
        high = np.minimum(boxes.high[:, None, d], boxes.high[None, :, d])
        overlap *= np.maximum(high - low, 0.0)
    return float(weight @ overlap @ weight)
