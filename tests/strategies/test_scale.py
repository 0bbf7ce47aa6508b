"""What has to hold for thousands of agents: fair cohorts, and memory that does not grow with the rounds."""

from __future__ import annotations

import gc
import logging
import pickle
import tracemalloc

import numpy as np
import pytest
from scipy.stats import chi2

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Federation, Phase, Report, Trials
from fbo_flower.clients import client_app
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import STRATEGIES, RoundProgress
from fbo_flower.strategies.recorder import Recorder
from fbo_flower.wire.codec import Disclosure

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
NUM_AGENTS, NUM_ROUNDS, COHORT = 12, 100, 4


def drawn(seed: int, num_rounds: int = NUM_ROUNDS) -> list[tuple[int, ...]]:
    app = client_app(lambda config, context: config["x"], SPACE, seed=0, disclose="trials")
    strategy = STRATEGIES["random"](num_agents=NUM_AGENTS, seed=seed, fraction=1 / 3, num_initial=1)
    trials = strategy.start(InProcessGrid(app, NUM_AGENTS), num_rounds=num_rounds).study.trials
    rounds = [sorted(map(int, trials["agent"][trials["round"] == r + 1])) for r in range(num_rounds)]
    return [tuple(cohort) for cohort in rounds]


def test_cohorts_are_fair_and_belong_to_the_seed() -> None:
    cohorts = drawn(3)
    assert {len(cohort) for cohort in cohorts} == {COHORT}
    counts = np.bincount(np.concatenate(cohorts), minlength=NUM_AGENTS)
    share = COHORT / NUM_AGENTS
    variance = NUM_ROUNDS * share * (1 - share) * NUM_AGENTS / (NUM_AGENTS - 1)
    statistic = np.sum((counts - NUM_ROUNDS * share) ** 2) / variance
    assert chi2.sf(statistic, NUM_AGENTS - 1) > 0.001, "every round draws its cohort fairly"
    assert drawn(3, 9) == cohorts[:9] != drawn(4, 9)


def test_what_the_server_of_fts_keeps_does_not_grow_with_the_rounds() -> None:
    algorithm = make_algorithm("fts", {"schedule": 0.2, "num_features": 200, "preferences": "learned"})
    agents = tuple(map(str, range(40)))
    rng = np.random.default_rng(0)
    state = algorithm.init(Federation(SPACE, agents), rng)
    sizes = []
    for server_round in range(1, 31):
        present = agents if server_round < 3 else sorted(rng.choice(agents, 8, replace=False))
        state, tasks = algorithm.ask(state, Phase.TRAIN, server_round, present, rng)
        reports = {
            agent: Report(task.trial, task.num_trials, 0, {"weights": rng.standard_normal(200)})
            for agent, task in tasks.items()
        }
        state = algorithm.tell(state, Phase.TRAIN, Replies(reports, algorithm.report_content))
        sizes.append(len(pickle.dumps(state)))
    assert sizes[-1] <= 2.5 * sizes[2], "messages, and the advice that may have to be sent again"


ROWS = SearchSpace({"x": Float(0.0, 2.0), "k": Int(1, 4)})
POINTS = ROWS.snap(np.array([[0.25, 0.1], [0.5, 0.9]]))


def test_a_disclosed_trial_takes_less_than_a_hundred_bytes() -> None:
    recorder, number = Recorder("random", ROWS), 16_000
    times = np.array([[1.7e9, 1.7e9 + 1], [1.7e9 + 1, 1.7e9 + 2]])
    tracemalloc.start()
    try:
        recorder.open_round()
        before = tracemalloc.get_traced_memory()[0]
        for first in range(0, number, 2):
            trials = Trials(POINTS, np.array([1.0, 2.0]), np.array([first, first + 1]), times=times)
            recorder.record("a", 1, Report(0, 2), Disclosure(trials))
        recorder.close_round(1)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / number < 100


FEW, FIRST, LAST = 8, 10, 20


def test_a_round_adds_hardly_more_than_its_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    """136 bytes of the observation, 60 of the round's row, the rest of caches that fill."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps every line
    held: dict[int, int] = {}

    def on_round(progress: RoundProgress) -> None:
        if progress.server_round in (FIRST, LAST):
            gc.collect()
            held[progress.server_round] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        algorithm = make_algorithm("fts", {"num_candidates": 64})
        given = {"agents": FEW, "num_rounds": LAST, "engine": "inline", "callbacks": [on_round]}
        simulate("garland", algorithm=algorithm, **given)
    finally:
        tracemalloc.stop()
    assert held[LAST] - held[FIRST] < 600 * FEW * (LAST - FIRST)
