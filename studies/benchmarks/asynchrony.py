"""Compare federations and Optuna on a simulated clock with stragglers.

Twenty agents have log-normal durations with sigma 1, and agent 0 is a hundred times slower. Every agent of
`ei` tunes alone, without waiting, for 50 evaluations; the median agent's best value then is the level. The
first table has the simulated seconds until the median agent of each run reaches this level. The second one
tests, agent by agent over the seeds, whether it is behind its own `ei` after the same time. The runs of
Optuna need the extra `bench` and are left out without it::

    python -m studies.benchmarks.asynchrony OUT.npz --seeds 12

The file keeps finished runs, so that a run that was stopped continues.
"""

from __future__ import annotations

import argparse
import heapq
import importlib.util
import itertools
import logging
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Async, Clock, Duration, Sync, log_normal, simulate, slower
from fbo_flower.study import Study
from studies.papers.ei.problems import ShiftedFunction
from studies.papers.optuna_peers import suggested
from studies.runs import score

AGENTS, BUDGET, SLOW, FACTOR = 20, 50, "0", 100.0
AT = BUDGET * np.exp(0.5)  # seconds in which an agent makes 50 evaluations on average
EXCHANGE = 3.0  # seconds of an exchange, as in a deployment
GRID = np.geomspace(0.5, 20_000.0, 400)  # simulated seconds


@dataclass(frozen=True)
class Setting:
    """A run: algorithm, options, mode, quorum, number of rounds, and seconds of an exchange."""

    algorithm: str = "fed-ei"
    mode: str = "async"
    num_rounds: int = BUDGET
    quorum: float = 1.0
    exchange_seconds: float = 0.0
    options: dict[str, Any] = field(default_factory=lambda: {"secure_sums": 0})


FIVE = {"secure_sums": 0, "trials_per_round": 5}
RUNS = {
    "ei alone": Setting("ei", num_rounds=BUDGET + 20, options={}),
    "fed-ei sync": Setting(mode="sync"),
    "fed-ei quorum .8": Setting(mode="sync", quorum=0.8),
    "fed-ei async": Setting(),
    "fed-ei async k=5": Setting(num_rounds=14, options=FIVE),
    "fed-ei quorum .8, 3 s": Setting(mode="sync", quorum=0.8, exchange_seconds=EXCHANGE),
    "fed-ei async, 3 s": Setting(exchange_seconds=EXCHANGE),
    "fed-ei async k=5, 3 s": Setting(num_rounds=14, options=FIVE, exchange_seconds=EXCHANGE),
}
REFERENCES = ("ei alone", "fed-ei sync")
NUM_FIRST = 5  # runs that are made for all seeds before the others
PEERS = {"TPE alone": False, "TPE one storage": True}  # label -> whether all agents' data are pooled


def study_curves(study: Study, problem: ShiftedFunction) -> np.ndarray:
    """Return every agent's best value so far at the times of `GRID`, `(agents, 400)`."""
    found = np.full((problem.num_agents, len(GRID)), -np.inf)
    for agent in range(problem.num_agents):
        trials, times = study.trials.where(agent=str(agent)), study.times.where(agent=str(agent))
        ends = dict(zip(times["trial"].tolist(), times["ended"].tolist(), strict=True))
        for config, trial in zip(trials["config"], trials["trial"].tolist(), strict=True):
            value = score(problem, config, agent)
            assert value is not None
            reached = ends[trial] <= GRID
            found[agent, reached] = np.maximum(found[agent, reached], value)
    return found


def optuna_curves(problem: ShiftedFunction, duration: Duration, seed: int, pooled: bool) -> np.ndarray:
    """Return the same for Optuna's TPE on the same clock, with one study or with one for each agent.

    Optuna gets the values without the agents' scales and offsets, which makes pooling easier for it.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # that constant_liar is experimental
    studies = [
        optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed * 100 + number, constant_liar=pooled),
        )
        for number in range(1 if pooled else AGENTS)
    ]
    found = np.full((AGENTS, len(GRID)), -np.inf)
    done = [0] * AGENTS
    under_way: list[tuple[float, int, Any, float]] = []

    def begin(agent: int, now: float) -> None:
        trial = studies[0 if pooled else agent].ask()
        value = problem.score(suggested(problem.space, trial), agent)
        name = str(agent)
        seconds = duration(name, done[agent], generator(seed, "duration", name, done[agent]))
        heapq.heappush(under_way, (now + seconds, agent, trial, value))

    for agent in range(AGENTS):
        begin(agent, 0.0)
    while sum(done) < (BUDGET + 20) * AGENTS:
        now, agent, trial, value = heapq.heappop(under_way)
        studies[0 if pooled else agent].tell(trial, value)
        found[agent, now <= GRID] = np.maximum(found[agent, now <= GRID], value)
        done[agent] += 1
        begin(agent, now)
    return found


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--function", default="hartmann-6")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    kept = dict(np.load(arguments.file)) if arguments.file.exists() else {}
    peers = PEERS if importlib.util.find_spec("optuna") else {}
    duration = slower(log_normal(1.0, 1.0), {SLOW: FACTOR})
    labels = [*RUNS, *peers]
    for group in (labels[:NUM_FIRST], labels[NUM_FIRST:]):
        for seed, label in itertools.product(range(arguments.seeds), group):
            key, started = f"{label}|{seed}", time.process_time()
            if key in kept:
                continue
            problem = ShiftedFunction(AGENTS, seed, arguments.function)
            if label in PEERS:
                kept[key] = optuna_curves(problem, duration, seed, PEERS[label])
            else:
                s = RUNS[label]
                clock = Clock(duration, s.exchange_seconds)
                study = simulate(
                    problem, algorithm=make_algorithm(s.algorithm, s.options), num_rounds=s.num_rounds,
                    seed=seed, engine="inline",
                    rounds=Async(clock=clock) if s.mode == "async" else Sync(1.0, s.quorum, clock),
                )  # fmt: skip
                kept[key] = study_curves(study, problem)
            np.savez(arguments.file, **kept)
            print(seed, label, f"{time.process_time() - started:.1f} s CPU", flush=True)
    report(kept, arguments.seeds)


def report(kept: dict[str, np.ndarray], num_seeds: int) -> None:
    """Print the tables."""
    seeds = {
        label: [s for s in range(num_seeds) if all(f"{a}|{s}" in kept for a in (label, *REFERENCES))]
        for label in [*RUNS, *PEERS]
    }
    fast, at = np.arange(AGENTS) != int(SLOW), int(np.searchsorted(GRID, AT))
    print("| | median seconds to the level | sync / this | seeds | of them reach it |")
    print("|---|---:|---:|---:|---:|")
    for label, mine in seeds.items():
        times = np.array([[seconds(kept, run, s, fast, at) for run in (REFERENCES[1], label)] for s in mine])
        if len(mine) < 2:
            continue
        both = times[np.isfinite(times).all(axis=1)]
        ratio = both[:, 0] / both[:, 1]
        error = ratio.std(ddof=1) / np.sqrt(len(ratio))
        reach = int(np.isfinite(times[:, 1]).sum())
        print(
            f"| {label} | {np.median(times[:, 1]):.1f} | {ratio.mean():.1f} ± {error:.1f} | {len(mine)} "
            f"| {reach} |"
        )
    print(f"\nAfter {GRID[at]:.0f} s:\n")
    print("| | mean gain over own `ei` | agents behind by > 2 s.e. | ahead | Holm p of the worst |")
    print("|---|---:|---:|---:|---:|")
    for label, mine in seeds.items():
        if label == REFERENCES[0] or len(mine) < 2:
            continue
        alone = np.array([kept[f"{REFERENCES[0]}|{s}"][fast, at] for s in mine])
        gains = np.array([kept[f"{label}|{s}"][fast, at] for s in mine]) - alone
        if not np.isfinite(gains).all():
            print(f"| {label} | some agents have no evaluation yet | | | |")
            continue
        mean, error = gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(mine))
        per_seed = gains.mean(axis=1)
        whole = per_seed.std(ddof=1) / np.sqrt(len(mine))
        p = stats.t.cdf(mean / error, len(mine) - 1)  # small: this agent is behind
        holm = min(1.0, float(p.min() * len(p)))
        behind, ahead = int((mean < -2 * error).sum()), int((mean > 2 * error).sum())
        print(f"| {label} | {per_seed.mean():+.3f} ± {whole:.3f} | {behind} | {ahead} | {holm:.2f} |")


def seconds(kept: dict[str, np.ndarray], label: str, seed: int, fast: np.ndarray, at: int) -> float:
    """Return when the median fast agent reaches the level of the median one alone; infinite if never."""
    level = float(np.median(kept[f"{REFERENCES[0]}|{seed}"][fast, at]))
    reached = np.median(kept[f"{label}|{seed}"][fast], axis=0) >= level
    return float(GRID[np.argmax(reached)]) if reached.any() else np.inf


if __name__ == "__main__":
    main()
