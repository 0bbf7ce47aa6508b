"""Trackers are told of the trials of a tuned federation."""

import pytest
from toy_federation import SPACE, fedavg, toy_grid, toy_model, tune_flat

from fbo_flower.study.optuna import open_storage
from fbo_flower.trackers import Callback, OptunaTracker


class Noted(Callback):
    def __init__(self):
        self.trials, self.rounds, self.result = [], [], None

    def on_trial(self, study, trial):
        self.trials.append(trial)

    def on_round(self, study, finished):
        self.rounds.append(finished)
        raise ValueError("of a tracker")

    def on_finish(self, study, result):
        self.result = result


def tune(*callbacks, num_trials=6, **more):
    given = {"initial_arrays": toy_model(), "rounds": 4, "num_trials": num_trials, "number": 3}
    return tune_flat(toy_grid(3), fedavg, SPACE, callbacks=callbacks, **given, **more)


def trials_in(file):
    """Return the trials of each study in a storage of Optuna."""
    import optuna

    storage = open_storage(file)
    names = optuna.get_all_study_names(storage)
    return [optuna.load_study(study_name=name, storage=storage).trials for name in names]


def test_trackers_get_a_trial_for_each_configuration_with_its_curve(caplog):
    told, called = Noted(), []
    tuned = tune(told, called.append)
    assert sorted(trial.trial for trial in told.trials) == list(range(6))
    for trial, row in zip(sorted(told.trials, key=lambda t: t.trial), tuned.trials, strict=True):
        assert list(trial.intermediate.values()) == tuned.curve(trial.trial)
        assert (trial.value, trial.config) == (row["value"], row["config"])
        assert trial.state == ("succeeded" if row["state"] == "finished" else "stopped early")
    assert len(told.rounds) == len(called)
    assert told.rounds[-1].numbers["best"] == max(tuned.trials["value"])
    assert told.result.settings["runs"][0]["status"] == "finished"
    assert "the study goes on: ValueError: of a tracker" in caplog.text


def test_the_best_that_trackers_get_is_that_of_the_result():
    """A finalist on all clients, and not the largest value of any trial, which few clients have judged."""
    told = Noted()
    tuned = tune(told, finalists=2, schedule="halving", num_parallel=3, num_trials=9)
    largest = tuned.trials.take([int(tuned.trials["value"].argmax())])
    assert largest["trial"][0] != tuned.best_trial
    assert (told.result.best_config, told.result.best_value) == (tuned.best_config, tuned.best_value)


def test_a_second_run_is_another_one_and_a_resumed_run_goes_on(tmp_path):
    pytest.importorskip("optuna")
    tracker, kept = OptunaTracker(tmp_path / "study.log"), {"journals": tmp_path / "journals"}
    tuned = tune(tracker)
    (trials,) = trials_in(tmp_path / "study.log")
    for trial in trials:
        assert list(trial.intermediate_values.values()) == tuned.curve(trial.user_attrs["trial"])
    assert {trial.state.name for trial in trials} == {"COMPLETE", "PRUNED"}
    tune(tracker)
    tune(tracker, num_trials=3, **kept)
    tune(tracker, num_trials=6, resume=True, **kept)
    assert list(map(len, trials_in(tmp_path / "study.log"))) == [6, 6, 6], "equal settings, another run"


def test_an_interrupted_run_does_not_tell_a_trial_that_may_go_on(tmp_path):
    def interrupt(progress):
        if progress.spent > 5:
            raise KeyboardInterrupt

    ended, again = Noted(), Noted()
    with pytest.raises(KeyboardInterrupt):
        tune(ended, interrupt, journals=tmp_path)
    assert (ended.trials, ended.result.settings["runs"][0]["status"]) == ([], "interrupted")
    tune(again, journals=tmp_path, resume=True)
    assert sorted(trial.trial for trial in again.trials) == list(range(6))
