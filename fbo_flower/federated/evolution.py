"""The steps of population-based tuning: the worst of a population become changed copies of the best.

The steps of FedPop [Chen2025] in the unit cube of a search space:

- `perturbed`: a number moves by `U(-width, width)`, in its own scale, logarithmic or not. A discrete
  parameter of few values stays or moves to a neighbouring value, each with probability 1/3; a category is
  drawn anew with probability 1/3;
- `exploit`: of `n` members the worst `ceil(quantile n)` each copy one of the best `ceil(quantile n)`, drawn
  at random. No member copies itself, so at most half are replaced.

[Chen2025] Chen, Krompass, Gu, Tresp. FedPop: federated population-based hyperparameter tuning. AAAI 2025.
"""

from __future__ import annotations

import math

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.space.space import Categorical, Float, SearchSpace


def perturbed(space: SearchSpace, point: Array, width: float, rng: np.random.Generator) -> Array:
    """Return a changed copy of a point `(D,)`, snapped to the search space."""
    moved = np.clip(point + rng.uniform(-width, width, len(point)), 0.0, 1.0)
    choices = rng.random(len(point))
    for axis, parameter in enumerate(space.parameters.values()):
        if isinstance(parameter, Float) or parameter.num_values * width > 1.0:
            continue
        if isinstance(parameter, Categorical):
            moved[axis] = rng.random() if choices[axis] < 1.0 / 3.0 else point[axis]
            continue
        index = int(parameter.bin_of(point[axis : axis + 1])[0]) + int(choices[axis] * 3.0) - 1
        index = min(max(index, 0), parameter.num_values - 1)
        moved[axis] = float(parameter.centre_of(np.array([index]))[0])
    snapped: Array = space.snap(moved[None, :])[0]
    return snapped


def exploit(losses: Array, quantile: float, rng: np.random.Generator) -> dict[int, int]:
    """Return which member copies which: worst -> one of the best.

    Parameters
    ----------
    losses : `(n,)`; NaN: unknown, such a member stays and is not copied; `inf`: failed, it is always replaced
    """
    known = np.flatnonzero(~np.isnan(losses))
    order = known[np.argsort(losses[known], kind="stable")]
    count = min(math.ceil(quantile * len(order)), len(order) // 2)
    finite = [int(member) for member in order if math.isfinite(losses[member])]
    best = finite[: max(count, 1)]
    worst = [int(member) for member in order[len(order) - count :]]
    worst += [int(m) for m in order if not math.isfinite(losses[m]) and int(m) not in worst]
    worst = [member for member in worst if member not in best]
    return {member: best[int(rng.integers(len(best)))] for member in worst} if best else {}


def cooled(value: float, step: int, steps: int) -> float:
    """Return `value (1 + cos(pi step / steps)) / 2`, which falls from `value` to 0."""
    return value * 0.5 * (1.0 + math.cos(math.pi * min(step / steps, 1.0)))
