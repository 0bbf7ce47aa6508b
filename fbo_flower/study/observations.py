"""What agents observed in a study, in the form in which another study begins with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fbo_flower.space.space import SearchSpace
from fbo_flower.study.table import Table

Array: TypeAlias = npt.NDArray[np.float64]
Observations: TypeAlias = Mapping[str, tuple[Array, Array]]


def observations(trials: Table, space: SearchSpace, without: Collection[str] = ()) -> Observations:
    """Return agent -> points `(n, D)` and values `(n,)` of the trials that completed.

    Parameters
    ----------
    trials : columns as in `study.schema.TRIALS`
    without : agents that are left out

    Raises
    ------
    ConfigError
        If a configuration is not in the space.
    """
    held: dict[str, tuple[Array, Array]] = {}
    succeeded = np.isfinite(trials["value"])
    if "stopped_at" in trials.columns:
        succeeded &= np.isnan(trials["stopped_at"])
    for agent in dict.fromkeys(trials["agent"].tolist()):
        rows = (trials["agent"] == agent) & succeeded
        if agent not in without and rows.any():
            points = np.array([space.encode(config) for config in trials["config"][rows]])
            held[agent] = points, np.array(trials["value"][rows], dtype=np.float64)
    return held
