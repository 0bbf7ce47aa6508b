"""Attack the comparators `consensus` and `fmtbo`: the points and optima that their messages tell.

`flora` sends sums of features, in which `attacks.fed_ei.first_sum` finds the points; `dp-vote` has a bound on
what votes tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fbo_flower.algorithms.records import Array
from fbo_flower.clients import client_app
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import STRATEGIES, TuningStrategy
from studies.attacks.records import AttackResult, Heard, TappedGrid, rms
from studies.peers.fmtbo import public_points

NUM_AGENTS = 4
NUM_ROUNDS = 10
SIDE = "side of the square"


def consensus(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1: the points that they evaluate, and their best points."""
    found, heard = _run(STRATEGIES["consensus"](num_agents=NUM_AGENTS, seed=seed), seed)
    draws = np.random.default_rng(seed)
    told = {(o.agent, o.round + 1): o.arrays["design"] for o in heard.reports if "design" in o.arrays}
    told |= {(o.agent, o.round): o.arrays["design"] for o in heard.tasks if "design" in o.arrays}
    errors, guesses, best, uniform = [], [], [], []
    for agent, made in found.items():
        for point, number in zip(made.points, made.rounds, strict=True):
            if (agent, number) in told:
                errors.append(float(np.linalg.norm(point - told[agent, number])))
                guesses.append(float(np.linalg.norm(point - draws.random(2))))
        top = made.points[int(np.argmax(made.values))]
        best.append(float(np.linalg.norm(told[agent, NUM_ROUNDS + 1] - top)))
        uniform.append(float(np.linalg.norm(draws.random(2) - top)))
    yield AttackResult(
        "Consensus: the points it evaluates, from the designs that are exchanged",
        rms(errors), rms(guesses), SIDE, len(errors), "a uniform point",
    )  # fmt: skip
    yield AttackResult(
        "Consensus: its best point, from the last design",
        rms(best), rms(uniform), SIDE, len(best), "a uniform point",
    )  # fmt: skip


def fmtbo(seed: int) -> Iterator[AttackResult]:
    """Attack four agents on the function f1: their best points, from the ranks of public points."""
    found, heard = _run(STRATEGIES["fmtbo"](num_agents=NUM_AGENTS, seed=seed), seed)
    draws = np.random.default_rng(seed)
    public_seed = int(json.loads(heard.tasks[0].config["values"])["seed"])
    ranked = [np.asarray(o.arrays["ranks"]) for o in heard.reports if "ranks" in o.arrays]
    points = public_points(make_problem("f1", NUM_AGENTS, seed, {}).space, len(ranked[0]), public_seed)
    ranks = {o.agent: np.asarray(o.arrays["ranks"]) for o in heard.reports if "ranks" in o.arrays}
    errors, guesses = [], []
    for agent, made in found.items():
        top = made.points[int(np.argmax(made.values))]
        errors.append(float(np.linalg.norm(points[int(np.argmax(ranks[agent]))] - top)))
        guesses.append(float(np.linalg.norm(draws.random(2) - top)))
    yield AttackResult(
        "FMTBO: its best point, from the ranks of public points",
        rms(errors), rms(guesses), SIDE, len(errors), "a uniform point",
    )  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What an agent evaluated: points `(n, 2)`, values and rounds `(n,)`."""

    points: Array
    values: Array
    rounds: list[int]


def _run(server: TuningStrategy, seed: int) -> tuple[dict[str, Made], Heard]:
    """Return what every agent evaluated, and what the server heard."""
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    grid = TappedGrid(client_app(problem, problem.space, seed=seed, disclose="trials"), NUM_AGENTS)
    trials = server.start(grid, num_rounds=NUM_ROUNDS).study.trials
    found = {}
    for agent in map(str, range(NUM_AGENTS)):
        rows = trials.where(agent=agent)
        points = np.array([[c["x1"], c["x2"]] for c in rows["config"]])
        found[agent] = Made(points, np.asarray(rows["value"], dtype=np.float64), rows["round"].tolist())
    return found, grid.heard
