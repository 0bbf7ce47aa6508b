"""Several outputs: does sharing pay beside the best local optimisers, and beside copying?

A row of the table is an optimiser. All tune the same problems of `studies.problems.outputs` and begin with
three random points of each agent, the same for all but `fed-ei`, which begins with two.

With one objective, an agent's score is the best value that holds its limits. As long as it has none, its
score is the problem's `worst`, which most configurations that hold the limits reach. With several objectives,
it is the hypervolume of the agent's front from the fixed reference. Differences from `ei` are divided by the
deviation of `ei`'s scores over agents and seeds after 10 evaluations; standard errors are over seeds.
GPSampler, NSGA-II and BoTorch may tune for the first agents only, which are compared with themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Agents, simulate
from studies.experiment import Arrays, Experiment, Part
from studies.papers import local_peers
from studies.problems.outputs import PROBLEMS, Problem, Site

TOGETHER = {"fed-ei": {"secure_sums": 0}, "ei": {}, "share-best": {}, "share-random": {}, "random": {}}
ALONE = {"GPSampler": (8, 20), "NSGA-II": (8, 40), "qLogNEHVI": (2, 10)}  # agents and evaluations: a step
# of GPSampler takes a fifth of a second, one of BoTorch a second


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the comparison; quick: Branin, without the comparators of other libraries."""
    peers = [row for row in ALONE if local_peers.is_installed(row)]
    return [
        Part(
            "outputs",
            scores,
            problems=["Branin"] if quick else list(PROBLEMS),
            rows=[*TOGETHER, *(() if quick else peers)],
            seeds=range(500, 502 if quick else 512),
            common={"budget": 10 if quick else 40},
            baseline="ei",
            champion="fed-ei",
            at=(5, 10, 20, 40),
            scaled_at=10,
            drawn="score",
        )
    ]


EXPERIMENT = Experiment(
    "Several objectives and limits: fed-ei, copying, and the best local optimisers", parts
)


def scores(label: str, row: str, seed: int, budget: int) -> Arrays:
    """Return the scores so far of each agent, `(agents, budget)`."""
    problem = PROBLEMS[label]
    sites = problem.sites(seed)
    if row in TOGETHER:
        outputs = outputs_of(problem, sites, row, seed, budget)
    else:
        agents, most = ALONE[row]
        outputs = [alone(label, name, row, seed, min(budget, most)) for name in list(sites)[:agents]]
    pairs = zip(sites.values(), outputs, strict=False)
    return {"score": np.array([score(problem, site, found) for site, found in pairs])}


def outputs_of(problem: Problem, sites: Mapping[str, Site], row: str, seed: int, budget: int) -> list[Array]:
    """Return the outputs of each agent's trials, `(budget, O)`, larger is better."""
    study = simulate(
        problem.function, problem.space, Agents(sites, limits={name: s.limits for name, s in sites.items()}),
        make_algorithm(row, TOGETHER[row]), budget, seed=seed, engine="inline", **problem.goals,
    )  # fmt: skip
    found = []
    for name, site in sites.items():
        aims, trials = problem.aims(site), study.trials.where(agent=name)
        rows = sorted(trials, key=lambda trial: trial["trial"])[:budget]
        found.append(np.array([[trial["outputs"][n] for n in aims.names] for trial in rows]) * aims.signs)
    return found


@lru_cache(maxsize=2)
def starting_points(label: str, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Return the configurations of each agent's random points under `ei`."""
    problem = PROBLEMS[label]
    study = simulate(
        problem.function, problem.space, problem.sites(seed), "ei", 1,
        seed=seed, engine="inline", **problem.goals,
    )  # fmt: skip
    return {name: list(study.trials.where(agent=name)["config"]) for name in problem.sites(seed)}


def alone(label: str, name: str, row: str, seed: int, budget: int) -> Array:
    """Return the outputs `(budget, O)` of an agent that tunes with a comparator, from `ei`'s points."""
    problem = PROBLEMS[label]
    site = problem.sites(seed)[name]
    aims, starts = problem.aims(site), starting_points(label, seed)[name]

    def evaluate(config: dict[str, Any]) -> Array:
        found = problem.function(config, site)
        return np.array([found[name] for name in aims.names]) * aims.signs

    case = local_peers.Case(problem.space, aims, evaluate, starts, budget, seed)
    if row == "qLogNEHVI":
        return local_peers.botorch_outputs(case)
    return local_peers.optuna_outputs(row, case)


def score(problem: Problem, site: Site, outputs: Array) -> Array:
    """Return an agent's scores `(n,)` after each of its trials with outputs `(n, O)`."""
    aims = problem.aims(site)
    holds = aims.feasible(outputs)
    objectives = len(aims.objectives)
    if objectives == 1:
        values = np.where(holds, outputs[:, 0], -np.inf)
        best = np.maximum(np.maximum.accumulate(values), problem.worst * aims.signs[0])
        return np.asarray(best, dtype=np.float64)
    return np.array([
        hypervolume(outputs[: n + 1][holds[: n + 1], :objectives], aims.start) for n in range(len(outputs))
    ])  # fmt: skip
