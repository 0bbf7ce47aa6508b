import contextlib
import inspect
import os
import signal
import threading
import weakref

import numpy as np
import pytest
from federation import agents, hill
from waiting import LIMIT

from fbo_flower.algorithms.protocol import DEFAULT_ROUNDS
from fbo_flower.errors import ConfigError
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import FTS, RandomSearch, ThompsonSampling
from fbo_flower.strategies.exchange import Stopped
from fbo_flower.strategies.recorder import Recorder

SMALL = {"num_candidates": 64, "num_path_features": 32}


def search(kind=RandomSearch, **settings):
    return kind(**{"num_agents": 3, "seed": 1, **settings})


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("num_rounds", [0, -1, 1.5, True])
def test_number_of_rounds_must_be_positive(num_rounds):
    strategy = search()
    with pytest.raises(ConfigError, match="num_rounds: expected an integer >= 1"):
        strategy.start(agents(), num_rounds=num_rounds)
    assert strategy.study is None


def test_without_a_number_an_endless_algorithm_gets_the_default():
    study = search().start(agents()).study
    assert len(study.rounds) == DEFAULT_ROUNDS == study.settings["runs"][0]["num_rounds"]


@pytest.mark.parametrize(
    ("kind", "settings", "match"),
    [
        (RandomSearch, {"nope": 1}, "random has no option 'nope'; it has num_initial=3"),
        (FTS, {"advise": "single"}, r"no option 'advise'; did you mean advice\?$"),
        (FTS, {"nope": "single"}, r"advice='single'.*schedule='1-1/sqrt"),
        *(
            (RandomSearch, {name: value}, name)
            for name, value in [
                ("num_initial", 0), ("num_agents", 0), ("seed", -1), ("seed", 0.5), ("fraction", 0.0),
                ("fraction", 1.1), ("quorum", 0), ("round_timeout", -1), ("wait_seconds", float("nan")),
            ]
        ),
    ],
)  # fmt: skip
def test_unusable_settings_are_config_errors(kind, settings, match):
    with pytest.raises(ConfigError, match=match):
        kind(**settings)


def test_options_that_do_not_fit_the_space_are_found_before_the_first_evaluation():
    calls = []
    strategy = search(FTS, lengthscale=[0.1, 0.2, 0.3])
    with pytest.raises(ConfigError, match="expected 2 numbers"):
        strategy.start(agents(3, lambda c, x: calls.append(1) or 0.0), num_rounds=3)
    assert not calls
    assert strategy.study is None


def test_help_shows_the_algorithms_options():
    names = list(inspect.signature(FTS).parameters)
    assert {"num_agents", "quorum", "advice", "schedule", "num_initial"} <= set(names)
    assert "options" not in names


# -- what a run leaves behind ------------------------------------------------------------------


def test_study_holds_every_trial_and_round():
    study = search(FTS, num_features=24, **SMALL).start(agents(), num_rounds=4).study
    assert len(study.trials) == 3 * 6
    assert study.rounds["round"].tolist() == [1, 2, 3, 4]
    (run,) = study.settings["runs"]
    assert (run["status"], run["num_agents"], run["num_rounds"], run["seed"]) == ("finished", 3, 4, 1)
    assert run["options"]["num_features"] == 24
    best = max(study.trials["value"])
    assert study.rounds["best"][-1] == best
    assert (np.diff(study.rounds["best"]) >= 0).all()
    per_agent = [study.trials.where(agent=a)["value"].max() for a in ("0", "1", "2")]
    assert study.rounds["mean_incumbent"][-1] == pytest.approx(np.mean(per_agent))


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


def test_the_last_exchange_counts_with_the_last_round():
    recorder = Recorder("a", SearchSpace({"x": Float(0.0, 1.0)}))
    recorder.open_round()
    recorder.count(tasks=1, bytes_down=10, floats_down=1.0)
    recorder.close_round(1, 1)
    recorder.count(tasks=1, bytes_down=5, floats_down=0.5, replies=1)
    (row,) = recorder.rounds
    assert (row["bytes_down"], row["floats_down"]) == (15, 1.5)
    assert (row["tasks"], row["replies"]) == (1, 0)


def test_nothing_is_written_down_that_was_not_disclosed():
    study = search().start(agents(disclose="none"), num_rounds=3).study
    assert len(study.trials) == 0
    assert np.isnan(study.rounds["best"]).all()
    assert study.rounds["replies"].tolist() == [3, 3, 3]
    only = search().start(agents(disclose="incumbent"), num_rounds=3).study
    assert len(only.trials) == 0
    assert np.isfinite(only.rounds["best"]).all()


def test_the_seed_decides_and_a_strategy_can_be_started_again():
    strategy = search(FTS, label="control", num_features=24, schedule=0.3, **SMALL)
    one, two = (strategy.start(agents(), num_rounds=5).study for _ in range(2))
    assert one.trials == two.trials
    assert one.algorithms == ["control"]
    assert one.settings["runs"][0]["study"] != two.settings["runs"][0]["study"]
    other = FTS(num_agents=3, seed=2, num_features=24, schedule=0.3, **SMALL)
    assert other.start(agents(), num_rounds=5).study.trials != one.trials


def test_progress_is_told_after_every_round():
    told = []
    study = search(callbacks=[told.append]).start(agents(), num_rounds=4).study
    assert [(p.server_round, p.num_rounds, p.replies) for p in told] == [(i, 4, 3) for i in range(1, 5)]
    assert [p.best for p in told] == study.rounds["best"].tolist()


# -- part of the agents ------------------------------------------------------------------------


def test_fraction_asks_one_agent_at_least():
    study = search(fraction=0.01).start(agents(), num_rounds=4).study
    assert study.rounds["tasks"].tolist() == [1] * 4


# -- interruptions -----------------------------------------------------------------------------


def test_keyboard_interrupt_keeps_what_was_done():
    def interrupted(config, context):
        if context.agent == "1" and context.trial == 5:
            raise KeyboardInterrupt
        return hill(config, context)

    strategy = search()
    with pytest.raises(KeyboardInterrupt):
        strategy.start(agents(3, interrupted), num_rounds=9)
    assert strategy.study.settings["runs"][0]["status"] == "interrupted"
    assert strategy.study.rounds["round"].tolist() == [1, 2, 3]
    assert len(strategy.study.trials) == 3 * 5


def swallowed():
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def turned_into_another_error():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise RuntimeError("a worker has died") from None


def lost_in_a_callback():
    class Thing:
        pass

    thing = Thing()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    assert kept() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("losing", [swallowed, turned_into_another_error, lost_in_a_callback])
def test_ctrl_c_ends_a_run_also_if_the_exception_gets_lost(losing, mode, tmp_path):
    def interrupted(config, context):
        if context.agent == "1" and context.trial == 5:
            losing()
        return hill(config, context)

    before, strategy = signal.getsignal(signal.SIGINT), search()
    with pytest.raises(KeyboardInterrupt):
        strategy.start(agents(3, interrupted), num_rounds=20, journal=tmp_path / "study.db", mode=mode)
    assert strategy.study.settings["runs"][0]["status"] == "interrupted"
    assert len(strategy.study.rounds) < 6
    assert signal.getsignal(signal.SIGINT) is before
    again = search()
    study = again.start(agents(), num_rounds=20, journal=tmp_path / "study.db", resume=True, mode=mode).study
    assert len(study.rounds) == 20


def test_stop_from_another_thread_keeps_what_was_done_and_is_heard_once():
    caught, second_round, told_to_stop = [], threading.Event(), threading.Event()

    def pause(progress):
        if progress.server_round == 2:
            second_round.set()
            assert told_to_stop.wait(LIMIT)

    strategy = search(callbacks=[pause])

    def work():
        try:
            strategy.start(agents(), num_rounds=100)
        except Stopped as stopped:
            caught.append(stopped)

    thread = threading.Thread(target=work)
    thread.start()
    assert second_round.wait(LIMIT)
    strategy.stop()
    told_to_stop.set()
    thread.join(LIMIT)
    assert caught
    assert strategy.study.settings["runs"][0]["status"] == "interrupted"
    assert strategy.study.rounds["round"].tolist() == [1, 2]
    assert strategy.start(agents(), num_rounds=1).study.settings["runs"][0]["status"] == "finished"


def test_failure_of_a_callback_keeps_what_was_done():
    def broken(progress):
        if progress.server_round == 2:
            raise RuntimeError("disk full")

    strategy = search(ThompsonSampling, callbacks=[broken], **SMALL)
    with pytest.raises(RuntimeError, match="disk full"):
        strategy.start(agents(), num_rounds=5)
    assert strategy.study.settings["runs"][0]["status"] == "failed"
    assert strategy.study.rounds["round"].tolist() == [1, 2]


def test_failing_start_does_not_show_an_earlier_study():
    strategy = search(wait_seconds=0.1)
    strategy.start(agents(), num_rounds=1)
    with pytest.raises(ConfigError, match=r"expected 3, only 2 registered after 0.1 s"):
        strategy.start(agents(2), num_rounds=1)
    assert strategy.study is None
