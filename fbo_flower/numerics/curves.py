"""Learning curves: stop a trial that is worse than the median [Golovin2017], and forecast its final value.

**The median rule.** At step `s` a trial stops if its best value up to `s` is below the median of the values
that completed trials had at `s`. This is the rule of Optuna's `MedianPruner`.

In a federation an agent has the medians of its own curves, and receives the pooled medians of others. A
pooled median is a weighted median of agents' medians, so no single agent can move it beyond what the others
have reported. A summary `(k, 3)` has the columns step, number of curves and median, a row per step.

**Forecasts.** Of `n` completed trials we know the value at a step, `x_i`, and the final one, `f_i`. Their
gains from the step on, `d_i = f_i - x_i`, forecast a trial with the value `x` there:

    f(x) = x + mean(d).

The spread of the gains says how much a step tells: while curves are near chance the gains differ as much as
the final values do, and toward the end they are equal.
Larger values are better.

[Golovin2017] Golovin, Solnik, Moitra, Kochanski, Karro, Sculley: Google Vizier, KDD 2017, Section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from fbo_flower.numerics.arrays import Array

LEAST_GAINS = 2  # for their standard deviation
STEP, MEDIAN = 0, 2  # columns of a summary


def medians_of(by_step: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Return step -> median of the values there."""
    return {step: float(median(values)) for step, values in by_step.items()}


def summary_of(by_step: Mapping[int, Sequence[float]], least: int, most_rows: int) -> Array:
    """Return the summary `(k, 3)` of an agent's curves, in ascending steps.

    Parameters
    ----------
    least : steps with fewer curves are left out, because the median of one curve is that curve
    most_rows : largest `k`; of more steps evenly spaced ones are kept, the first and the last among them
    """
    steps = sorted(step for step, values in by_step.items() if len(values) >= least)
    return _table([(step, len(by_step[step]), float(median(by_step[step]))) for step in steps], most_rows)


def _table(rows: Sequence[tuple[float, float, float]], most_rows: int) -> Array:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    if len(table) > most_rows:
        table = table[np.linspace(0, len(table) - 1, most_rows).round().astype(int)]
    return table


def pooled(summaries: Sequence[Array], least: int, most_rows: int) -> Array:
    """Return the summary of several agents: at each step the weighted median of their medians.

    Parameters
    ----------
    summaries : `(k_i, 3)` of each agent. Its weight at a step is its number of curves, but no agent weighs
        more than half as much as all others together
    least : steps with summaries of fewer agents are left out
    most_rows : see `summary_of`
    """
    found: dict[int, list[tuple[float, float]]] = {}
    for summary in summaries:
        for step, number, middle in summary.tolist():
            found.setdefault(int(step), []).append((middle, number))
    rows = []
    for step in sorted(step for step, pairs in found.items() if len(pairs) >= least):
        medians, numbers = np.array(found[step]).T
        largest = int(np.argmax(numbers))
        weights = numbers.copy()
        weights[largest] = min(numbers[largest], max(numbers.sum() - numbers[largest], 1.0) / 2)
        rows.append((step, numbers.sum(), weighted_median(medians, weights)))
    return _table(rows, most_rows)


def weighted_median(values: Array, weights: Array) -> float:
    """Return the median of values `(n,)` that are repeated in proportion to positive weights `(n,)`.

    Where half of the weight lies on each side, it is the mean of the two values in the middle.

    >>> weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 4.0]))
    2.0
    >>> weighted_median(np.array([1.0, 2.0]), np.array([2.0, 2.0]))
    1.5
    """
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(weights[order])
    half = below[-1] / 2
    i = int(np.searchsorted(below, half))
    return float((values[i] + values[i + 1]) / 2) if below[i] == half else float(values[i])


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
