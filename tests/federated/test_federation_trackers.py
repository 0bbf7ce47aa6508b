import pytest
from toy_federation import SPACE, fedavg, toy_grid, toy_model, tune_flat

from fbo_flower.errors import ConfigError
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


def tune(*callbacks):
    return tune_flat(
        toy_grid(3), fedavg, SPACE, initial_arrays=toy_model(), rounds=4, num_trials=6, callbacks=callbacks
    )


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
    assert "the run goes on: ValueError: of a tracker" in caplog.text


def test_optuna_shows_the_trials_and_their_intermediate_values(tmp_path):
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    tuned = tune(OptunaTracker(storage))
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    assert len(trials) == 6
    for trial in trials:
        assert list(trial.intermediate_values.values()) == tuned.curve(trial.user_attrs["trial"])
    assert {trial.state.name for trial in trials} == {"COMPLETE", "PRUNED"}


@pytest.mark.parametrize("wrong", [3, Noted])
def test_what_is_no_callback_is_refused(wrong):
    with pytest.raises(ConfigError, match="callbacks: expected functions"):
        tune(wrong)
