"""A running study in Optuna's storage and in its dashboard."""

import logging
import math

import pytest
from federation import log_lines
from tracked import SPACE, score, tune

from fbo_flower.clients import client_app
from fbo_flower.errors import FBOError
from fbo_flower.simulation.durations import constant, slower
from fbo_flower.simulation.grids import ClockedGrid, InProcessGrid
from fbo_flower.strategies import STRATEGIES
from fbo_flower.study import Study
from fbo_flower.study.optuna import OptunaWriter, open_storage
from fbo_flower.study.trial import Trial
from fbo_flower.trackers import Callback, OptunaTracker, RoundInfo, StudyInfo

optuna = pytest.importorskip("optuna", reason="needs fbo-flower[optuna]")
from optuna.trial import TrialState  # noqa: E402

ALWAYS, NEVER = 0.0, math.inf  # running_from


def trials(place):
    """Return all trials of a storage."""
    storage = open_storage(place)
    names = optuna.get_all_study_names(storage)
    return [t for name in names for t in optuna.load_study(study_name=name, storage=storage).trials]


class Look(Callback):
    """Looks into the storage when a trial begins, and at the end of every round."""

    def __init__(self, place):
        self.place, self.running, self.finished = place, [], []

    def on_trial(self, study, trial):
        if trial.state == "running":
            self.running.append(sum(t.state is TrialState.RUNNING for t in trials(self.place)))

    def on_round(self, study, finished):
        self.finished.append(len(trials(self.place)))


@pytest.mark.parametrize("running_from", [ALWAYS, NEVER])
def test_trials_are_shown_as_running_and_are_there_when_their_round_ends(tmp_path, running_from):
    place = tmp_path / "study.log"  # much quicker than a database
    look = Look(place)
    study = tune([OptunaTracker(place, running_from=running_from), look], num_rounds=2)
    assert look.finished == [sum(study.trials["round"] <= number) for number in (1, 2)]
    one, two = look.finished[0], look.finished[1] - look.finished[0]  # trials of a round begin in turn
    later = list(range(1, two + 1)) if running_from == ALWAYS else [0] * two
    assert look.running == [*range(1, one + 1), *later], "before the first round, none was short"
    assert Study.from_optuna(place, space=SPACE).trials == study.trials
    study.to_optuna(place)
    assert len(trials(place)) == len(study.trials), "the export of the finished study adds nothing"


def test_what_is_under_way_when_an_asynchronous_study_ends_has_failed(tmp_path):
    app = client_app(score, SPACE, seed=1, disclose="trials")
    tracker = OptunaTracker(tmp_path / "study.log", running_from=ALWAYS)
    grid = ClockedGrid(InProcessGrid(app, 3), slower(constant(1.0), {"2": 90.0}), 1)
    strategy = STRATEGIES["random"](seed=1, num_agents=3, callbacks=[tracker])
    study = strategy.start(grid, num_rounds=3, mode="async").study
    assert "2" not in study.trials["agent"]
    storage = open_storage(tmp_path / "study.log")
    (slow, *_) = optuna.load_study(study_name="random: 2", storage=storage).trials
    assert slow.state is TrialState.FAIL
    assert slow.user_attrs["failure"] == "no valid answer came before the study ended"


@pytest.mark.parametrize("before", [ALWAYS, None])
def test_a_resumed_study_goes_on_without_writing_twice_or_is_written_from_its_beginning(tmp_path, before):
    url, journal = tmp_path / "study.log", tmp_path / "journal.db"
    tracked = [] if before is None else [OptunaTracker(url, running_from=before)]
    tune(tracked, num_rounds=2, journal=journal)
    tracker = OptunaTracker(url, running_from=before or ALWAYS)
    study = tune([tracker], num_rounds=4, journal=journal, resume=True)
    assert Study.from_optuna(url, space=SPACE).trials == study.trials


def test_a_full_disk_costs_a_warning_and_the_trials_come_later(tmp_path, monkeypatch):
    create, calls = OptunaWriter._frozen, []

    def full(self, trial):
        calls.append(trial)
        if 4 <= len(calls) <= 6:
            raise OSError(28, "No space left on device")
        return create(self, trial)

    monkeypatch.setattr(OptunaWriter, "_frozen", full)
    with log_lines(logging.WARNING) as lines:
        study = tune([OptunaTracker(tmp_path / "study.log", running_from=NEVER)], num_rounds=6)
    assert any("No space left on device" in line for line in lines)
    assert len(Study.from_optuna(tmp_path / "study.log").trials) == len(study.trials)


def test_a_storage_that_is_lost_is_tried_less_and_less_often():
    tracker = OptunaTracker("nosuch://host/db")
    info, tried = StudyInfo("id", "mine", "random", {}, SPACE, False), []
    for number in range(1, 40):
        tracker.on_trial(info, Trial("a", number, number, "succeeded", {}, 0.5))
        try:
            tracker.on_round(info, RoundInfo(number, {"seconds": 0.0}))
        except FBOError:
            tried.append(number)
    assert tried == [1, 3, 6, 11, 20, 37]
