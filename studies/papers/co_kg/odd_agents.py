"""Run Co-KG with one odd agent of four: it starts badly, is noisy, sends noise or lies in the warm-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import AgentState, Outcome, Query
from fbo_flower.clients import Evaluator, ObjectiveEvaluator, TaskContext, TuningAgent, agent_app
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Fault, InProcessGrid, problem_app
from fbo_flower.simulation.problems import F1
from fbo_flower.strategies import CoKG, TuningStrategy
from studies.jobs import Arrays
from studies.papers.co_kg.runs import MESH, NUM_AGENTS, NUM_INITIAL, differences

ODD = 3  # the agent that is odd
SOUND = ("0", "1", "2")
CORNER = 0.15  # side of the square from which a bad start is drawn
NOISY = 1.0  # s.d. of a noisy agent's noise; the others have .14, the function 1.1
LIE = 100.0  # factor by which a liar multiplies the mean and deviation of its warm-up
KINDS = ("none", "started badly", "noisy", "sends noise", "lies in the warm-up")
WEIGHTS = ("uniform", "reliability")


class Cornered(TuningAgent):
    """An agent whose warm-up points lie in a corner."""

    def _evaluator(
        self, context: TaskContext, algorithm: Algorithm[Any], agent_state: AgentState
    ) -> Evaluator:
        made = super()._evaluator(context, algorithm, agent_state)
        assert isinstance(made, ObjectiveEvaluator)
        return CorneredEvaluator(made.objective, made.space, made.context, made.cache)


class CorneredEvaluator(ObjectiveEvaluator):
    """Evaluates the warm-up in a corner of the square."""

    def __call__(self, query: Query, first_trial: int) -> Outcome:
        if first_trial < NUM_INITIAL:
            query = Query(CORNER * query.points)
        return super().__call__(query, first_trial)


def odd_agents(seed: int, num_rounds: int, num_draws: int) -> Arrays:
    """Run `f1` with one odd agent of each kind, with uniform weights and with reliability weights.

    Returns
    -------
    `kind, weights/recommended` : `(rounds,)`, difference of the configuration that the server would return
    `kind, weights/best` : `(rounds,)`, difference of the best configuration that the sound agents tried
    """
    found: Arrays = {}
    problem = F1(NUM_AGENTS, seed)
    for kind in KINDS:
        for weights in WEIGHTS:
            strategy = CoKG(
                num_agents=NUM_AGENTS, seed=seed, num_initial=NUM_INITIAL, weights=weights, mesh=MESH,
                num_draws=num_draws,
            )  # fmt: skip
            grid = InProcessGrid(_app(kind, problem, strategy, seed), NUM_AGENTS, faults=_faults(kind, seed))
            study = strategy.start(grid, num_rounds=num_rounds + 1).study
            curves = differences(study, problem, num_rounds + 1, SOUND)
            for name, curve in zip(("recommended", "best"), curves, strict=True):
                found[f"{kind}, {weights}/{name}"] = curve
    return found


def _app(kind: str, problem: F1, strategy: TuningStrategy, seed: int) -> ClientApp:
    if kind not in {"started badly", "noisy"}:
        return problem_app(problem, strategy.algorithm, seed)
    loud = replace(problem, noise_variance=NOISY**2)

    def agent(context: Context) -> TuningAgent:
        is_odd = context.node_config["partition-id"] == ODD
        made = Cornered if is_odd and kind == "started badly" else TuningAgent
        objective = loud if is_odd and kind == "noisy" else problem
        return made(objective, problem.space, context, seed=seed, disclose="trials")

    return agent_app(agent)


def _faults(kind: str, seed: int) -> dict[int, Fault]:
    rng = generator(seed, "odd agent")

    def noise(arrays: ArrayRecord) -> None:
        if "mean" in arrays:
            arrays["mean"] = FlowerArray(rng.standard_normal(arrays["mean"].shape))

    def lie(arrays: ArrayRecord) -> None:
        if "moments" in arrays:
            arrays["moments"] = FlowerArray(arrays["moments"].numpy() * np.array([1.0, LIE, LIE]))

    changes: dict[str, Callable[[ArrayRecord], None]] = {"sends noise": noise, "lies in the warm-up": lie}
    if kind not in changes:
        return {}

    def change(content: RecordDict) -> RecordDict:
        arrays = content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        changes[kind](arrays)
        return content

    return {ODD: Fault("malformed", rounds=range(1, 10_000), change=change)}
