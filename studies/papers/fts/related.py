"""Measure what messages of unrelated agents cost, and whether `P_N` learns to ignore them.

Twelve agents have smooth functions on the square: six are close to one function, six are independent. Either
two agents of each half tune while the others hold 30 observations and send one message, or all agents tune at
once without earlier observations. Values are minus simple regret without noise; standard errors are over sets
of functions. In a last part the 29 landmine fields tune at once with learned `P_N`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.fts.fts import FTS, Adviser
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Task, Trials, floats
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Start, observations, prior_study
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.study import Study
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, Part
from studies.papers.fts import landmine

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
    """Return both parts; quick: 2 sets of functions, 6 iterations and 2 landmine runs of 4 fields."""
    common = {"num_iterations": 6 if quick else 50}
    fields = {"num_fields": 4 if quick else 29, **common}
    at: dict[str, Any] = {"at": (3, 5, 10, 20, 50), "first": 0}
    seeds, few = range(2 if quick else 12), range(30_000, 30_000 + (2 if quick else 5))
    return [
        Part("functions", run_function, PARTS, list(VARIANTS), seeds, common, "ts", drawn="related", **at),
        Part(
            "landmine", run_landmine, ["linear"], ["ts", "fts single", "fts learned"], few, fields, "ts",
            over="agents", **at,
        ),
    ]  # fmt: skip


EXPERIMENT = Experiment("FTS when half of the agents are unrelated, and what P_N learns", parts)


def run_function(part: str, variant: str, function: int, num_iterations: int) -> Arrays:
    """Run one variant on one set of functions.

    Returns
    -------
    related, unrelated : `(agents, iterations + 1)`, minus simple regret
    share of P_N : that of the related agents' learned preferences which goes to related agents
    """
    problem = make_problem("gp-samples", NUM_AGENTS, function, {**GP, "function_seed": function})
    algorithm, extra = VARIANTS[variant]
    options: dict[str, Any] = {"num_initial": NUM_INITIAL, **extra}
    held, who = None, tuple(range(NUM_AGENTS))
    if part == PARTS[0]:
        names = tuple(str(agent) for agent in TARGETS)
        before = prior_study(problem, "ts", PRIOR_ROUNDS, 70_000 + function, "inline")
        held, who = observations(before, problem, without=names), TARGETS
        if algorithm != "ts":
            options |= {"targets": names}
            options |= {} if extra.get("advice") == "random" else {"communication": "once"}
        if extra.get("advice") in {"portfolio", "random"}:
            options |= {"schedule": "first-5"}
    study = runs.run(
        problem, algorithm, options, num_iterations + 1, function, start=Start(observations=held)
    )
    regret = np.array([study.regret.where(agent=str(a))["simple"] for a in who], dtype=np.float64)
    values, related = -regret[:, NUM_INITIAL - 1 :], np.array(who) < NUM_RELATED
    found: Arrays = {"related": values[related], "unrelated": values[~related]}
    if variant == "fts learned" and part != PARTS[0]:
        matrix = preferences(problem, study, options, function, num_iterations)
        found["share of P_N"] = matrix[:NUM_RELATED, :NUM_RELATED].sum(axis=1).mean()
    return found


def run_landmine(scale: str, variant: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Let all fields tune at once; return their best values `(fields, iterations + 1)`."""
    study = landmine.tune(*VARIANTS[variant], scale, seed, num_iterations, num_fields)
    return {"best": landmine.curves_of(study)}


def preferences(
    problem: Problem, study: Study, options: Mapping[str, Any], seed: int, iteration: int
) -> Array:
    """Return every agent's `P_N`, `(N, N)`, after the last iteration.

    The server does not keep it, so the agents' messages are drawn again from their observations with the same
    options.
    """
    algorithm = FTS.from_options(options)
    count, space = problem.num_agents, problem.space
    names = tuple(str(agent) for agent in range(count))
    state = algorithm.init(Federation(space, names), generator(seed, "features"))
    assert isinstance(state, FTSState)
    assert state.features is not None
    arrays = {"frequencies": state.features.frequencies, "phases": state.features.phases}
    task = Task(Phase.TRAIN, 1, 0, 0, arrays, {"message": True})
    messages = {}
    for name, (points, values) in observations(study, problem).items():
        agent_state = AgentState(space, Trials.prior(points, np.asarray(values)))
        sent = algorithm.summarise(task, agent_state, partial(generator, seed, "message", name))
        messages[name] = floats(sent.arrays["weights"])
    known = FTSState(space, features=state.features, messages=messages)
    selector = Adviser(algorithm, known, generator(seed, "desk"))
    matrix = np.zeros((count, count))
    for agent in selector.senders:
        rows = np.delete(np.arange(len(selector.senders)), selector.rows[agent])
        weights: Array = selector.preferences(agent, rows, iteration)
        matrix[int(agent), [int(selector.senders[r]) for r in rows]] = weights / weights.sum()
    return matrix
