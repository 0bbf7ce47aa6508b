"""Measure the CPU time of one agent's step of `ei` and `fed-ei`, by the number of observations it holds.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.ei_step [--before OTHER/CHECKOUT]

A step is all that an agent computes for one task: propose, learn, summarise. The objective, messages and the
server's work are not counted. Ten agents per problem run a study, so the histories are those of a real one.
An agent of `fed-ei` has four observations before its first step that looks for a point by itself.
With `--before` every cell alternates with the same cell of another checkout.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__)
PROBLEMS = ("Branin", "Hartmann-6", "mixed and conditional")
VARIANTS: dict[str, dict[str, Any]] = {"ei": {}, "fed-ei": {"secure_sums": 0}}
COUNTS = (4, 10, 20, 50)  # observations before a step
NUM_AGENTS = 10
WIDTH = 3  # steps averaged, of each agent, from each of these counts on


def cell(label: str, variant: str, most: int, profile: cProfile.Profile | None = None) -> dict[int, float]:
    """Return the mean CPU milliseconds of a step, by number of observations."""
    import numpy as np

    from fbo_flower import algorithms
    from fbo_flower.algorithms.records import AgentState, Federation, History, Outcome, Phase, Query
    from fbo_flower.algorithms.run_task import run_task
    from fbo_flower.numerics.seeding import generator
    from fbo_flower.numerics.threads import single_thread
    from studies.papers.ei.problems import PROBLEMS as MAKERS

    kind: Any = {"ei": algorithms.ExpectedImprovement, "fed-ei": algorithms.FedEI}[variant]
    algorithm, problem, outside = kind(**VARIANTS[variant]), MAKERS[label](NUM_AGENTS, 0), 0.0
    agents = tuple(str(agent) for agent in range(problem.num_agents))
    spent: dict[int, list[float]] = {count: [] for count in COUNTS if count <= most}

    def evaluate(agent: str, query: Query, trial: int) -> Outcome:
        nonlocal outside
        begin = time.process_time()
        points = problem.space.snap(query.points)
        values = [problem.score(problem.space.decode(point), int(agent)) for point in points]
        outside += time.process_time() - begin
        return Outcome(points, np.array(values), np.arange(trial, trial + len(points)))

    with single_thread():
        state = algorithm.init(Federation(problem.space, agents), generator(0, "init"))
        held = {a: AgentState(problem.space, History.empty(problem.space.dimension)) for a in agents}
        for server_round in range(1, most + WIDTH + 1):  # fed-ei has a round without a trial
            state, tasks = algorithm.ask(state, Phase.TRAIN, server_round, agents, generator(0, server_round))
            reports = {}
            for agent, task in tasks.items():
                count, outside = held[agent].next_trial, 0.0
                if profile and count >= COUNTS[0]:
                    profile.enable()
                begin = time.process_time()
                draws = partial(generator, 0, agent)
                result = run_task(algorithm, task, held[agent], partial(evaluate, agent), draws)
                elapsed = time.process_time() - begin - outside
                if profile:
                    profile.disable()
                for wanted, found in spent.items():
                    if wanted <= count < wanted + WIDTH:
                        found.append(elapsed)
                held[agent], reports[agent] = result.agent_state, result.report
            state = algorithm.tell(state, Phase.TRAIN, reports)
    return {count: 1000 * float(np.mean(found)) for count, found in spent.items()}


def measure(checkout: Path, *arguments: object) -> dict[str, float]:
    """Return `cell` of a checkout, measured in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{checkout}{os.pathsep}{HERE.parents[2]}",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, str(HERE), "--cell", json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print one line per problem, algorithm and number of observations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, default=None, help="another checkout")
    parser.add_argument("--most", type=int, default=50, help="largest number of observations")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each cell; the fastest counts")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(cell(*json.loads(given.cell))))
        return
    if given.profile:
        for label in given.problems:
            for variant in given.only:
                profile = cProfile.Profile()
                print(label, variant, cell(label, variant, given.most, profile))
                pstats.Stats(profile).sort_stats("tottime").print_stats(22)
        return
    print("| problem | algorithm | observations | CPU ms | before | ratio |\n|---|---|---|---|---|---|")
    for label in given.problems:
        for variant in given.only:
            runs: dict[str, list[dict[str, float]]] = {"now": [], "before": []}
            for _ in range(given.repeats):
                runs["now"].append(measure(HERE.parents[2], label, variant, given.most))
                if given.before:
                    runs["before"].append(measure(given.before, label, variant, given.most))
            for count in runs["now"][0]:
                now, before = (min((r[count] for r in runs[w]), default=0.0) for w in ("now", "before"))
                beside = f"{before:.2f} | {before / now:.2f}" if given.before else "- | -"
                print(f"| {label} | {variant} | {count} | {now:.2f} | {beside} |", flush=True)


if __name__ == "__main__":
    main()
