"""Measure what messages of unrelated agents cost, and whether `P_N` learns to ignore them.

Twelve agents have smooth functions on the square: six are close to one function, six are independent. Either
two agents of each half tune while the others hold 30 observations and send one message, or all agents tune at
once without earlier observations. In a last part the 29 landmine fields tune at once with learned `P_N`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.fts.fts import FTS, Adviser
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.records import AgentState, Federation, History, Phase, Task, floats
from fbo_flower.algorithms.requests import alone
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Start, observations, prior_study, simulate
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.study import Study, incumbents
from studies.jobs import Arrays, Directory, Job, OnJob, open_directory, run_jobs
from studies.papers.fts import related_report
from studies.papers.fts.related_report import NUM_AGENTS, TARGETS, job_name

NUM_INITIAL = 3
PRIOR_ROUNDS = 28  # 30 observations
GP = {"dimension": 2, "lengthscale": 0.2, "difference": 0.3, "offset": "smooth", "unrelated_fraction": 6 / 11}
SCHEDULE = {"schedule": "first-5"}
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
ON_LANDMINE = ("ts", "fts single", "fts learned")


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    The files are rewritten after every set of functions, so a stopped run leaves those of its finished sets.

    Parameters
    ----------
    quick : True: 2 sets of functions, 6 iterations and 2 landmine runs; False: 12, 50 and 5
    """
    num_functions, num_landmine = (2, 2) if quick else (12, 5)
    num_iterations, num_fields = (6, 4) if quick else (50, 29)
    size = {"num_iterations": num_iterations, "num_fields": num_fields}
    path = open_directory(directory, {"experiment": "fts-related", **size})
    files: list[Path] = []
    for function in range(num_functions):
        work = jobs(function, num_iterations, num_fields, function < num_landmine)
        run_jobs(work, path, num_workers, partial(on_job, f"functions {function}"))
        done = function + 1, min(function + 1, num_landmine)
        files = related_report.report(path, *done, num_iterations, tuple(VARIANTS), ON_LANDMINE)
    return files


def jobs(function: int, num_iterations: int, num_fields: int, with_landmine: bool) -> list[Job]:
    """Return the jobs of one set of functions, and of the landmine run with the same number."""
    functions = [
        Job(
            job_name(part, variant, function),
            run_function,
            {"part": part, "variant": variant, "function": function, "num_iterations": num_iterations},
        )
        for part in ("prior", "nothing")
        for variant in VARIANTS
    ]
    landmine = [
        Job(
            job_name("landmine", variant, function),
            run_landmine,
            {
                "variant": variant,
                "seed": function,
                "num_iterations": num_iterations,
                "num_fields": num_fields,
            },
        )
        for variant in ON_LANDMINE
    ]
    return functions + landmine if with_landmine else functions


# -- jobs --------------------------------------------------------------------------------------


def run_function(part: str, variant: str, function: int, num_iterations: int) -> Arrays:
    """Run one variant on one set of functions; return simple regret `(agents, iterations + 1)`."""
    problem = make_problem("gp-samples", NUM_AGENTS, function, {**GP, "function_seed": function})
    algorithm, extra = VARIANTS[variant]
    options: dict[str, Any] = {"num_initial": NUM_INITIAL, **extra}
    held, who = None, tuple(range(NUM_AGENTS))
    if part == "prior":
        names = tuple(str(agent) for agent in TARGETS)
        before = prior_study(problem, "ts", PRIOR_ROUNDS, 70_000 + function, "inline")
        held, who = observations(before, problem, without=names), TARGETS
        if algorithm != "ts":
            options |= {"targets": names}
            options |= {} if extra.get("advice") == "random" else {"communication": "once"}
        if extra.get("advice") in {"portfolio", "random"}:
            options |= SCHEDULE
    study = _simulate(problem, algorithm, options, function, num_iterations, held)
    regret = np.array([study.regret.where(agent=str(a))["simple"] for a in who], dtype=np.float64)
    found: Arrays = {"regret": regret[:, NUM_INITIAL - 1 :]}
    if variant == "fts learned" and part == "nothing":
        found |= preferences(problem, study, options, function, num_iterations)
    return found


def run_landmine(variant: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Let all fields tune at once; return their best values `(fields, iterations + 1)`."""
    problem = make_problem("landmine-svm", num_fields, 0, {})
    algorithm, extra = VARIANTS[variant]
    options = {"num_initial": NUM_INITIAL, **extra}
    study = _simulate(problem, algorithm, options, 30_000 + seed, num_iterations, None)
    _, best = incumbents(study.trials)
    found: Arrays = {"curves": np.asarray(best[:, NUM_INITIAL - 1 :], dtype=np.float64)}
    if variant == "fts learned":
        found |= preferences(problem, study, options, seed, num_iterations)
    return found


def preferences(
    problem: Problem, study: Study, options: Mapping[str, Any], seed: int, iteration: int
) -> Arrays:
    """Return every agent's `P_N`, `(N, N)`, after the last iteration.

    The server does not keep it, so the agents' messages are drawn again from their observations with the same
    options.
    """
    algorithm = FTS(**FTS.known_options(options))
    count, space = problem.num_agents, problem.space
    names = tuple(str(agent) for agent in range(count))
    state = algorithm.init(Federation(space, names), generator(seed, "features"))
    assert isinstance(state, FTSState)
    assert state.features is not None
    arrays = {"frequencies": state.features.frequencies, "phases": state.features.phases}
    task = Task(Phase.TRAIN, 1, 0, 0, arrays, {"message": True})
    messages = {}
    for name, (points, values) in observations(study, problem).items():
        agent_state = AgentState(space, History.prior(points, values))
        sent = alone(algorithm.summarise(task, agent_state, partial(generator, seed, "message", name)))
        messages[name] = floats(sent.arrays["weights"])
    known = FTSState(space, features=state.features, messages=messages)
    selector = Adviser(algorithm, known, generator(seed, "desk"))
    matrix = np.zeros((count, count))
    for agent in selector.senders:
        rows = np.delete(np.arange(len(selector.senders)), selector.rows[agent])
        weights: Array = selector.preferences(agent, rows, iteration)
        matrix[int(agent), [int(selector.senders[r]) for r in rows]] = weights / weights.sum()
    return {"preferences": matrix}


def _simulate(
    problem: Problem,
    algorithm: str,
    options: Mapping[str, Any],
    seed: int,
    num_iterations: int,
    held: Mapping[str, tuple[Array, Array]] | None,
) -> Study:
    rounds, prior = num_iterations + 1, Start(observations=held)
    return simulate(
        problem,
        algorithm=make_algorithm(algorithm, options),
        num_rounds=rounds,
        seed=seed,
        engine="inline",
        start=prior,
    )
