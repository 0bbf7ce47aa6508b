"""Measure what the server of Co-KG can reconstruct, and how long it computes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fbo_flower import algorithms
from fbo_flower.algorithms.co_kg.state import CoKGState
from fbo_flower.algorithms.records import Phase, Report, Task
from fbo_flower.numerics.surrogates.pivots import choose_pivots, extend
from fbo_flower.simulation import InProcessGrid, problem_app
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import TuningStrategy
from fbo_flower.study import Study
from studies.attacks.reconstruction import value_of_one_round, values_of_a_run
from studies.jobs import Arrays
from studies.papers.co_kg.runs import MESH, NUM_AGENTS, NUM_INITIAL, differences

NOISE = (0.0, 0.1, 0.3, 1.0)  # mean_noise_stddev
LENGTHSCALE = 0.2
SKIPPED = 2  # rounds without a design of the server: the warm-up and the agents' own choice


class Watching(TuningStrategy):
    """A Co-KG server that records all reports."""

    algorithm_class = algorithms.CoKG

    def _tell(self, phase: Phase, server_round: int) -> None:
        super()._tell(phase, server_round)
        self.seen: list[CoKGState] = [*getattr(self, "seen", []), self._current().state]


def privacy(seed: int, num_rounds: int, num_draws: int) -> Arrays:
    """Run `f1` with each level of noise on the reported means, and attack the reports.

    Returns
    -------
    `noise/one`, `noise/run` : `(N,)`, error of the values that the server recovers from two reports, and from
        all of them, root mean square over an agent's trials after the
        first two rounds, in standard deviations of all its values
    `noise/recommended` : difference of the best of the agents' recommendations at the end, by their reported
    values `noise/best` : `(rounds,)`, difference of the best configuration tried so far
    """
    problem = make_problem("f1", NUM_AGENTS, seed, {})
    found: Arrays = {}
    for noise in NOISE:
        server = Watching(
            num_agents=NUM_AGENTS, seed=seed, num_initial=NUM_INITIAL, mesh=MESH, num_draws=num_draws,
            mean_noise_stddev=noise,
        )  # fmt: skip
        study = server.start(
            InProcessGrid(problem_app(problem, server.algorithm, seed), NUM_AGENTS), num_rounds=num_rounds + 1
        ).study
        states = server.seen[1 : num_rounds + 1]
        errors = np.array([_attack(study, states, str(n)) for n in range(NUM_AGENTS)])
        found[f"{noise}/one"], found[f"{noise}/run"] = errors.T
        best = max(study.best.values(), key=lambda row: float(row["value"]))
        optimum, value = problem.optimum(0), problem.true_value(best["config"], 0)
        assert optimum is not None
        assert value is not None
        found[f"{noise}/recommended"] = np.array(optimum - value)
        found[f"{noise}/best"] = differences(study, problem, num_rounds + 1)[1]
    return found


def _attack(study: Study, states: Sequence[CoKGState], agent: str) -> tuple[float, float]:
    """Return the errors of an agent's values that the server recovers from two reports and from all."""
    setting = states[-1].setting
    assert setting is not None
    posteriors = [state.posteriors[agent] for state in states]
    rows = study.trials.where(agent=agent)
    first = NUM_INITIAL + 1  # the warm-up and the agent's own choice
    chosen = np.array([[c["x1"], c["x2"]] for c in rows["config"]], dtype=np.float64)[first:]
    observed = (np.asarray(rows["value"], dtype=np.float64) - setting.shift) / setting.scale
    values, spread = observed[first:], float(observed.std())
    basis = extend(chosen, setting.pivots, setting.hyperparameters)
    means, covariances = [b.mean for b in posteriors], [b.covariance for b in posteriors]
    noise = setting.hyperparameters.noise_variance
    steps = zip(means, covariances, means[1:], basis, strict=False)
    one = np.array([value_of_one_round(*step, noise) for step in steps])
    run = values_of_a_run(means, covariances, basis, noise)
    errors = [float(np.sqrt(np.mean((found - values) ** 2))) for found in (one, run)]
    return errors[0] / spread, errors[1] / spread


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

    def tell(self, state: CoKGState, phase: Phase, reports: Mapping[str, Report]) -> CoKGState:
        begin = time.process_time()
        told = super().tell(state, phase, reports)
        self.spent["tell", state.round] = time.process_time() - begin
        return told


class Timed(TuningStrategy):
    """The Flower strategy of `TimedCoKG`."""

    algorithm_class = TimedCoKG


def server_time(mesh: int, num_rounds: int, num_draws: int) -> Arrays:
    """Run `f1` once and time the server.

    Returns
    -------
    `ask`, `tell` : `(num_rounds,)`, CPU seconds of the rounds with a design
    `pivots` : number of pivots
    """
    problem = make_problem("f1", NUM_AGENTS, 0, {})
    server = Timed(num_agents=NUM_AGENTS, seed=0, num_initial=NUM_INITIAL, mesh=mesh, num_draws=num_draws)
    TimedCoKG.spent.clear()
    agents = problem_app(problem, algorithms.make_algorithm("co-kg", server.algorithm.options()), 0)
    study = server.start(InProcessGrid(agents, NUM_AGENTS), num_rounds=num_rounds + SKIPPED).study
    rounds = range(SKIPPED + 1, num_rounds + SKIPPED + 1)
    spent = {name: np.array([TimedCoKG.spent[name, r] for r in rounds]) for name in ("ask", "tell")}
    return spent | {"pivots": np.array(study.settings["runs"][0]["found"]["num_pivots"], dtype=np.float64)}
