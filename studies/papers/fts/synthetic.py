"""Run FTS on functions drawn from a Gaussian process, the paper's synthetic setting [Dai2020, App. D.1].

Agent 0 is the target. The other 49 agents hold `t_n` observations from Thompson sampling alone, of functions
that differ from the target's by `d_n` at every point. There is one random starting point, and several
functions with several starts each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Start
from fbo_flower.simulation.problems import make_problem
from fbo_flower.study import Study
from studies import experiment as runs
from studies.experiment import Arrays, Experiment, OnJob, Part, job, load, run_jobs

NUM_AGENTS = 50
LENGTHSCALE = 0.03
NUM_OBSERVATIONS = (40, 100)  # t_n
NUM_FEATURES = (30, 50, 100)  # M
DIFFERENCES = {f"others differ by {d:g}": d for d in (0.02, 1.2)}  # d_n
SCHEDULE = "1-1/sqrt(t)"
FASTER = ("1-1/t", "1-1/t^2")


def variants() -> dict[str, dict[str, Any]]:
    """Return label -> options of FTS, with `t_n` as `observations`; those of `ts` are empty."""
    found: dict[str, dict[str, Any]] = {"ts": {}}
    for observations in NUM_OBSERVATIONS:
        for num_features in NUM_FEATURES:
            found[f"fts t={observations} M={num_features}"] = {
                "observations": observations,
                "num_features": num_features,
                "schedule": SCHEDULE,
            }
    best = {"observations": 100, "num_features": 100}
    faster = {f"fts t=100 M=100 {p}": {**best, "schedule": p} for p in FASTER}
    return (found | faster) | {
        "fts t=100 portfolio": {**best, "advice": "portfolio", "schedule": "first-5"},
        "control t=100": {**best, "advice": "random", "schedule": SCHEDULE},
    }


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: 1 function, 1 difference, 1 start, 10 iterations."""
    size = {"num_starts": 1 if quick else 5, "num_iterations": 10 if quick else 50}
    problems, functions = list(DIFFERENCES)[: 1 if quick else 2], range(1 if quick else 5)
    return [
        Part(
            "simple regret", run_function, problems, list(variants()), functions,
            {"directory": str(directory), **size}, "ts", joint=True, at=(0, 3, 5, 10, 20, 30, 50), first=0,
            drawn="regret", how="log",
        )
    ]  # fmt: skip


def prepare(directory: Path, parts: Sequence[Part], num_workers: int, on_job: OnJob | None) -> None:
    """Let the other agents tune alone, whose observations the runs read."""
    work = [job(observe, title, function) for title in parts[0].problems for function in parts[0].seeds]
    run_jobs(work, directory, num_workers, on_job, "prior observations")


EXPERIMENT = Experiment("FTS on functions drawn from a Gaussian process", parts, prepare)


def observe(title: str, function: int) -> Arrays:
    """Let every agent tune alone; return its points and values in order."""
    difference = DIFFERENCES[title]
    study = _simulate(
        "ts", {"num_initial": 1}, difference, function, 50_000 + function, max(NUM_OBSERVATIONS)
    )
    return runs.observed(study, make_problem("gp-samples", NUM_AGENTS, 0, {"function_seed": function}))


def run_function(title: str, function: int, num_starts: int, num_iterations: int, directory: str) -> Arrays:
    """Run every variant on one function; return each one's simple regret `(starts, iterations + 1)`."""
    difference = DIFFERENCES[title]
    prior = load(Path(directory), observe, title, function)
    rows: dict[str, list[Array]] = {label: [] for label in variants()}
    num_rounds = num_iterations + 1
    for start in range(num_starts):
        for label, variant in variants().items():
            options = {"num_initial": 1, **variant}
            held = runs.held(prior, range(1, NUM_AGENTS), options.pop("observations", 0))
            if label != "ts":
                options |= {"communication": "once", "lengthscale": LENGTHSCALE, "targets": ("0",)}
            algorithm = "ts" if label == "ts" else "fts"
            # a different seed per function: with five seeds a schedule might never use a message
            seed = 1000 * function + start
            study = _simulate(algorithm, options, difference, function, seed, num_rounds, held)
            mine = study.regret.where(agent="0")
            rows[label].append(np.asarray(mine["simple"], dtype=np.float64))
    found: Arrays = {}
    for label, regret in rows.items():
        found |= {f"{label}/regret": np.array(regret), f"{label}/summed": np.sum(regret, axis=1)}
    return found


def _simulate(
    algorithm: str,
    options: Mapping[str, Any],
    difference: float,
    function: int,
    seed: int,
    num_rounds: int,
    prior: Mapping[str, tuple[Array, Array]] | None = None,
) -> Study:
    alone = algorithm == "ts" and prior is not None  # the target tunes alone
    problem_options = {"difference": difference, "function_seed": function}
    problem = make_problem("gp-samples", 1 if alone else NUM_AGENTS, seed, problem_options)
    start = Start(observations=None if alone else prior)
    return runs.run(problem, algorithm, options, num_rounds, seed, start=start)
