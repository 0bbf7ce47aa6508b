"""Attack the comparators `consensus` and `fmtbo`: the points and optima that their messages tell.

`flora` sends sums of features, in which `attacks.fed_ei.first_sum` finds the points; `dp-vote` has a bound on
what votes tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import STRATEGIES
from studies.attacks.records import SQUARE, AttackResult, compared, evaluated, overhear
from studies.peers.fmtbo import public_points

NUM_AGENTS = 4
NUM_ROUNDS = 10


def consensus(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1: the points that they evaluate, and their best points."""
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    server = STRATEGIES["consensus"](num_agents=NUM_AGENTS, seed=seed)
    study, heard = overhear(problem, server, NUM_ROUNDS, seed)
    draws = np.random.default_rng(seed)
    told = {(o.agent, o.round + 1): o.arrays["design"] for o in heard.sent("design")}
    told |= {(o.agent, o.round): o.arrays["design"] for o in heard.told("design")}
    errors, guesses, best, uniform = [], [], [], []
    for agent in map(str, range(NUM_AGENTS)):
        points, values, rounds = evaluated(study, agent)
        for point, number in zip(points, rounds.tolist(), strict=True):
            if (agent, number) in told:
                errors.append(float(np.linalg.norm(point - told[agent, number])))
                guesses.append(float(np.linalg.norm(point - draws.random(2))))
        top = points[int(np.argmax(values))]
        best.append(float(np.linalg.norm(told[agent, NUM_ROUNDS + 1] - top)))
        uniform.append(float(np.linalg.norm(draws.random(2) - top)))
    text, how = "Consensus: the points it evaluates, from the designs that are exchanged", "a uniform point"
    yield compared(text, errors, guesses, SQUARE, how)
    yield compared("Consensus: its best point, from the last design", best, uniform, SQUARE, how)


def fmtbo(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1: their best points, from the ranks of public points."""
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    server = STRATEGIES["fmtbo"](num_agents=NUM_AGENTS, seed=seed)
    study, heard = overhear(problem, server, NUM_ROUNDS, seed)
    draws = np.random.default_rng(seed)
    public_seed = int(json.loads(heard.tasks[0].config["values"])["seed"])
    ranks = {o.agent: np.asarray(o.arrays["ranks"]) for o in heard.sent("ranks")}
    public = public_points(problem.space, len(ranks["0"]), public_seed)
    errors, guesses = [], []
    for agent in map(str, range(NUM_AGENTS)):
        points, values, _ = evaluated(study, agent)
        top = points[int(np.argmax(values))]
        errors.append(float(np.linalg.norm(public[int(np.argmax(ranks[agent]))] - top)))
        guesses.append(float(np.linalg.norm(draws.random(2) - top)))
    text = "FMTBO: its best point, from the ranks of public points"
    yield compared(text, errors, guesses, SQUARE, "a uniform point")
