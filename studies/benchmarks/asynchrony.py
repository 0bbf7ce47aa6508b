"""Compare federations and Optuna on a simulated clock with stragglers.

Twenty agents have log-normal durations with sigma 1, and agent 0 is a hundred times slower. Every agent of
`ei` tunes alone, without waiting, for 50 evaluations; the median agent's best value then is the level. The
first table has the simulated seconds until the median agent of each run reaches this level. The second one
tests, agent by agent over the seeds, whether it is behind its own `ei` after the same time. The runs of
Optuna need the extra `bench` and are left out without it::

    python -m studies.benchmarks.asynchrony OUT --seeds 12

The directory keeps finished runs, so that a run that was stopped continues.
"""

from __future__ import annotations

import heapq
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Async, Clock, Duration, Sync, log_normal, slower
from fbo_flower.study import Study
from studies.benchmarks.bench import both, options, resumed, say
from studies.jobs import Arrays, has, job, load
from studies.papers.ei.problems import ShiftedFunction
from studies.papers.optuna_peers import suggested
from studies.report import head, mean_and_error
from studies.runs import run, score

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


DURATION = slower(log_normal(1.0, 1.0), {SLOW: FACTOR})


def best_by_time(study: Study, agents: int, grid: Array, value_of: Callable[[int, Any, float], Any]) -> Array:
    """Return every agent's best value so far at simulated times, `(agents, len(grid))`.

    Parameters
    ----------
    value_of : from agent, configuration and observed value to the value that counts
    """
    found = np.full((agents, len(grid)), -np.inf)
    for agent in range(agents):
        trials, times = study.trials.where(agent=str(agent)), study.times.where(agent=str(agent))
        ends = dict(zip(times["trial"].tolist(), times["ended"].tolist(), strict=True))
        rows = zip(trials["trial"].tolist(), trials["config"], trials["value"].tolist(), strict=True)
        for trial, config, value in rows:
            reached = ends[trial] <= grid
            found[agent, reached] = np.maximum(found[agent, reached], value_of(agent, config, value))
    return found


def optuna_curves(problem: ShiftedFunction, duration: Duration, seed: int, pooled: bool) -> Array:
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


def curves(label: str, seed: int, function: str) -> Arrays:
    """Return every agent's best value so far at the times of `GRID`, `best (agents, 400)`."""
    problem = ShiftedFunction(AGENTS, seed, function)
    if label in PEERS:
        return {"best": optuna_curves(problem, DURATION, seed, PEERS[label])}
    s = RUNS[label]
    clock = Clock(DURATION, s.exchange_seconds)
    how = Async(clock=clock) if s.mode == "async" else Sync(1.0, s.quorum, clock)
    study = run(problem, s.algorithm, s.options, s.num_rounds, seed, rounds=how)
    return {"best": best_by_time(study, AGENTS, GRID, lambda a, config, _: score(problem, config, a))}


def main() -> None:
    """Run what is missing and print the tables."""
    given = options(__doc__, "out", seeds=12, function="hartmann-6")
    labels = [*RUNS, *(PEERS if importlib.util.find_spec("optuna") else ())]
    work = [
        job(curves, label, seed, function=given.function)
        for group in (labels[:NUM_FIRST], labels[NUM_FIRST:])
        for seed in range(given.seeds)
        for label in group
    ]
    report(resumed(given.out, {"benchmark": "asynchrony", "function": given.function}, work), given.seeds)


def report(directory: Path, num_seeds: int) -> None:
    """Print the tables."""
    kept = {}
    for label in (*RUNS, *PEERS):
        for s in range(num_seeds):
            if all(has(directory, curves, a, s) for a in (label, *REFERENCES)):
                kept[label, s] = load(directory, curves, label, s)["best"]
    seeds = {label: [s for s in range(num_seeds) if (label, s) in kept] for label in (*RUNS, *PEERS)}
    seeds = {label: mine for label, mine in seeds.items() if len(mine) > 1}
    fast, at = np.arange(AGENTS) != int(SLOW), int(np.searchsorted(GRID, AT))
    print(head(["", "median seconds to the level", "sync / this", "seeds", "of them reach it"]))
    for label, mine in seeds.items():
        times = np.array([[seconds(kept, a, s, fast, at) for a in (REFERENCES[1], label)] for s in mine])
        finite = times[np.isfinite(times).all(axis=1)]
        (ratio,) = both(finite[:, 0] / finite[:, 1], 1, "")
        reach = int(np.isfinite(times[:, 1]).sum())
        say(label, f"{np.median(times[:, 1]):.1f}", ratio, len(mine), reach)
    print(f"\nAfter {GRID[at]:.0f} s:\n")
    print(head(["", "mean gain over own `ei`", "agents behind by > 2 s.e.", "ahead", "Holm p of the worst"]))
    for label, mine in seeds.items():
        if label == REFERENCES[0]:
            continue
        gains = np.array([kept[label, s][fast, at] - kept[REFERENCES[0], s][fast, at] for s in mine])
        if not np.isfinite(gains).all():
            say(label, "some agents have no evaluation yet", "", "", "")
            continue
        mean, error = mean_and_error(gains)
        p = stats.t.cdf(mean / error, len(mine) - 1)  # small: this agent is behind
        holm = min(1.0, float(p.min() * len(p)))
        behind, ahead = int((mean < -2 * error).sum()), int((mean > 2 * error).sum())
        say(label, *both(gains.mean(axis=1)), behind, ahead, f"{holm:.2f}")


def seconds(kept: dict[tuple[str, int], Array], label: str, seed: int, fast: Any, at: int) -> float:
    """Return when the median fast agent reaches the level of the median one alone; infinite if never."""
    level = float(np.median(kept[REFERENCES[0], seed][fast, at]))
    reached = np.median(kept[label, seed][fast], axis=0) >= level
    return float(GRID[np.argmax(reached)]) if reached.any() else np.inf


if __name__ == "__main__":
    main()
