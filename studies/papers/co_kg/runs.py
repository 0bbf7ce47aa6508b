"""The usual setting of the Co-KG experiment, and the metrics of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.study import Study

NUM_AGENTS, MESH, NUM_INITIAL = 4, 20, 5


def differences(
    study: Study, problem: Problem, num_rounds: int, agents: Sequence[str] | None = None
) -> tuple[Array, Array]:
    """Return a run's noiseless differences to the optimum after every round; for a network, its losses.

    Parameters
    ----------
    agents : the agents whose trials count; None: all

    Returns
    -------
    recommended : `(num_rounds,)`, of the configuration that the server would return, NaN if it has none; for
        random search, of the trial with the largest value
    best : `(num_rounds,)`, of the best configuration tried so far
    """
    optimum = problem.optimum(0) or 0.0
    known: dict[tuple[tuple[str, object], ...], float] = {}

    def below(config: Config) -> float:
        key = tuple(sorted(config.items()))
        if key not in known:
            value = problem.true_value(config, 0)
            assert value is not None  # all problems of this experiment know it
            known[key] = optimum - value
        return known[key]

    trials = study.trials
    own = np.isin(trials["agent"].astype(str), agents or np.unique(trials["agent"].astype(str)))
    tried = np.array([below(config) for config in trials["config"][own]])
    when = np.asarray(trials["round"], dtype=np.int64)[own]
    seen = np.asarray(trials["value"], dtype=np.float64)[own]
    recommended, best = np.full(num_rounds, np.nan), np.full(num_rounds, np.nan)
    told = study.settings["runs"][0].get("found", {}).get("recommended")
    for t in range(num_rounds):
        until = when <= t + 1
        best[t] = tried[until].min()
        if told is None:
            recommended[t] = tried[until][int(np.nanargmax(seen[until]))]
    for row in told or ():
        recommended[row["round"] - 1 :] = below(row["config"])
    return recommended, best
