"""Up to three objectives: Pareto fronts, dominated volumes, and the logarithm of their expected improvement.

Objectives are maximised, and their values stand in the units of the models: standardised, larger is better.
One point dominates another if it is nowhere worse and somewhere better. The hypervolume of a front is the
volume between it and a reference point [Fonseca2006]; moocore computes both.

**Boxes.** What no point of the front dominates is cut into disjoint boxes `[l_j, u_j)`. A point `Y` adds to
the volume the part of each box below `Y`. So for independent normals, with `psi(t) = E max(Y - t, 0)`,

    EHVI = sum_j prod_k [psi_k(l_jk) - psi_k(u_jk)],   psi(t) = s h((m - t) / s),   h of `excess`

[Yang2019]. For `n` points on the front, two objectives need `n + 1` boxes [Emmerich2011], three `2 n + 1`.
With one objective the only box begins at the best value, and the sum is expected improvement.

**Logarithm.** Each factor is `log s + log h(a) + log(1 - h(b) / h(a))`, with the standardised edges `a` and
`b`; the sum over boxes is a log-sum-exp. So value and gradient are finite where the improvement itself
underflows, as in [Ament2023], whose smoothed Monte Carlo estimate is not needed here.

**Reference point.** In each objective the worst value of the front, less a tenth of the front's range
[Ishibuchi2011], as in BoTorch's `infer_reference_point`, but at least half a standard deviation. A narrow
front would else hide its own continuation: a point that is better in one objective and a little worse than
the front in another would gain nothing. The scale of an objective multiplies the improvement of all points
alike, so standardising matters only for this half.

Notation: `K` objectives, `n` points, `m` candidates, `J` boxes.

References
----------
[Ament2023] Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected improvements to expected improvement for
Bayesian optimization. NeurIPS 2023.
[Emmerich2011] Emmerich, Deutz, Klinkenberg. Hypervolume-based expected improvement: monotonicity properties
and exact computation. CEC 2011.
[Fonseca2006] Fonseca, Paquete, Lopez-Ibanez. An improved dimension-sweep algorithm for the hypervolume
indicator. CEC 2006.
[Ishibuchi2011] Ishibuchi, Akedo, Nojima. A many-objective test problem for visually examining diversity
maintenance behavior in a decision space. GECCO 2011.
[Yang2019] Yang, Emmerich, Deutz, Baeck. Efficient computation of expected hypervolume improvement using box
decomposition algorithms. J. Global Optimization 75 (2019).
"""

from __future__ import annotations

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics import finite
from fbo_flower.numerics.acquisition.expected_improvement import excess_ratios
from fbo_flower.numerics.arrays import Array, BoolArray

MOST_OBJECTIVES = 3
MARGIN = 0.1  # of the front's range, from its worst value to the reference point
LEAST_MARGIN = 0.5  # in standard deviations of the objective
ENDLESS = -1e100  # a standardised edge at infinity, which nothing reaches
THINNEST = float(np.finfo(np.float64).eps)  # 1 - h(b) / h(a) of a box whose edges are equal to rounding


def non_dominated(values: Array) -> BoolArray:
    """Return which of `values (n, K)` no other dominates, `(n,)`; of equal rows only the first.

    Examples
    --------
    >>> non_dominated(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.5]])).tolist()
    [True, True, False, False]
    """
    _check(values)
    if not len(values):
        return np.zeros(0, dtype=np.bool_)
    if values.shape[1] == 1:  # devices with one objective need not import moocore
        return np.asarray(np.arange(len(values)) == np.argmax(values), dtype=np.bool_)
    import moocore

    return np.asarray(moocore.is_nondominated(values, maximise=True, keep_weakly=False), dtype=np.bool_)


def hypervolume(values: Array, reference: Array) -> float:
    """Return the volume between `values (n, K)` and `reference (K,)`; points beyond it add nothing.

    A volume beyond the largest float is the largest float.

    Examples
    --------
    >>> hypervolume(np.array([[1.0, 0.5], [0.5, 1.0], [2.0, -1.0]]), np.zeros(2))
    0.75
    """
    inside = _inside(values, reference)
    if not len(inside):
        return 0.0
    import moocore

    sides, exponents = finite.scaled(np.concatenate([inside, reference[None]]), axis=0)
    volume = np.asarray(moocore.hypervolume(sides[:-1], ref=sides[-1], maximise=True))
    return float(finite.unscaled(volume, exponents.sum()))


def reference_point(front: Array) -> Array:
    """Return the reference point `(K,)` of a `front (n, K)`; the head of the module has the rule.

    Examples
    --------
    >>> reference_point(np.array([[8.0, 0.0], [-2.0, 0.3]])).tolist()
    [-3.0, -0.5]
    """
    _check(front)
    worst = front.min(axis=0)
    margin = np.maximum(MARGIN * (front.max(axis=0) - worst), LEAST_MARGIN)
    return np.asarray(worst - margin, dtype=np.float64)


def free_boxes(values: Array, reference: Array) -> tuple[Array, Array]:
    """Return lower and upper corners `(J, K)` of disjoint boxes: all that no point dominates.

    Points of the front enter by decreasing third objective [Yang2019]. Before each, the free region between
    this level and the last is a row of strips along the first objective; the point ends those below it.

    Parameters
    ----------
    values : `(n, K)`, `K` from 1 to 3; `n` may be 0
    reference : `(K,)`; the boxes lie above it
    """
    inside = _inside(values, reference)
    num_objectives = len(reference)
    if not 1 <= num_objectives <= MOST_OBJECTIVES:
        raise ConfigError(f"objectives: expected 1 to {MOST_OBJECTIVES}, got {num_objectives}")
    # objectives that are missing are as if every point were infinitely good in them
    front = np.full((len(inside), MOST_OBJECTIVES), np.inf)
    front[:, :num_objectives] = inside
    front = front[non_dominated(inside)]
    start = np.zeros(MOST_OBJECTIVES)
    start[:num_objectives] = reference

    strips = [(start[0], np.inf, start[1], np.inf)]  # from, to, height, level from which it goes down
    boxes: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for a, b, c in front[np.argsort(-front[:, 2], kind="stable")]:
        following, begin = [], a
        for left, right, height, top in strips:
            if left >= a or height >= b:
                following.append((left, right, height, top))
                continue
            boxes.append(((left, height, c), (min(right, a), np.inf, top)))
            begin = min(begin, left)
            if right > a:
                following.append((a, right, height, top))
        strips = [*following, (begin, a, b, c)]
    boxes += [((left, height, start[2]), (right, np.inf, top)) for left, right, height, top in strips]
    corners = np.array(boxes)  # (J, 2, 3)
    corners = corners[(corners[:, 0] < corners[:, 1]).all(axis=1), :, :num_objectives]
    return corners[:, 0], corners[:, 1]


def log_improvement(mean: Array, stddev: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """Return the logarithm of the expected improvement of the hypervolume, and its slopes.

    Parameters
    ----------
    mean, stddev : `(K, m)`, of independent normals; deviations are positive
    lower, upper : `(J, K)`, the boxes of `free_boxes`

    Returns
    -------
    Values `(m,)`, slopes in the means `(K, m)` and in the deviations `(K, m)`.
    """
    logs = np.zeros((mean.shape[1], len(lower)))
    slopes = []
    for k, spread in enumerate(stddev[:, :, None]):
        # boxes share their edges: each edge is computed once
        edges, places = np.unique(np.concatenate([lower[:, k], upper[:, k]]), return_inverse=True)
        log_h, density, probability = excess_ratios(np.maximum((mean[k, :, None] - edges) / spread, ENDLESS))
        low, high = np.split(places, 2)
        log_ratio = log_h[:, high] - log_h[:, low]  # of h(b) and h(a)
        ratio, rest = np.exp(log_ratio), np.maximum(-np.expm1(log_ratio), THINNEST)
        logs += np.log(spread) + log_h[:, low] + np.log(rest)
        # d psi / dm = Phi, d psi / ds = phi, both divided by s [h(a) - h(b)]
        slopes.append([(d[:, low] - ratio * d[:, high]) / (rest * spread) for d in (probability, density)])
    top = logs.max(axis=1)
    weights = np.exp(logs - top[:, None])
    total = weights.sum(axis=1)
    weights /= total[:, None]
    in_means, in_stddevs = (np.array([(weights * s[i]).sum(axis=1) for s in slopes]) for i in (0, 1))
    return top + np.log(total), in_means, in_stddevs


def _inside(values: Array, reference: Array) -> Array:
    """Return the rows of `values` that exceed the reference in every objective."""
    _check(values)
    if reference.shape != values.shape[1:] or not np.isfinite(reference).all():
        expected = f"{values.shape[1]} finite numbers"
        raise ConfigError(f"reference: expected {expected}, got {reference.tolist()}")
    return values[(values > reference).all(axis=1)]


def _check(values: Array) -> None:
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ConfigError(f"values: expected finite numbers (n, K), got {values.shape}")
