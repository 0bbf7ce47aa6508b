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

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import Agents, simulate
from fbo_flower.simulation.own_objective import own_objective
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import atomic_file
from studies.papers.ei.problems import ShiftedFunction
from studies.runs import best_so_far

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


def best_values(seed: int) -> dict[str, list[float]]:
    """Return the mean best value of the agents after each evaluation, by algorithm and `q`."""
    problem = ShiftedFunction(NUM_AGENTS, seed, "hartmann-6")  # one object: its workers serve all runs
    found = {}
    for algorithm, options in ALGORITHMS.items():
        for q in AT_ONCE:
            study = simulate(
                problem,
                agents=Agents(num_parallel=q),
                algorithm=make_algorithm(algorithm, {**options, "trials_per_round": PER_ROUND}),
                num_rounds=NUM_ROUNDS + (algorithm == "fed-ei"),
                seed=seed,
                engine="inline",
            )
            found[f"{algorithm} {q}"] = best_so_far(study, problem, BUDGET).mean(axis=0).tolist()
    return found


def seconds() -> dict[str, float]:
    """Return the seconds of a study with an objective that sleeps, by algorithm and `q`."""
    space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
    problem = own_objective(sleeping, space, [0], 0, False, [])  # one object: its workers serve all runs
    found = {}
    for algorithm, options in ALGORITHMS.items():
        for q in AT_ONCE:
            given: dict[str, Any] = {
                "algorithm": make_algorithm(algorithm, {**options, "trials_per_round": PER_ROUND}),
                "agents": Agents(num_parallel=q), "engine": "inline",
            }  # fmt: skip
            simulate(problem, num_rounds=2, **given)  # starts the workers
            before = time.perf_counter()
            simulate(problem, num_rounds=NUM_ROUNDS, **given)
            found[f"{algorithm} {q}"] = time.perf_counter() - before
    return found


def kept(path: Path, compute: Any, *arguments: Any) -> Any:
    """Return the result in a file, which is computed if it is missing."""
    if not path.exists():
        with atomic_file(path) as file:
            file.write(json.dumps(compute(*arguments)).encode())
    return json.loads(path.read_text())


def table(results: list[dict[str, list[float]]]) -> list[str]:
    """Return the best values as rows of Markdown."""
    lines = [
        "| algorithm | q | " + " | ".join(f"{n} evaluations" for n in SHOWN) + " | difference at 27 |",
        "|---|---|" + "---|" * (len(SHOWN) + 1),
    ]
    columns = np.array(SHOWN) - 1
    for algorithm in ALGORITHMS:
        alone: Array = np.array([r[f"{algorithm} 1"] for r in results])[:, columns]
        for q in AT_ONCE:
            values = np.array([r[f"{algorithm} {q}"] for r in results])[:, columns]
            difference = (values - alone)[:, -1]
            error = difference.std(ddof=1) / np.sqrt(len(results)) if len(results) > 1 else float("nan")
            shown = " | ".join(f"{value:.3f}" for value in values.mean(axis=0))
            against = "" if q == 1 else f"{difference.mean():+.3f} ± {error:.3f}"
            lines.append(f"| `{algorithm}` | {q} | {shown} | {against} |")
    return lines


def main() -> None:
    """Run what is missing and write `results.md`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=6)
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    took = kept(out / "seconds.json", seconds)
    results = [
        kept(out / f"best-{seed}.json", best_values, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    ]
    lines = [
        *table(results),
        "",
        f"| algorithm | q | seconds for {BUDGET} evaluations | speed-up |",
        "|---|---|---|---|",
    ]
    for algorithm in ALGORITHMS:
        for q in AT_ONCE:
            own, one = took[f"{algorithm} {q}"], took[f"{algorithm} 1"]
            lines.append(f"| `{algorithm}` | {q} | {own:.1f} | {one / own:.2f} |")
    with atomic_file(out / "results.md") as file:
        file.write("\n".join([*lines, ""]).encode())
    print("\n".join(lines))


if __name__ == "__main__":
    main()
