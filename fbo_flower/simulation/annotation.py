"""What a problem adds to a study: its name and options, the reference hypervolumes, and regret."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fbo_flower.reports.selection import selections
from fbo_flower.simulation.problems import Problem
from fbo_flower.simulation.regret import with_regret
from fbo_flower.study.study import Study


def annotate(study: Study, problem: Problem, **description: object) -> Study:
    """Return the study of one run with the facts that its strategy does not know.

    Parameters
    ----------
    problem : its name, options and metric go into the run's settings; the trials get regret if its optimum
        is known
    description : further entries of the run's settings, such as `engine="inline"`
    """
    (run,) = study.settings["runs"]
    known: dict[str, Any] = {
        "problem": problem.title(),
        "problem_options": {name: getattr(problem, name) for name in problem.options()},
        "metric": problem.metric,
    }
    if len(study.models):
        volumes = selections(study)[0].volumes
        known["hypervolume"] = {name: v if np.isfinite(v) else None for name, v in volumes.items()}
    if "noise_from" in run.get("privacy", {}):  # agents of a problem draw from the study's seed, too
        known["privacy"] = {**run["privacy"], "noise_from": "seed"}
    settings = {**study.settings, "runs": [{**run, **known, **description}]}
    study = replace(study, settings=settings)
    return with_regret(study, problem)
