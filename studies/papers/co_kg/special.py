"""Special runs of the Co-KG experiment: odd agents, what the server can reconstruct, how long it computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower import algorithms
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.co_kg.state import CoKGState
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.clients import Evaluator, ObjectiveEvaluator, TaskContext, TuningAgent, agent_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.pivots import choose_pivots
from fbo_flower.simulation import Fault, InProcessGrid, problem_app
from fbo_flower.simulation.problems import F1, Config, Problem, make_problem
from fbo_flower.strategies import CoKG, TuningStrategy
from fbo_flower.study import Study
from studies.attacks.co_kg import overheard
from studies.attacks.records import rms
from studies.experiment import Arrays

NUM_AGENTS, MESH, NUM_INITIAL = 4, 20, 5
ODD = 3  # the agent that is odd
SOUND = ("0", "1", "2")
CORNER = 0.15  # side of the square from which a bad start is drawn
NOISY = 1.0  # s.d. of a noisy agent's noise; the others have .14, the function 1.1
LIE = 100.0  # factor by which a liar multiplies the mean and deviation of its warm-up
KINDS = ("none", "started badly", "noisy", "sends noise", "lies in the warm-up")
WEIGHTS = ("uniform", "reliability")
NOISE = (0.0, 0.1, 0.3, 1.0)  # mean_noise_stddev
LENGTHSCALE = 0.2
SKIPPED = 2  # rounds without a design of the server: the warm-up and the agents' own choice


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

    def __call__(self, query: Trials, first_trial: int) -> Trials:
        if first_trial < NUM_INITIAL:
            query = Trials(CORNER * query.points)
        return super().__call__(query, first_trial)


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


# -- what the server can reconstruct ---------------------------------------------------------------


def privacy(name: str, row: str, seed: int, num_rounds: int, num_draws: int) -> Arrays:
    """Run `f1` with a level of noise on the reported means, and attack the reports.

    Returns
    -------
    error from two reports, error from the whole run : `(N,)`, of the values that the server recovers, root
        mean square over an agent's trials after the first two rounds, in standard deviations of its values
    returned : difference of the best of the agents' recommendations at the end, by their reported values
    best tried : `(1, rounds)`, difference of the best configuration tried so far
    """
    problem, options = make_problem("f1", NUM_AGENTS, seed, {}), {"mesh": MESH, "num_draws": num_draws}
    noisy = {"mean_noise_stddev": float(row)}
    study, views = overheard(num_rounds + 1, seed, num_initial=NUM_INITIAL, **noisy, **options)
    errors = []
    for seen in views:
        spread = float(np.concatenate([seen.first_values, seen.values]).std())
        errors.append([rms(v - seen.values) / spread for v in (seen.each_round(), seen.whole_run())])
    one, whole = np.array(errors).T
    best = max(study.best.values(), key=lambda row: float(row["mean"]))
    optimum, value = problem.optimum(0), problem.true_value(best["config"], 0)
    assert optimum is not None
    assert value is not None
    tried = differences(study, problem, num_rounds + 1)[1]
    return {
        "error from two reports": one,
        "error from the whole run": whole,
        "returned": np.array(optimum - value),
        "best tried": tried[None],
        "best tried, mean": tried.mean(),
    }


# -- how long the server works -----------------------------------------------------------------------


class TimedCoKG(algorithms.CoKG):
    """Co-KG with a fixed prior of lengthscale .2, whose server is timed."""

    spent: ClassVar[dict[tuple[str, int], float]] = {}  # of the current run

    def _settle(self, state: CoKGState, server_round: int) -> CoKGState:
        before, state = state.setting, super()._settle(state, server_round)
        if before is not None or state.setting is None:
            return state
        h = state.setting.hyperparameters
        h = replace(h, lengthscales=np.full_like(h.lengthscales, LENGTHSCALE))
        points = self.points(state.space)
        pivots = choose_pivots(state.space.features(points), h, self.rank_cut)
        return replace(state, setting=replace(state.setting, hyperparameters=h, pivots=points[pivots.index]))

    def ask(
        self,
        state: CoKGState,
        phase: Phase,
        server_round: int,
        present: Sequence[str],
        rng: np.random.Generator,
    ) -> tuple[CoKGState, dict[str, Task]]:
        begin = time.process_time()
        asked = super().ask(state, phase, server_round, present, rng)
        self.spent["ask", server_round] = time.process_time() - begin
        return asked

    def tell(self, state: CoKGState, phase: Phase, reports: Replies) -> CoKGState:
        begin = time.process_time()
        told = super().tell(state, phase, reports)
        self.spent["tell", state.round] = time.process_time() - begin
        return told


class Timed(TuningStrategy):
    """The Flower strategy of `TimedCoKG`."""

    algorithm_class = TimedCoKG


def server_time(name: str, mesh: str, seed: int, num_rounds: int, num_draws: int) -> Arrays:
    """Run `f1` once and time the server.

    Returns
    -------
    CPU ms of ask, CPU ms of tell : means over the rounds with a design; CPU ms of the longest round; pivots
    """
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    server = Timed(
        num_agents=NUM_AGENTS, seed=seed, num_initial=NUM_INITIAL, mesh=int(mesh), num_draws=num_draws
    )
    TimedCoKG.spent.clear()
    agents = problem_app(problem, algorithms.make_algorithm("co-kg", server.algorithm.options()), seed)
    study = server.start(InProcessGrid(agents, NUM_AGENTS), num_rounds=num_rounds + SKIPPED).study
    rounds = range(SKIPPED + 1, num_rounds + SKIPPED + 1)
    ask, tell = (1e3 * np.array([TimedCoKG.spent[part, r] for r in rounds]) for part in ("ask", "tell"))
    return {
        "CPU ms of ask": ask.mean(),
        "CPU ms of tell": tell.mean(),
        "CPU ms of the longest round": (ask + tell).max(),
        "pivots": np.array(float(study.settings["runs"][0]["found"]["num_pivots"])),
    }
