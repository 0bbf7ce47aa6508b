"""What has to hold for thousands of agents: fair cohorts, and memory that does not grow with the rounds."""

from __future__ import annotations

import gc
import logging
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from amounts import slow
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


def p_value(counts: np.ndarray, num_rounds: int = NUM_ROUNDS) -> float:
    """Return the probability of counts at least as uneven, if every round draws its cohort fairly.

    With a fair draw without replacement the sum of squared deviations over the variance of one count, times
    `(N - 1) / N`, is about chi-squared with `N - 1` degrees of freedom.
    """
    share = COHORT / NUM_AGENTS
    variance = num_rounds * share * (1 - share)
    statistic = np.sum((counts - num_rounds * share) ** 2) / variance * (NUM_AGENTS - 1) / NUM_AGENTS
    return float(chi2.sf(statistic, NUM_AGENTS - 1))


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
    assert p_value(counts) > 0.001
    pairs = np.zeros((NUM_AGENTS, NUM_AGENTS))
    for cohort in cohorts:
        pairs[np.ix_(cohort, cohort)] += 1
    expected = NUM_ROUNDS * COHORT * (COHORT - 1) / (NUM_AGENTS * (NUM_AGENTS - 1))
    others = pairs[~np.eye(NUM_AGENTS, dtype=bool)]
    assert others.max() < expected + 5 * np.sqrt(expected), "nobody always comes with the same company"
    assert drawn(3, 9) == cohorts[:9] != drawn(4, 9)


def test_the_check_of_fairness_finds_an_unfair_draw() -> None:
    rng = np.random.default_rng(0)
    weights = np.where(np.arange(NUM_AGENTS) < 3, 2.0, 1.0)
    counts = np.zeros(NUM_AGENTS)
    for _ in range(NUM_ROUNDS):
        counts[rng.choice(NUM_AGENTS, COHORT, replace=False, p=weights / weights.sum())] += 1
    assert p_value(counts) < 0.001


@pytest.mark.parametrize("options", [{}, {"preferences": "learned"}, {"advice": "portfolio"}])
def test_what_the_server_of_fts_keeps_does_not_grow_with_the_rounds(options: dict[str, object]) -> None:
    algorithm = make_algorithm("fts", {"schedule": 0.2, "num_features": 200, **options})
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
        sizes.append(held(state))
    assert sizes[-1] <= 2.5 * sizes[2], "messages, and the advice that may have to be sent again"


def held(state: object) -> int:
    """Return the bytes of all arrays that a state keeps alive, an array's base for the array."""
    found: dict[int, int] = {}
    waiting = [state]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, np.ndarray):
            base = thing
            while isinstance(base.base, np.ndarray):
                base = base.base
            found[id(base)] = base.nbytes
        elif isinstance(thing, dict):
            waiting += thing.values()
        elif isinstance(thing, tuple | list | frozenset):
            waiting += thing
        elif hasattr(thing, "__dict__") and type(thing).__module__.startswith("fbo_flower"):
            waiting += vars(thing).values()
    return sum(found.values())


ROWS = SearchSpace({"x": Float(0.0, 2.0), "k": Int(1, 4)})


def _outcome(first: int, **extra: object) -> Trials:
    points = ROWS.snap(np.array([[0.25, 0.1], [0.5, 0.9]]))
    return Trials(points, np.array([1.0, 2.0]), np.array([first, first + 1]), **extra)  # type: ignore[arg-type]


def _disclosed(values: list[float], times: np.ndarray | None = None, **extra: object) -> Disclosure:
    return Disclosure(trials=replace(_outcome(0, **extra), values=np.array(values), times=times))


def disclose(recorder: Recorder, agent: str, server_round: int, disclosure: Disclosure) -> None:
    recorder.record(agent, server_round, Report(0, 2), disclosure)


def test_a_disclosed_trial_takes_less_than_a_hundred_bytes() -> None:
    recorder = Recorder("random", ROWS)
    times = np.array([[1.7e9, 1.7e9 + 1], [1.7e9 + 1, 1.7e9 + 2]])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for first in range(0, 40_000, 2):
            if first % 4_000 == 0:
                recorder.open_round()
            disclose(recorder, "a", 1 + first // 4_000, Disclosure(trials=_outcome(first, times=times)))
            if first % 4_000 == 3_998:
                recorder.close_round(1 + first // 4_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / 40_000 < 100


def test_tables_hold_configurations_failures_last_steps_and_disclosed_times() -> None:
    recorder, failures = Recorder("fts", ROWS), np.array(["", "no memory"], dtype=object)
    disclose(recorder, "a", 1, _disclosed([1.0, math.nan], failures=failures))
    times = np.array([[5.0, 6.0], [6.0, 8.0]])
    disclose(recorder, "b", 2, _disclosed([3.0, 4.0], times, stopped=np.array([7, -1])))
    study = recorder.study({"algorithm": "fts"})
    table = study.trials
    assert table["config"].tolist() == [{"x": 0.5, "k": 1}, {"x": 1.0, "k": 4}] * 2
    assert table["failure"].tolist() == ["", "no memory", "", ""]
    assert np.array_equal(table["stopped_at"], [math.nan, math.nan, 7.0, math.nan], equal_nan=True)
    assert list(study.times) == [
        {"algorithm": "fts", "agent": "b", "trial": 0, "started": 5.0, "ended": 6.0},
        {"algorithm": "fts", "agent": "b", "trial": 1, "started": 6.0, "ended": 8.0},
    ]


FEW, FIRST, LAST = 8, 10, 20


@pytest.mark.parametrize(
    ("algorithm", "options", "most"),
    [
        ("random", {}, 500),  # 136 of the observation, 60 of the round's row, the rest of caches that fill
        ("fts", {"num_candidates": 64}, 600),  # and two tables of index pairs, which all agents share
        pytest.param("fed-ei", {"num_candidates": 64, "secure_sums": 0}, 900, marks=slow),
    ],
)
def test_a_round_adds_hardly_more_than_its_observations(
    algorithm: str, options: dict[str, object], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps every line
    held: dict[int, int] = {}

    def on_round(progress: RoundProgress) -> None:
        if progress.server_round in (FIRST, LAST):
            gc.collect()
            held[progress.server_round] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        simulate(
            "garland",
            agents=FEW,
            algorithm=make_algorithm(algorithm, options),
            num_rounds=LAST,
            engine="inline",
            callbacks=[on_round],
        )
    finally:
        tracemalloc.stop()
    assert held[LAST] - held[FIRST] < most * FEW * (LAST - FIRST)
