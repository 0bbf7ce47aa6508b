"""Regret: how far each evaluation is below the agent's optimum, if that is known.

`f*` is the largest noiseless value of the agent's objective. The regret of a trial is `f* - f(x)` without
noise; cumulative regret is the sum over trials, simple regret the smallest so far [Dai2020, section 2]. In
the sum, a failed trial counts as much as its agent's worst trial, because it cost an evaluation and gave
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fbo_flower.simulation.problems import Problem
from fbo_flower.study.schema import REGRET, TRIALS
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table


def with_regret(study: Study, problem: Problem) -> Study:
    """Return the study with the regret of every trial.

    The study is unchanged if the optimum is unknown or the agents' names are not partition numbers.
    """
    if problem.optimum(0) is None or len(study.trials) == 0:
        return study
    rows = list(study.trials)
    if not all(row["agent"].isdigit() for row in rows):
        return study
    optima = {agent: problem.optimum(int(agent)) for agent in {row["agent"] for row in rows}}
    for row in rows:
        value, optimum = problem.true_value(row["config"], int(row["agent"])), optima[row["agent"]]
        if value is not None and optimum is not None and not row["failure"]:
            row["regret"] = optimum - value
    trials = Table.from_rows(rows, TRIALS)
    return Study(
        study.settings,
        trials,
        study.rounds,
        regret_table(trials),
        study.recommendations,
        study.models,
        study.judgements,
        study.times,
        study.replies,
    )


def regret_table(trials: Table) -> Table:
    """Return a table of the cumulative and simple regret after every evaluation of every agent."""
    rows: list[dict[str, Any]] = []
    names = list(dict.fromkeys(zip(trials["algorithm"].tolist(), trials["agent"].tolist(), strict=True)))
    for algorithm, agent in names:
        of_agent = (trials["algorithm"] == algorithm) & (trials["agent"] == agent)
        regret = np.asarray(trials["regret"][of_agent], dtype=np.float64)
        pulls = trials["pulls"][of_agent]
        if not np.isfinite(regret).any():
            continue
        paid = np.where(np.isfinite(regret), regret, np.nanmax(regret)) * pulls
        simple = np.minimum.accumulate(np.where(np.isfinite(regret), regret, np.inf))
        simple = np.where(np.isfinite(simple), simple, np.nan)
        columns = (np.cumsum(pulls).tolist(), np.cumsum(paid).tolist(), simple.tolist())
        rows += [
            {
                "algorithm": algorithm,
                "agent": agent,
                "evaluations": done,
                "cumulative": total,
                "simple": least,
            }
            for done, total, least in zip(*columns, strict=True)
        ]
    return Table.from_rows(rows, REGRET)
