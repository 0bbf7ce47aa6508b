"""What several evaluations at once cost in value, and what they save in time.

    python -m studies.benchmarks.several_at_once --out runs/several-at-once --seeds 6

Five agents tune Hartmann-6, each with its own shift. After three random evaluations they make 24 more, four
in each exchange, `q` at once: with `q = 1` one after the other, with `q = 4` all before any value is known.
`fed-ei` has an exchange without an evaluation after the first one. Shown is the best value so far, of at most
3.32, as a mean over agents. Standard errors are over seeds, of the difference from `q = 1` in pairs.

The time is measured with an objective that sleeps 0.2 s, for one agent whose workers are running. It is wall
clock, because a sleep takes no CPU time. Every result is written at once, so a stopped run goes on where it
was.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.simulation import Agents
from fbo_flower.simulation.agents import own_objective
from fbo_flower.space import Float, SearchSpace
from studies.benchmarks.bench import both, options, resumed
from studies.jobs import Arrays, job, load, stack
from studies.papers.ei.problems import ShiftedFunction
from studies.report import table, write_results
from studies.runs import best_so_far, run

AT_ONCE = (1, 2, 4)
NUM_AGENTS, NUM_INITIAL, PER_ROUND, NUM_ROUNDS = 5, 3, 4, 7
FEDERATED = {"secure_sums": 0, "num_initial": NUM_INITIAL}
ALGORITHMS: dict[str, dict[str, Any]] = {"ei": {}, "fed-ei": FEDERATED, "ts": {}}
BUDGET = NUM_INITIAL + PER_ROUND * (NUM_ROUNDS - 1)
SHOWN = (7, 11, 15, 19, 23, 27)  # evaluations
FIRST_SEED = 900
SLEEP = 0.2


def sleeping(config: dict[str, Any], data: int) -> float:
    """Return a value after a sleep."""
    time.sleep(SLEEP)
    return -((float(config["x"]) - 0.3) ** 2) - (float(config["y"]) - 0.7) ** 2


def best_values(seed: int) -> Arrays:
    """Return the mean best value of the agents after each evaluation, by algorithm and `q`."""
    problem = ShiftedFunction(NUM_AGENTS, seed, "hartmann-6")  # one object: its workers serve all runs
    found = {}
    for algorithm, chosen in ALGORITHMS.items():
        rounds = NUM_ROUNDS + (algorithm == "fed-ei")
        for q in AT_ONCE:
            given = {**chosen, "trials_per_round": PER_ROUND}
            study = run(problem, algorithm, given, rounds, seed, agents=Agents(num_parallel=q))
            found[f"{algorithm} {q}"] = best_so_far(study, problem, BUDGET).mean(axis=0)
    return found


def seconds() -> Arrays:
    """Return the seconds of a study with an objective that sleeps, by algorithm and `q`."""
    space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
    problem = own_objective(sleeping, space, [0], 0, False, [])  # one object: its workers serve all runs
    found = {}
    for algorithm, chosen in ALGORITHMS.items():
        given = {**chosen, "trials_per_round": PER_ROUND}
        for q in AT_ONCE:
            run(problem, algorithm, given, 2, agents=Agents(num_parallel=q))  # starts the workers
            before = time.perf_counter()
            run(problem, algorithm, given, NUM_ROUNDS, agents=Agents(num_parallel=q))
            found[f"{algorithm} {q}"] = np.array(time.perf_counter() - before)
    return found


def report(directory: Path, seeds: range) -> None:
    """Write `results.md` and print it."""
    took, best, spent = load(directory, seconds), [], []
    for algorithm in ALGORITHMS:
        alone = stack(directory, f"{algorithm} 1", seeds, best_values)
        for q in AT_ONCE:
            values = stack(directory, f"{algorithm} {q}", seeds, best_values)
            at = [f"{values[:, n - 1].mean():.3f}" for n in SHOWN]
            best.append([f"`{algorithm}`", q, *at, "" if q == 1 else both(values[:, -1] - alone[:, -1])[0]])
            own, one = float(took[f"{algorithm} {q}"]), float(took[f"{algorithm} 1"])
            spent.append([f"`{algorithm}`", q, f"{own:.1f}", f"{one / own:.2f}"])
    head = ["algorithm", "q", *(f"{n} evaluations" for n in SHOWN), "difference at 27"]
    times = table(["algorithm", "q", f"seconds for {BUDGET} evaluations", "speed-up"], spent)
    print(write_results(directory, [table(head, best), times]).read_text(encoding="utf-8"))


def main() -> None:
    """Run what is missing and write `results.md`."""
    given = options(__doc__, out="runs/several-at-once", seeds=6)
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    work = [job(seconds), *(job(best_values, seed) for seed in seeds)]
    report(resumed(Path(given.out), {"benchmark": "several-at-once"}, work), seeds)


if __name__ == "__main__":
    main()
