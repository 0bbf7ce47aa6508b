"""Comparisons of no paper: rows on problems, over seeds.

- `peers`: the comparators of `studies/peers` beside `ei`. All start from the same three random points per
  agent, `fed-ei` from the first two of them. `flora` and `dp-vote` return one configuration for all agents:
  their rows have the value of that configuration after as many evaluations per agent; in `dp-vote` every
  agent votes for a fifth of the list. CPU time is that of whole runs.
- `exchanges`: best values against evaluations and against exchanges, for `k` trials per round. Every agent
  makes three random evaluations in one exchange, then 20 of its own. `fed-ei` has one exchange more.
- `several-at-once`: what `q` evaluations at once cost in value and save in time. Five agents make four
  evaluations in each exchange, `q` at once. Time is wall clock, with an objective that sleeps.
- `unequal-agents`: every second of eight agents holds two of six parameters at values of its own. A
  federation is compared with the same agents alone, and with a federation in which all tune all parameters.
  Values are in standard deviations of the agent's function over the cube.
- `co-kg-asynchrony`: eight agents on `f1` and a simulated clock. Durations are log-normal with median 1 s and
  sigma 1, agent 0 is a hundred times slower. The level is the best value of the median fast agent alone in
  the time of 50 evaluations on average.
- `first-study`: the README's first study, up to its loop, with other seeds; also how accurate each site's
  best model is on the images of all other sites.
"""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.aims import NUMBER
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Agents, Async, Clock, Sync, log_normal, simulate, slower
from fbo_flower.simulation.agents import own_objective
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.space import Float, SearchSpace
from fbo_flower.study import Study
from studies.experiment import (
    BYTES,
    Arrays,
    Experiment,
    Part,
    best_so_far,
    evaluations,
    rounds_of,
    run,
    run_budget,
    score,
    traffic,
)
from studies.papers.ei.problems import PROBLEMS, ShiftedFunction

ROOT = Path(__file__).parents[2]
FEDERATED: dict[str, Any] = {"secure_sums": 0}  # the same trials without masks
Chosen = dict[str, tuple[str, dict[str, Any]]]  # row -> algorithm and options

# -- comparators -------------------------------------------------------------------------------

CURVES: Chosen = {
    "ei": ("ei", {}),
    "fed-ei": ("fed-ei", FEDERATED),
    "share-best": ("share-best", {}),
    "share-random": ("share-random", {}),
    "consensus": ("consensus", {"transition": 17}),
    "fmtbo": ("fmtbo", {}),
    "random": ("random", {}),
}
COMBINE = ("single", "uncertainty", "max-min", "average")
FLORA: Chosen = {f"flora {how}": ("flora", {**FEDERATED, "combine": how}) for how in COMBINE}
VOTES: Chosen = {
    "dp-vote no noise": ("dp-vote", {**FEDERATED, "noise_multiplier": 0.0}),
    "dp-vote z=1": ("dp-vote", {"secure_sums": 8, "noise_multiplier": 1.0}),
    "dp-vote z=4": ("dp-vote", {"secure_sums": 8, "noise_multiplier": 4.0}),
}
COUNTS = (3, 5, 10, 20)  # evaluations


def peers(quick: bool, directory: Path) -> list[Part]:
    """Return `peers`; quick: Hartmann-6, without those that return one configuration."""
    rows = [*CURVES, *([] if quick else [*FLORA, *VOTES])]
    labels = ["Hartmann-6"] if quick else ["landmine linear", "digits", "Hartmann-6"]
    agents = {"agents": 4 if quick else 10}
    return [
        Part(
            "peers", peer, labels, rows, range(2 if quick else 6), agents, "ei",
            places=COUNTS, at=COUNTS, drawn="value",
        )
    ]  # fmt: skip


def peer(label: str, row: str, seed: int, agents: int) -> Arrays:
    """Return values `(1, 4)` after `COUNTS` evaluations, means over agents; bytes per agent; CPU seconds.

    A comparator that returns one configuration is run anew for every number of evaluations.
    """
    problem, begun = PROBLEMS[label](agents, seed), time.process_time()
    if row in CURVES:
        study = run_budget(problem, *CURVES[row], seed, COUNTS[-1])
        values = best_so_far(study, problem, COUNTS[-1]).mean(axis=0)[np.array(COUNTS) - 1]
    else:
        algorithm, chosen = {**FLORA, **VOTES}[row]
        values = np.full(len(COUNTS), np.nan)
        for place, number in enumerate(COUNTS):
            size = {"budget": number}
            if algorithm == "dp-vote":
                size = {"num_configs": number, "num_votes": max(1, number // 5)}
            study = run(problem, algorithm, {**chosen, **size}, None, seed)
            found: Any = study.settings["runs"][0]["found"]
            if "shared" in found:
                values[place] = value_of(study, problem, found["shared"])
    sent = dict(zip(BYTES, traffic(study), strict=True))
    return {"value": values[None], **sent, "CPU seconds": np.array(time.process_time() - begun)}


def value_of(study: Study, problem: Problem, config: Config) -> float:
    """Return the value of a configuration that all agents evaluated, mean over agents."""
    values = []
    for agent in range(problem.num_agents):
        known, mine = score(problem, config, agent), zip(*evaluations(study, agent), strict=True)
        values.append(next(v for c, v in mine if c == config) if known is None else known)
    return float(np.mean(values))


# -- exchanges ---------------------------------------------------------------------------------

NUM_INITIAL, LATER = 3, 20
AT_A_TIME = (1, 2, 5, 10)
INITIAL = {"fed-ei": {**FEDERATED, "num_initial": NUM_INITIAL}}
EMPTY = {"fed-ei": 1}  # exchanges without an evaluation, after the first


def exchanges(quick: bool, directory: Path) -> list[Part]:
    """Return `exchanges`; quick: Hartmann-6 with 3 agents, `fts` alone."""
    federated = ("fts",) if quick else ("fts", "fed-ei")
    rows = ["ts; 1", "ei; 1", *(f"{name}; {k}" for name in federated for k in AT_A_TIME)]
    pairs = [(f"{name}; {k}", f"{name}; 1") for name in federated for k in AT_A_TIME[1:]]
    labels = ["Hartmann-6"] if quick else ["landmine linear", "digits", "Hartmann-6"]
    return [
        Part(
            "exchanges", exchanged, labels, rows, range(500, 502 if quick else 512),
            {"agents": 3 if quick else 10}, "ei; 1", pairs, at=(2, 3, 5, 8, 11, 13, 18, 21, 23),
            drawn="best by evaluations",
        )
    ]  # fmt: skip


def exchanged(label: str, row: str, seed: int, agents: int) -> Arrays:
    """Return best scores so far after evaluations `(agents, 23)` and after exchanges, and bytes per agent."""
    algorithm, k = row.split("; ", maxsplit=1)[0], int(row.split("; ")[1])
    count = 1 + EMPTY.get(algorithm, 0) + LATER // k
    problem = PROBLEMS[label](agents, seed)
    study = run(problem, algorithm, {**INITIAL.get(algorithm, {}), "trials_per_round": k}, count, seed)
    best = best_so_far(study, problem, NUM_INITIAL + LATER)
    later = np.maximum(np.arange(count) - EMPTY.get(algorithm, 0), 0)
    after = np.minimum(NUM_INITIAL + later * k, NUM_INITIAL + LATER)
    sent = dict(zip(BYTES, traffic(study), strict=True))
    return {"best by evaluations": best, "best by exchanges": best[:, after - 1], **sent}


# -- several evaluations at once ---------------------------------------------------------------

PER_ROUND, NUM_ROUNDS, SLEEP = 4, 7, 0.2
AT_ONCE: Chosen = {"ei": ("ei", {}), "fed-ei": ("fed-ei", INITIAL["fed-ei"]), "ts": ("ts", {})}


def several_at_once(quick: bool, directory: Path) -> list[Part]:
    """Return `several-at-once`; quick: `ei`, one seed."""
    names, most = (["ei"], (1, 2)) if quick else (list(AT_ONCE), (1, 2, 4))
    rows = [f"{name}; {q}" for name in names for q in most]
    pairs = [(f"{name}; {q}", f"{name}; 1") for name in names for q in most[1:]]
    seeds, rounds = range(900, 901 if quick else 906), {"rounds": 3 if quick else NUM_ROUNDS}
    shown: dict[str, Any] = {"at": (7, 11, 15, 19, 23, 27), "drawn": "best", "how": "mean"}
    return [
        Part("several at once", at_once, ["Hartmann-6"], rows, seeds, rounds, pairs=pairs, **shown),
        Part("seconds", slept, ["an objective that sleeps"], rows, range(1), rounds, pairs=pairs, fixed=True),
    ]  # fmt: skip


def at_once(label: str, row: str, seed: int, rounds: int) -> Arrays:
    """Return the best scores so far, `(5, evaluations)`."""
    (algorithm, chosen), q = AT_ONCE[row.split("; ", maxsplit=1)[0]], int(row.split("; ")[1])
    problem, given = ShiftedFunction(5, seed, "hartmann-6"), {**chosen, "trials_per_round": PER_ROUND}
    budget = NUM_INITIAL + PER_ROUND * (rounds - 1)
    more = algorithm == "fed-ei"  # an exchange without a trial
    study = run(problem, algorithm, given, rounds + more, seed, agents=Agents(num_parallel=q))
    return {"best": best_so_far(study, problem, budget)}


def sleeping(config: dict[str, Any], data: int) -> float:
    """Return a value after a sleep."""
    time.sleep(SLEEP)
    return -((float(config["x"]) - 0.3) ** 2) - (float(config["y"]) - 0.7) ** 2


def slept(label: str, row: str, seed: int, rounds: int) -> Arrays:
    """Return the seconds of a study of one agent whose workers are running."""
    (algorithm, chosen), q = AT_ONCE[row.split("; ", maxsplit=1)[0]], int(row.split("; ")[1])
    space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
    problem = own_objective(sleeping, space, [0], 0, NUMBER, [])  # one object: its workers serve both runs
    given = {**chosen, "trials_per_round": PER_ROUND}
    run(problem, algorithm, given, 2, agents=Agents(num_parallel=q))  # starts the workers
    before = time.perf_counter()
    run(problem, algorithm, given, rounds, agents=Agents(num_parallel=q))
    return {"seconds": np.array(time.perf_counter() - before)}


# -- unequal agents ----------------------------------------------------------------------------

FEW, ALL = "half tune 4", "all tune 6"


def unequal_agents(quick: bool, directory: Path) -> list[Part]:
    """Return `unequal-agents`; quick: 4 agents, 2 seeds, 5 evaluations."""
    couples = (("fed-ei", "ei"), ("fts", "ts"))
    rows = [row for a, b in couples for row in (f"{a}; {FEW}", f"{b}; {FEW}", f"{a}; {ALL}")]
    pairs = [(f"{a}; {FEW}", other) for a, b in couples for other in (f"{b}; {FEW}", f"{a}; {ALL}")]
    size = {"agents": 4 if quick else 8, "budget": 5 if quick else 20}
    seeds = range(900, 902 if quick else 908)
    return [Part("unequal agents", unequal, ["Hartmann-6"], rows, seeds, size, pairs=pairs, at=(5, 10, 20))]


def unequal(label: str, row: str, seed: int, agents: int, budget: int) -> Arrays:
    """Return the best values so far of the agents that tune 4 of 6 parameters, and of the others."""
    algorithm, how = row.split("; ")
    problem, fixed = ShiftedFunction(agents, seed, "hartmann-6"), dict[str, dict[str, float]]()
    for agent in range(1, agents, 2) if how == FEW else ():
        rng = generator(seed, "fixed", agent)
        point = problem.space.decode(rng.random(problem.space.dimension))
        names = rng.permutation(list(problem.space.names))[:2]
        fixed[str(agent)] = {str(name): point[str(name)] for name in names}
    chosen = {"num_initial": NUM_INITIAL, **(FEDERATED if algorithm == "fed-ei" else {})}
    rounds = rounds_of(algorithm, NUM_INITIAL, budget)
    study = run(problem, algorithm, chosen, rounds, seed, agents=Agents(fixed=fixed or None))
    curves = np.array([
        np.maximum.accumulate(evaluations(study, agent)[1])[:budget] / scale(problem, agent)
        for agent in range(agents)
    ])  # fmt: skip
    return {"agents that tune 4 of 6": curves[1::2], "agents that tune all": curves[::2]}


@cache
def scale(problem: ShiftedFunction, agent: int) -> float:
    """Return the standard deviation of an agent's function over the cube."""
    points = np.random.default_rng(0).random((512, problem.space.dimension))
    return float(np.std([problem.true_value(problem.space.decode(p), agent) for p in points]))


# -- asynchronous Co-KG ------------------------------------------------------------------------

AT = 50 * np.exp(0.5)  # seconds in which an agent makes 50 evaluations on average
GRID = np.geomspace(1.0, 20_000.0, 200)  # simulated seconds
AUTO: dict[str, Any] = {"central": "auto", "refit": "doubling"}
MODES: dict[str, tuple[str, int, float, dict[str, Any]]] = {  # mode, rounds, quorum, options
    "alone": ("async", 60, 1.0, {"framework": "no-collaboration"}),
    "synchronous": ("sync", 40, 1.0, {}),
    "quorum .8": ("sync", 40, 0.8, {}),
    "asynchronous": ("async", 40, 1.0, {}),
    "auto, synchronous": ("sync", 40, 1.0, AUTO),
    "auto, quorum .8": ("sync", 40, 0.8, AUTO),
    "auto, asynchronous": ("async", 40, 1.0, AUTO),
}


def asynchrony(quick: bool, directory: Path) -> list[Part]:
    """Return `co-kg-asynchrony`; quick: 3 agents, a tenth of the rounds."""
    size = {"agents": 3 if quick else 8, "shorter": 10 if quick else 1, "points": 36 if quick else 225}
    seeds = range(2 if quick else 6)
    return [Part("asynchrony", clocked, ["f1"], list(MODES), seeds, size, "alone", joint=True)]


def clocked(problem: str, seed: int, agents: int, shorter: int, points: int) -> Arrays:
    """Return of each mode the seconds to the level, whether it is reached, and the value after 82 s."""
    clock, at = Clock(slower(log_normal(1.0, 1.0), {"0": 100.0})), int(np.searchsorted(GRID, AT))
    curves, found = dict[str, Array](), Arrays()
    for row, (mode, rounds, quorum, more) in MODES.items():
        how = Async(None, clock) if mode == "async" else Sync(1, quorum, clock)
        chosen = {"num_points": points, **more}
        study = run(problem, "co-kg", chosen, rounds // shorter, seed, agents=agents, rounds=how)
        curves[row] = np.median(best_by_time(study, agents)[1:], axis=0)  # of the fast agents
        reached = curves[row] >= curves["alone"][at]
        seconds = GRID[reached.argmax()] if reached.any() else np.inf
        found[f"{row}/seconds to the level"] = np.array(seconds)
        found[f"{row}/reached"] = reached.any().astype(float)
        found[f"{row}/best after 82 s"] = curves[row][at]
    return found


def best_by_time(study: Study, agents: int) -> Array:
    """Return every agent's best value so far at the times of `GRID`."""
    found = np.full((agents, len(GRID)), -np.inf)
    for agent in range(agents):
        trials, times = study.trials.where(agent=str(agent)), study.times.where(agent=str(agent))
        ends = dict(zip(times["trial"].tolist(), times["ended"].tolist(), strict=True))
        for trial, value in zip(trials["trial"].tolist(), trials["value"].tolist(), strict=True):
            reached = ends[trial] <= GRID
            found[agent, reached] = np.maximum(found[agent, reached], value)
    return found


# -- the README's first study ------------------------------------------------------------------


def first_study(quick: bool, directory: Path) -> list[Part]:
    """Return `first-study`; quick: 1 seed, 5 evaluations."""
    seeds = range(200, 201 if quick else 216)  # the example was chosen with others
    rows = ["fed-ei", "share-best", "ei", "random"]
    shown: dict[str, Any] = {"at": (5, 6, 8, 10, 15), "drawn": "accuracy", "how": "mean"}
    return [
        Part("first study", first, ["digits"], rows, seeds, {"budget": 5 if quick else 15}, "ei", **shown)
    ]


@cache
def example() -> dict[str, Any]:
    """Return the names that the README's first study defines before its loop."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*?)^for algorithm", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def first(label: str, algorithm: str, seed: int, budget: int) -> Arrays:
    """Return each site's best accuracy so far, and that of the same model on the other sites' images."""
    from sklearn import svm

    names = example()
    sites, images, digits = names["sites"], names["images"], names["digits"]
    study = simulate(
        names["accuracy"], names["space"], sites,
        algorithm=algorithm, num_trials=budget, seed=seed, engine="inline",
    )  # fmt: skip
    found = np.empty((2, len(sites), budget))
    for agent, rows in enumerate(sites):
        trials = study.trials.where(agent=str(agent))
        others = np.ones(len(images), dtype=bool)
        others[rows] = False
        elsewhere: dict[int, float] = {}  # trial -> accuracy on the other sites' images
        for number in range(budget):
            best = int(np.nanargmax(trials["value"][: number + 1]))
            if best not in elsewhere:
                model = svm.SVC(**dict(trials["config"][best])).fit(images[rows], digits[rows])
                elsewhere[best] = model.score(images[others], digits[others])
            found[:, agent, number] = trials["value"][best], elsewhere[best]
    return {"accuracy": found[0], "accuracy on other sites": found[1]}


EXPERIMENTS: dict[str, Experiment] = {
    "peers": Experiment("Comparators from the field beside tuning alone", peers),
    "exchanges": Experiment("Best values against evaluations and exchanges, k trials per round", exchanges),
    "several-at-once": Experiment("Several evaluations at once: value and time", several_at_once),
    "unequal-agents": Experiment("Agents that tune only some of the shared parameters", unequal_agents),
    "co-kg-asynchrony": Experiment("Co-KG with stragglers on a simulated clock", asynchrony),
    "first-study": Experiment("The README's first study with other seeds", first_study),
}
