"""The Co-KG experiment's differences to the optimum, and its runs with one odd agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp

from fbo_flower.clients import TuningAgent, agent_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Fault, InProcessGrid, problem_app
from fbo_flower.simulation.problems import F1, Config, Problem
from fbo_flower.strategies import CoKG, TuningStrategy
from fbo_flower.study import Study
from studies.experiment import Arrays
from studies.papers.liars import Told, lying

NUM_AGENTS, MESH, NUM_INITIAL = 4, 20, 5
ODD = 3  # the agent that is odd
SOUND = ("0", "1", "2")
NOISY = 1.0  # s.d. of a noisy agent's noise; the others have .14, the function 1.1
KINDS = ("none", "noisy", "sends noise")
WEIGHTS = ("uniform", "reliability")


def differences(
    study: Study, problem: Problem, num_rounds: int, agents: Sequence[str] | None = None
) -> tuple[Array, Array]:
    """Return a run's noiseless differences to the optimum after every round; for a network, its losses.

    Parameters
    ----------
    agents : the agents whose trials count; None: all

    Returns
    -------
    recommended : `(num_rounds,)`, of the configuration that the server would return, NaN if it has none; for
        random search, of the trial with the largest value
    best : `(num_rounds,)`, of the best configuration tried so far
    """
    optimum = problem.optimum(0) or 0.0
    known: dict[tuple[tuple[str, object], ...], float] = {}

    def below(config: Config) -> float:
        key = tuple(sorted(config.items()))
        if key not in known:
            value = problem.true_value(config, 0)
            assert value is not None  # all problems of this experiment know it
            known[key] = optimum - value
        return known[key]

    trials = study.trials
    own = np.isin(trials["agent"].astype(str), agents or np.unique(trials["agent"].astype(str)))
    tried = np.array([below(config) for config in trials["config"][own]])
    when = np.asarray(trials["round"], dtype=np.int64)[own]
    seen = np.asarray(trials["value"], dtype=np.float64)[own]
    recommended, best = np.full(num_rounds, np.nan), np.full(num_rounds, np.nan)
    told = study.settings["runs"][0].get("found", {}).get("recommended")
    for t in range(num_rounds):
        until = when <= t + 1
        best[t] = tried[until].min()
        if told is None:
            recommended[t] = tried[until][int(np.nanargmax(seen[until]))]
    for row in told or ():
        recommended[row["round"] - 1 :] = below(row["config"])
    return recommended, best


# -- one odd agent ---------------------------------------------------------------------------------


def odd_agents(name: str, row: str, seed: int, num_rounds: int, num_draws: int) -> Arrays:
    """Run `f1` with one odd agent of a kind, with uniform weights or with reliability weights.

    Returns
    -------
    returned : `(1, rounds)`, difference of the configuration that the server would return
    best of the others : `(1, rounds)`, difference of the best configuration that the sound agents tried
    """
    kind, weights = row.split(", ")
    problem = F1(NUM_AGENTS, seed)
    strategy = CoKG(
        num_agents=NUM_AGENTS, seed=seed, num_initial=NUM_INITIAL, weights=weights, mesh=MESH,
        num_draws=num_draws,
    )  # fmt: skip
    grid = InProcessGrid(_app(kind, problem, strategy, seed), NUM_AGENTS, faults=_faults(kind, seed))
    study = strategy.start(grid, num_rounds=num_rounds + 1).study
    returned, best = differences(study, problem, num_rounds + 1, SOUND)
    return {
        "returned": returned[None],
        "best of the others": best[None],
        "returned, mean": np.array(np.nanmean(returned)),
        "best of the others, mean": np.array(np.nanmean(best)),
    }


def _app(kind: str, problem: F1, strategy: TuningStrategy, seed: int) -> ClientApp:
    if kind != "noisy":
        return problem_app(problem, strategy.algorithm, seed)
    loud = replace(problem, noise_variance=NOISY**2)

    def agent(context: Context) -> TuningAgent:
        objective = loud if context.node_config["partition-id"] == ODD else problem
        return TuningAgent(objective, problem.space, context, seed=seed, disclose="trials")

    return agent_app(agent)


def _faults(kind: str, seed: int) -> dict[int, Fault]:
    rng = generator(seed, "odd agent")

    def noise(told: Told) -> Told:
        return {"mean": rng.standard_normal(told["mean"].shape)} if "mean" in told else {}

    return lying({ODD: noise} if kind == "sends noise" else {})
