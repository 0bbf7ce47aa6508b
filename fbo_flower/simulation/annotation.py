"""What a problem adds to a study: its name and options, the reference hypervolumes, and regret.

`f*` is the largest noiseless value of the agent's objective, if that is known. The regret of a trial is
`f* - f(x)` without noise; cumulative regret is the sum over trials, simple regret the smallest so far
[Dai2020, section 2]. In the sum, a failed trial counts as much as its agent's worst trial, because it cost an
evaluation and gave nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fbo_flower.reports.selection import selections
from fbo_flower.simulation.problems import Problem
from fbo_flower.study.schema import REGRET, TRIALS
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table


def annotate(study: Study, problem: Problem, **description: object) -> Study:
    """Return the study of one run with the facts that its strategy does not know.

    Parameters
    ----------
    problem : its name, options and metric go into the run's settings; the trials get regret if its optimum
        is known
    description : further entries of the run's settings, such as `engine="inline"`
    """
    (run,) = study.settings["runs"]
    named = [name for name, _ in run.get("objectives", [])]
    metric = "hypervolume" if len(named) > 1 else next(iter(named), problem.metric)
    known: dict[str, Any] = {
        "problem": problem.title(),
        "problem_options": {name: getattr(problem, name) for name in problem.options()},
        "metric": metric,
    }
    if len(study.models):
        volumes = selections(study)[0].volumes
        known["hypervolume"] = {name: v if np.isfinite(v) else None for name, v in volumes.items()}
    if "noise_from" in run.get("privacy", {}):  # agents of a problem draw from the study's seed, too
        known["privacy"] = {**run["privacy"], "noise_from": "seed"}
    settings = {**study.settings, "runs": [{**run, **known, **description}]}
    study = replace(study, settings=settings)
    return with_regret(study, problem)


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
    return replace(study, trials=trials, regret=regret_table(trials))


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
            dict(zip(REGRET, (algorithm, agent, *numbers), strict=True))
            for numbers in zip(*columns, strict=True)
        ]
    return Table.from_rows(rows, REGRET)
