"""Regret: how far each evaluation stayed below the agent's optimum, where that is known.

`f*` is the largest noiseless value of the agent's objective. Regret of a trial is `f* - f(x)`, noise
left out; cumulative regret is its sum, simple regret its smallest so far [Dai2020, section 2]. A
failed trial counts with the regret of the worst trial of its agent: it was paid for and gave nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fbo_flower.simulation.problems import Problem
from fbo_flower.study.schema import REGRET, TRIALS
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table


def with_regret(study: Study, problem: Problem) -> Study:
    """Return the study with regret of every trial.

    Unchanged where the problem has no known optimum or agents are not known by their partition.
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
    )


def regret_table(trials: Table) -> Table:
    """Return cumulative and simple regret after every evaluation of every agent."""
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
