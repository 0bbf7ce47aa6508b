"""Measure what messages of unrelated agents cost.

Twelve agents have smooth functions on the square: six are close to one function, six are independent. Either
two agents of each half tune while the others hold 30 observations and send one message, or all agents tune at
once without earlier observations. Values are minus simple regret without noise; standard errors are over sets
of functions.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.simulation import Start, observations, prior_study
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.study import Study
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, Part

NUM_AGENTS, NUM_RELATED = 12, 6  # agents 0-5 are related
TARGETS = (0, 1, 10, 11)  # of the part in which the others hold observations
PARTS = ("others hold 30 observations", "all from nothing")
NUM_INITIAL = 3
PRIOR_ROUNDS = 28  # 30 observations
GP = {"dimension": 2, "lengthscale": 0.2, "difference": 0.3, "offset": "smooth", "unrelated_fraction": 6 / 11}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ts": ("ts", {}),
    "fts single": ("fts", {}),
    "fts learned": ("fts", {"preferences": "learned"}),
    "fts portfolio": ("fts", {"advice": "portfolio"}),
    "fts mixture": ("fts", {"advice": "mixture"}),
    "control": ("fts", {"advice": "random"}),
    "rgpe": ("rgpe", {}),
    "taf": ("taf", {}),
    "taf seen": ("taf", {"improvement_over": "seen"}),
}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 2 sets of functions, 6 iterations."""
    return [
        Part(
            "functions", run_function, PARTS, list(VARIANTS), range(2 if quick else 12),
            {"num_iterations": 6 if quick else 50}, "ts", drawn="related", at=(3, 5, 10, 20, 50), first=0,
        )
    ]  # fmt: skip


EXPERIMENT = Experiment("FTS when half of the agents are unrelated", parts)


def made(function: int) -> Problem:
    """Return a set of functions."""
    return make_problem("gp-samples", NUM_AGENTS, function, {**GP, "function_seed": function})


@lru_cache(maxsize=1)
def before(function: int) -> Study:
    """Return the study of agents that tuned alone, of which variants hold observations."""
    return prior_study(made(function), "ts", PRIOR_ROUNDS, 70_000 + function, "inline")


def run_function(part: str, variant: str, function: int, num_iterations: int) -> Arrays:
    """Run one variant on one set of functions; return minus simple regret `(agents, iterations + 1)`."""
    algorithm, extra = VARIANTS[variant]
    options: dict[str, Any] = {"num_initial": NUM_INITIAL, **extra}
    held, who = None, tuple(range(NUM_AGENTS))
    if part == PARTS[0]:
        names = tuple(str(agent) for agent in TARGETS)
        held, who = observations(before(function), made(function), without=names), TARGETS
        if algorithm != "ts":
            options |= {"targets": names}
            options |= {} if extra.get("advice") == "random" else {"communication": "once"}
        if extra.get("advice") in {"portfolio", "random"}:
            options |= {"schedule": "first-5"}
    study = runs.run(
        made(function), algorithm, options, num_iterations + 1, function, start=Start(observations=held)
    )
    regret = np.array([study.regret.where(agent=str(a))["simple"] for a in who], dtype=np.float64)
    values, related = -regret[:, NUM_INITIAL - 1 :], np.array(who) < NUM_RELATED
    return {"related": values[related], "unrelated": values[~related]}
