"""Callbacks learn what the server holds, and cannot end a study."""

import logging
import math

import pytest
from federation import log_lines
from tracked import SPACE, score, tune

from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS
from fbo_flower.trackers import Callback


class Diary(Callback):
    """Writes down all that it is told, and then fails if it has an `error`."""

    def __init__(self, error=None):
        self.events, self.info, self.error = [], None, error

    def note(self, kind, event):
        self.events.append((kind, event))
        if self.error is not None:
            raise self.error

    def on_trial(self, study, trial):
        self.info = study
        self.note(trial.state, trial)

    def on_round(self, study, finished):
        self.note("round", finished)

    def on_finish(self, study, result):
        self.note("finish", result)

    def of(self, *kinds):
        return [event for kind, event in self.events if kind in kinds]

    def told_all_of(self, study):
        """Return whether it was told every trial of a study, once."""
        told = {(t.agent, t.trial): t.config for t in self.of("succeeded", "failed")}
        number = len(self.of("succeeded", "failed"))
        return told == {(r["agent"], r["trial"]): r["config"] for r in study.trials} and len(told) == number


def test_a_callback_is_told_every_disclosed_trial_when_it_begins_and_when_its_round_ends():
    diary = Diary()
    study = tune([diary])
    assert diary.told_all_of(study)
    assert diary.of("finish") == [study]
    running, finished_before = set(), 0
    for kind, event in diary.events:
        if kind == "round":
            finished_before = event.round
        elif kind == "running":
            assert not event.config
            assert math.isnan(event.value)
            running.add((event.agent, event.trial))
        elif kind != "finish":
            assert event.round == finished_before + 1
            assert (event.agent, event.trial) in running
    assert finished_before == 3
    for row, finished in zip(study.rounds, diary.of("round"), strict=True):
        assert {name: row[name] for name in finished.numbers} == pytest.approx(finished.numbers, nan_ok=True)
    assert (diary.info.label, diary.info.algorithm, diary.info.space) == ("by chance", "random", SPACE)


@pytest.mark.parametrize(("disclose", "shows_best"), [("none", False), ("incumbent", True)])
def test_what_agents_do_not_disclose_reaches_no_callback(disclose, shows_best):
    diary = Diary()
    tune([diary], disclose=disclose)
    assert diary.of("running", "succeeded", "failed") == []
    assert [math.isfinite(finished.numbers["best"]) for finished in diary.of("round")] == [shows_best] * 3


def test_a_callback_that_fails_costs_a_warning_and_nothing_else():
    diary = Diary()
    with log_lines(logging.WARNING) as lines:
        study = tune([Diary(RuntimeError("no disk")), diary])
    assert study.trials == tune([]).trials
    assert diary.told_all_of(study), "others are still told"
    assert [line for line in lines if "the study goes on" in line] == [
        f"Diary.on_{event} failed, the study goes on: RuntimeError: no disk"
        for event in ("trial", "round", "finish")
    ]


def test_a_resumed_study_is_told_from_its_beginning(tmp_path):
    first, second = Diary(), Diary()
    grid = InProcessGrid(client_app(score, SPACE, seed=1, disclose="trials"), 3)
    tune([first], num_rounds=2, journal=tmp_path / "study.db")
    study = tune([second], num_rounds=4, journal=tmp_path / "study.db", resume=True, grid=grid)
    assert second.told_all_of(study)
    assert [finished.round for finished in second.of("round")] == [1, 2, 3, 4]
    assert (first.info.num_replayed, second.info.num_replayed) == (0, 2)
    assert first.info.study == second.info.study


def test_an_interrupted_study_is_told_its_end():
    diary = Diary()

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune([diary, stop])
    (result,) = diary.of("finish")
    assert result.settings["runs"][0]["status"] == "interrupted"
    assert diary.told_all_of(result)


def test_something_else_than_a_callback_is_refused_before_the_run():
    refused = {"inherits from": [object()], "expected a list": Diary(), "the class Diary": [Diary]}
    for message, callbacks in refused.items():
        with pytest.raises(ConfigError, match=message):
            FTS(callbacks=callbacks)
