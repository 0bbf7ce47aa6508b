"""What completed learning curves say about one that has not ended.

Of `n` completed trials we know the value at a step, `x_i`, and the final one, `f_i`. Their gains from the
step on, `d_i = f_i - x_i`, forecast a trial with the value `x` there:

    f(x) = x + mean(d).

A line fitted to `x_i` and `f_i` was no better with the 5 to 10 curves that there are
(studies/results/federation). The spread of the gains says how much a step tells: while curves are near
chance the gains differ as much as the final values do, and toward the end they are equal. Larger values are
better.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from fbo_flower.numerics.arrays import Array

LEAST_GAINS = 2  # for their standard deviation


def forecast(values: Array, finals: Array, value: float) -> float:
    """Return the final value that a stopped trial would have had; NaN without completed curves.

    It is at most the median of `finals`, because only trials that are below a median stop.

    Parameters
    ----------
    values, finals : `(n,)`, of completed trials: at the step, and at the end
    value : of the trial at the step where it was stopped

    >>> forecast(np.array([0.5, 0.75]), np.array([0.75, 1.0]), 0.25)
    0.5
    """
    if not len(values):
        return float("nan")
    scale = _scale(values, finals, np.array([value]))
    gain = float((finals / scale - values / scale).mean())
    predicted: float = min((value / scale + gain) * scale, median(finals.tolist()))
    return predicted + 0.0  # no -0.0


def limit_of(values: Array, finals: Array, margin: float) -> float:
    """Return the value at a step below which a trial is unlikely to become the best one.

    With the mean and the sample standard deviation of the gains, a trial with the value `x` at the step is
    predicted below the best final value, with a margin, if

        x + mean(d) + margin * stddev(d) < max(f).

    With fewer than two curves no value is low enough: `-inf`.

    >>> limit_of(np.array([0.25, 0.5, 0.75]), np.array([0.5, 0.75, 1.0]), 1.0)
    0.75
    """
    if len(values) < LEAST_GAINS:
        return float("-inf")
    scale = _scale(values, finals)
    gains = finals / scale - values / scale
    best = float((finals / scale).max())
    limit = (best - float(gains.mean()) - margin * float(gains.std(ddof=1))) * scale
    return limit if np.isfinite(limit) else float("-inf")


def _scale(*arrays: Array) -> float:
    """Return a power of two that is larger than all numbers, so that no sum or square of them overflows."""
    largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays)
    return float(np.ldexp(1.0, min(int(np.frexp(largest)[1]) + 2, 1023)))
