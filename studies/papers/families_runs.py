"""The jobs of `families`: one algorithm on one problem, with its curves and costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import PREFIX, Problem, make_problem
from fbo_flower.study import Study
from studies.jobs import Arrays
from studies.papers import optuna_peers
from studies.papers.ei.curves import score
from studies.papers.ei.problems import ShiftedFunction

NUM_INITIAL = 3
# label -> the problem of a number of agents and a seed
RELATED: dict[str, Callable[[int, int], Problem]] = {
    "hartmann-6": lambda n, seed: ShiftedFunction(n, seed, "hartmann-6"),
    "hartmann-6, half mirrored": lambda n, seed: ShiftedFunction(n, seed, "hartmann-6", mirrored=True),
    "rastrigin-10": lambda n, seed: ShiftedFunction(n, seed, "rastrigin-10"),
    "california-trees": lambda n, seed: make_problem("california-trees", n, seed, {}),
}
# label -> algorithm and options
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {"num_initial": NUM_INITIAL}),
    "ts": ("ts", {}),
    "fts": ("fts", {}),
    "fts portfolio": ("fts", {"advice": "portfolio"}),
    "rgpe": ("rgpe", {}),
    "taf": ("taf", {}),
    "co-kg": ("co-kg", {"num_initial": NUM_INITIAL}),
    "co-kg product": ("co-kg", {"num_initial": NUM_INITIAL, "central": "product"}),
    "no collaboration": ("co-kg", {"num_initial": NUM_INITIAL, "framework": "no-collaboration"}),
    "pf-pne": ("pf-pne", {}),
    "pf-pne racing": ("pf-pne", {"variant": "racing"}),
    "fed-pne": ("fed-pne", {}),
    "local-pne": ("local-pne", {}),
    "hct": ("hct", {}),
    "ei": ("ei", {}),
    # the same points as with secure sums, in a tenth of the time
    "fed-ei": ("fed-ei", {"secure_sums": 0, "num_initial": NUM_INITIAL}),
}
BROAD = ("random", "ts", "fts", "fts portfolio", "rgpe", "ei", "fed-ei")
GP_AGENTS, GP_BUDGET = 3, 20
BANDITS = ("pf-pne", "fed-pne", "local-pne", "hct")
RFMS = ("rfms", {"method": "fso"})


def _made(problem: str, num_agents: int, seed: int) -> Problem:
    if problem in RELATED:
        return RELATED[problem](num_agents, seed)
    return make_problem(problem, num_agents, seed, {})


def run_peer(problem: str, num_agents: int, sampler: str, seed: int, budget: int) -> Arrays:
    """Let every agent tune alone with one of Optuna's samplers, from the starting points of `ei`."""
    made = _made(problem, num_agents, seed)
    if sampler == "gpsampler":
        num_agents, budget = min(num_agents, GP_AGENTS), min(budget, GP_BUDGET)
    starts = simulate(
        made,
        algorithm=make_algorithm("ei", {"num_initial": NUM_INITIAL}),
        num_rounds=1,
        seed=seed,
        engine="inline",
    ).trials
    begin = time.process_time()
    values = np.array(
        [
            optuna_peers.scores(
                made, agent, list(starts.where(agent=str(agent))["config"]), sampler, seed, budget
            )
            for agent in range(num_agents)
        ]
    )
    seconds = (time.process_time() - begin) * made.num_agents / num_agents
    return {
        "best": np.maximum.accumulate(values, axis=1),
        "values": values,
        "costs": np.array([0.0, 0.0, 0.0, 0.0, seconds]),
    }


def run_algorithm(problem: str, num_agents: int, label: str, seed: int, budget: int) -> Arrays:
    """Run one algorithm; return the arrays that `families_report` uses."""
    made = _made(problem, num_agents, seed)
    algorithm, options = ALGORITHMS[label]
    without_trial = algorithm == "fed-ei"  # it has a round for an exchange alone
    rounds: int | None = budget - NUM_INITIAL + 1 + without_trial
    options = dict(options)
    if algorithm in BANDITS:
        rounds, options = None, {**options, "budget": budget}
        if problem.startswith(PREFIX):
            options["deterministic"] = True
    return measured(made, algorithm, options, seed, rounds, budget)


def measured(
    problem: Problem, algorithm: str, options: Mapping[str, Any], seed: int, rounds: int | None, budget: int
) -> Arrays:
    """Run a study and return its curves and costs.

    Returns
    -------
    best, values : `(agents, budget)`, best noiseless value so far, and noiseless value of every evaluation;
        without the agents' own units on related functions, as observed where there is no noise
    optimum : `(agents,)`, NaN where it is unknown
    costs : floats down and up, bytes down and up, per agent; CPU seconds
    """
    begin = time.process_time()
    study = simulate(
        problem, algorithm=make_algorithm(algorithm, options), num_rounds=rounds, seed=seed, engine="inline"
    )
    seconds = time.process_time() - begin
    names = [str(agent) for agent in range(problem.num_agents)]
    optimum = np.array([problem.optimum(int(name)) for name in names], dtype=np.float64)  # None: NaN
    values = np.array(
        [
            noiseless(study, name, best, budget)
            if np.isfinite(best)
            else scored(study, problem, name, budget)
            for name, best in zip(names, optimum, strict=True)
        ]
    )
    columns = ("floats_down", "floats_up", "bytes_down", "bytes_up")
    costs = [float(np.sum(study.rounds[name])) / problem.num_agents for name in columns]
    return {
        "best": np.maximum.accumulate(values, axis=1),
        "values": values,
        "optimum": optimum,
        "costs": np.array([*costs, seconds]),
    }


def noiseless(study: Study, agent: str, optimum: float, budget: int) -> Array:
    """Return the noiseless values `(budget,)` of an agent's evaluations, in order.

    A row with several pulls counts once per pull; the last value of an agent that stopped early is repeated.
    """
    mine = study.trials.where(agent=agent)
    order = np.argsort(mine["trial"], kind="stable")
    regret = np.asarray(mine["regret"], dtype=np.float64)[order]
    values = np.repeat(optimum - regret, np.asarray(mine["pulls"], dtype=np.int64)[order])[:budget]
    padded = np.full(budget, values[-1])
    padded[: len(values)] = values
    return padded


def scored(study: Study, problem: Problem, agent: str, budget: int) -> Array:
    """Return the values `(budget,)` of an agent's evaluations, in order and without its own units."""
    mine = study.trials.where(agent=agent)
    order = np.argsort(mine["trial"], kind="stable")[:budget]
    known = [score(problem, mine["config"][row], int(agent)) for row in order]
    observed = np.asarray(mine["value"], dtype=np.float64)[order]
    return np.where([v is None for v in known], observed, np.array(known, dtype=np.float64))


def run_rfms(table: str, seed: int, budget: int) -> Arrays:
    """Run RFMS on the hospitals; return the tabulated values of the shipped configuration, and the costs."""
    objective = make_problem(table, None, 0, {})
    problem = make_problem("heart-4sites", None, 0, {})
    algorithm, options = RFMS
    begin = time.process_time()
    chosen = {**options, "num_trials": budget, "num_initial": min(20, budget // 2)}
    study = simulate(problem, algorithm=make_algorithm(algorithm, chosen), seed=seed, engine="inline")
    seconds = time.process_time() - begin
    shipped = [row["config"] for row in study.models if row["shipped"]]
    values = [
        max(objective.true_value(config, agent) or 0.0 for config in shipped)
        for agent in range(objective.num_agents)
    ]
    columns = ("floats_down", "floats_up", "bytes_down", "bytes_up")
    costs = [float(np.sum(study.rounds[name])) / problem.num_agents for name in columns]
    return {
        "best": np.array(values)[:, None],
        "shipped": np.array([float(len(shipped))]),
        "costs": np.array([*costs, seconds]),
    }
