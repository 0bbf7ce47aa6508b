"""From learning curves to one observation per trial: its value after the last round, and how sure that is.

Most trials stop early. A trial that was stopped after round `r` is moved to the next rung `s` by the mean
gain `g` of the trials that have values at both, and to the end rung by rung. The gain is not the same for all
trials, so its variance between trials is added to the variance of the observation, and the surrogate trusts
a whole run more than one that it has seen only the start of. With `m` gains `d_j` and their mean `g`

    variance between trials = (g^2 / 4 + sum_j (d_j - g)^2) / m,

where the first term stands for an assumed relative deviation of one half and loses its weight with `m`; the
mean itself adds a share of `1 / m`. Where no trial has gone on there is no gain to add, and all trials are
compared where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.federated.records import Trial


def final_values(trials: Sequence[Trial], rungs: Sequence[int]) -> tuple[Array, Array]:
    """Return each trial's expected value at the last rung that any trial has reached, and its variance.

    Parameters
    ----------
    rungs : rounds at which trials may stop, in ascending order

    Returns
    -------
    Values and variances `(n,)`. A trial without any value, or with a failure, has NaN and 0.
    """
    values = np.array([trial.value for trial in trials])
    variances = np.array([sampled(trial) for trial in trials])
    for k, trial in enumerate(trials):
        at = trial.round
        while math.isfinite(values[k]) and (later := [rung for rung in rungs if rung > at]):
            gain, between = gain_of(trials, at, later[0])
            values[k] += gain
            variances[k] += between
            at = later[0]
    known = variances[np.isfinite(variances)]
    # the variance of a single client's value is unknown: it is at least that of others
    variances[~np.isfinite(variances)] = known.max(initial=0.0)
    return values, np.where(np.isfinite(values), variances, 0.0)


def gain_of(trials: Sequence[Trial], start: int, end: int) -> tuple[float, float]:
    """Return the mean gain between two rounds, and the variance of one trial's gain; 0, 0: unknown."""
    gains = np.array(
        [
            trial.value_at(end) - trial.value_at(start)
            for trial in trials
            if trial.round >= end and math.isfinite(trial.value_at(end))
        ]
    )
    m = len(gains)
    if start == 0 or not m:
        return 0.0, 0.0
    mean = float(gains.mean())
    between = (mean**2 / 4.0 + float(((gains - mean) ** 2).sum())) / m
    return mean, between * (1.0 + 1.0 / m)


def sampled(trial: Trial) -> float:
    """Return the variance of a trial's last value that comes from sampling clients."""
    return trial.rounds[-1].variance if trial.rounds else 0.0
