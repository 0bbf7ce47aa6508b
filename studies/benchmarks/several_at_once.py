"""What `q` evaluations at once cost in value and save in time.

Five agents make four evaluations in each exchange, `q` at once. Time is wall clock, with an objective that
sleeps.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.aims import NUMBER
from fbo_flower.simulation import Agents
from fbo_flower.simulation.agents import own_objective
from fbo_flower.space import Float, SearchSpace
from studies.experiment import Arrays, Experiment, Part, best_so_far, run
from studies.papers.ei.problems import ShiftedFunction

NUM_INITIAL, PER_ROUND, NUM_ROUNDS, SLEEP = 3, 4, 7, 0.2
OPTIONS = {"trials_per_round": PER_ROUND}


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return both parts; quick: `ei`, one seed."""
    names, most = (["ei"], (1, 2)) if quick else (["ei", "ts"], (1, 2, 4))
    rows = [f"{name}; {q}" for name in names for q in most]
    pairs = [(f"{name}; {q}", f"{name}; 1") for name in names for q in most[1:]]
    seeds, rounds = range(900, 901 if quick else 906), {"rounds": 3 if quick else NUM_ROUNDS}
    shown: dict[str, Any] = {"at": (7, 11, 15, 19, 23, 27), "drawn": "best", "how": "mean"}
    return [
        Part("several at once", at_once, ["Hartmann-6"], rows, seeds, rounds, pairs=pairs, **shown),
        Part("seconds", slept, ["an objective that sleeps"], rows, range(1), rounds, pairs=pairs, fixed=True),
    ]


EXPERIMENT = Experiment("Several evaluations at once: value and time", parts)


def at_once(label: str, row: str, seed: int, rounds: int) -> Arrays:
    """Return the best scores so far, `(5, evaluations)`."""
    algorithm, q = row.split("; ")
    problem = ShiftedFunction(5, seed, "hartmann-6")
    study = run(problem, algorithm, OPTIONS, rounds, seed, agents=Agents(num_parallel=int(q)))
    return {"best": best_so_far(study, problem, NUM_INITIAL + PER_ROUND * (rounds - 1))}


def sleeping(config: dict[str, Any], data: int) -> float:
    """Return a value after a sleep."""
    time.sleep(SLEEP)
    return -((float(config["x"]) - 0.3) ** 2) - (float(config["y"]) - 0.7) ** 2


def slept(label: str, row: str, seed: int, rounds: int) -> Arrays:
    """Return the seconds of a study of one agent whose workers are running."""
    algorithm, q = row.split("; ")
    space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
    problem = own_objective(sleeping, space, [0], 0, NUMBER, [])  # one object: its workers serve both runs
    run(problem, algorithm, OPTIONS, 2, agents=Agents(num_parallel=int(q)))  # starts the workers
    before = time.perf_counter()
    run(problem, algorithm, OPTIONS, rounds, agents=Agents(num_parallel=int(q)))
    return {"seconds": np.array(time.perf_counter() - before)}
