"""What a run needs, what it leaves behind and says, and how it is interrupted."""

import contextlib
import gc
import logging
import math
import os
import signal
import threading
import time
import tracemalloc

import numpy as np
import pytest
from federation import agents, hill, log_lines
from scipy.stats import chi2
from waiting import LIMIT

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.protocol import DEFAULT_TRIALS
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS, STRATEGIES, FedEI, RandomSearch, RoundProgress, process
from fbo_flower.strategies.exchange import Stopped

SMALL = {"num_candidates": 64, "num_path_features": 32}


def search(kind=RandomSearch, **settings):
    return kind(**{"num_agents": 3, "seed": 1, **settings})


def status(strategy):
    return strategy.study.settings["runs"][0]["status"]


def test_what_cannot_run_is_refused_before_the_first_evaluation():
    calls = []
    for settings in ({"num_initial": 0}, {"num_agents": 0}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            search(**settings)
    strategy = search(FTS, lengthscale=[0.1, 0.2, 0.3])
    with pytest.raises(ConfigError, match="expected 2 numbers"):
        strategy.start(agents(3, lambda c, x: calls.append(1) or 0.0), num_rounds=3)
    for num_rounds in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="num_rounds: expected an integer >= 1"):
            strategy.start(agents(), num_rounds=num_rounds)
    assert not calls
    assert strategy.study is None


@pytest.mark.parametrize(("number", "least", "is_told"), [(2, 3, True), (2, 2, False), (1, 3, False)])
def test_too_few_agents_for_a_secure_sum_are_told_that_they_exchange_nothing(number, least, is_told):
    found = search(FedEI, num_agents=number, secure_sums=least, num_candidates=16)
    with log_lines() as lines:
        study = found.start(agents(number, hill), num_rounds=2).study
    text = f"secure_sums = {least}, but {number} agents take part"
    assert any(text in line for line in lines) == is_told
    assert any(study.rounds["floats_up"]) == (number > 1 and not is_told)


def test_study_holds_every_trial_and_round_and_callbacks_are_told():
    told = []
    study = search(label="control", callbacks=[told.append]).start(agents()).study
    numbers = list(range(1, DEFAULT_TRIALS - 1))  # the first round has three
    assert study.rounds["round"].tolist() == numbers, "the default of an endless algorithm"
    assert len(study.trials) == 3 * DEFAULT_TRIALS
    assert study.algorithms == ["control"]
    (run,) = study.settings["runs"]
    found = [run[name] for name in ("status", "num_agents", "num_rounds", "num_trials", "seed")]
    assert found == ["finished", 3, len(numbers), DEFAULT_TRIALS, 1]
    assert study.rounds["best"].tolist() == [p.best for p in told]
    per_agent = [study.trials.where(agent=a)["value"].max() for a in "012"]
    assert (told[-1].best, told[-1].mean) == (max(per_agent), pytest.approx(np.mean(per_agent)))
    assert [(p.server_round, p.done) for p in told] == [(n, (n + 2, DEFAULT_TRIALS)) for n in numbers]


def test_numbers_and_bytes_are_counted_both_ways():
    model = {"num_features": 100, "schedule": 0.0, **SMALL}
    sent = search(FTS, **model).start(agents(disclose="none"), num_rounds=2).study.rounds
    plain = search().start(agents(disclose="none"), num_rounds=2).study.rounds
    # round 2: frequencies (100, 2), phases and weights (100,) down, weights up
    assert (sent["floats_down"][1], sent["floats_up"][1]) == (3 * 400, 3 * 100)
    assert plain["floats_up"].tolist() == plain["floats_down"].tolist() == [0.0, 0.0]
    # with 128 bytes of header each
    down, up = (sent[column][1] - plain[column][1] for column in ("bytes_down", "bytes_up"))
    assert 3 * (400 * 8 + 3 * 128) < down < 3 * (400 * 8 + 3 * 128 + 600)
    assert 3 * (100 * 8 + 128) < up < 3 * (100 * 8 + 128 + 60)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({"best": 0.5}, "best 0.5000, mean 0.2500"),
        ({"disclosed": False}, "values not disclosed"),
        ({}, "no value yet"),
        ({"limited": True}, "no trial holds the limits yet"),
        ({"limited": True, "feasible": 2}, "2 feasible trials"),
        ({"feasible": 0}, "0 feasible trials"),
    ],
)
def test_the_line_of_a_round_says_what_is_known_of_the_values(numbers, text):
    best = numbers.pop("best", math.nan)
    progress = RoundProgress(1, best, 0.25, 2, 3, 4, 1, 1.0, evaluations=5, **numbers)
    assert str(progress).startswith(f"{text}, 2 replies, 3 lost, 4 refused; 1 of 5 evaluations failed, the ")


def swallowed():
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def turned_into_another_error():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise RuntimeError("a worker has died") from None


@pytest.mark.parametrize(("losing", "mode"), [(swallowed, "sync"), (turned_into_another_error, "async")])
def test_ctrl_c_ends_a_run_also_if_the_exception_gets_lost(losing, mode, tmp_path):
    def interrupted(config, context):
        if context.agent == "1" and context.trial == 5:
            losing()
        return hill(config, context)

    before, strategy = signal.getsignal(signal.SIGINT), search()
    with pytest.raises(KeyboardInterrupt):
        strategy.start(agents(3, interrupted), num_rounds=9, journal=tmp_path / "study.db", mode=mode)
    assert status(strategy) == "interrupted"
    assert 3 <= len(strategy.study.rounds) < 6
    assert len(strategy.study.trials) >= 3 * 5
    assert signal.getsignal(signal.SIGINT) is before
    again = search()
    study = again.start(agents(), num_rounds=9, journal=tmp_path / "study.db", resume=True, mode=mode).study
    assert len(study.rounds) == 9


class HttpGrid(InProcessGrid):
    """Named as Flower's grid of a ServerApp, which tries for ever to reach its SuperLink."""

    def pull_messages(self, message_ids):
        if self._num_messages > 3 * 4:  # in round 4
            time.sleep(LIMIT)
        return super().pull_messages(message_ids)


def test_a_run_whose_superlink_is_gone_ends_and_frees_its_journal(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(process, "_SILENCE", 0.2)
    strategy, journal = search(), tmp_path / "study.db"
    with pytest.raises(KeyboardInterrupt):
        strategy.start(HttpGrid(agents(3)._app, 3), num_rounds=9, journal=journal)
    assert "The SuperLink has not answered for 0.2 s: this run ends; resume it" in caplog.text
    assert status(strategy) == "interrupted"
    assert len(search().start(agents(3), num_rounds=9, journal=journal, resume=True).study.rounds) == 9


def test_stop_from_another_thread_keeps_what_was_done_and_is_heard_once():
    def stop(progress):
        if progress.server_round == 2:
            thread = threading.Thread(target=strategy.stop)
            thread.start()
            thread.join(LIMIT)

    strategy = search(callbacks=[stop])
    with pytest.raises(Stopped):
        strategy.start(agents(), num_rounds=100)
    assert status(strategy) == "interrupted"
    assert strategy.study.rounds["round"].tolist() == [1, 2]
    strategy.start(agents(), num_rounds=1)
    assert status(strategy) == "finished"


def test_the_seed_decides_and_a_strategy_can_be_started_again():
    options = {"num_features": 24, "schedule": 0.3, **SMALL}
    strategy = search(FTS, **options)
    one, two = (strategy.start(agents(), num_rounds=3).study for _ in range(2))
    assert one.trials == two.trials
    assert one.settings["runs"][0]["study"] != two.settings["runs"][0]["study"]
    assert search(FTS, seed=2, **options).start(agents(), num_rounds=3).study.trials != one.trials


NUM_AGENTS, NUM_ROUNDS, COHORT = 12, 100, 4


def drawn(seed, num_rounds=NUM_ROUNDS):
    strategy = STRATEGIES["random"](num_agents=NUM_AGENTS, seed=seed, fraction=1 / 3, num_initial=1)
    trials = strategy.start(agents(NUM_AGENTS), num_rounds=num_rounds).study.trials
    rounds = [sorted(map(int, trials["agent"][trials["round"] == r + 1])) for r in range(num_rounds)]
    return [tuple(cohort) for cohort in rounds]


def test_cohorts_are_fair_and_belong_to_the_seed():
    cohorts = drawn(3)
    assert {len(cohort) for cohort in cohorts} == {COHORT}
    counts = np.bincount(np.concatenate(cohorts), minlength=NUM_AGENTS)
    share = COHORT / NUM_AGENTS
    variance = NUM_ROUNDS * share * (1 - share) * NUM_AGENTS / (NUM_AGENTS - 1)
    statistic = np.sum((counts - NUM_ROUNDS * share) ** 2) / variance
    assert chi2.sf(statistic, NUM_AGENTS - 1) > 0.001, "every round draws its cohort fairly"
    assert drawn(3, 9) == cohorts[:9] != drawn(4, 9)


FEW, FIRST, LAST = 8, 10, 20


def test_a_round_adds_hardly_more_than_its_observations(monkeypatch):
    """136 bytes of the observation, 60 of the round's row, the rest of caches that fill."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps every line
    held = {}

    def on_round(progress):
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
