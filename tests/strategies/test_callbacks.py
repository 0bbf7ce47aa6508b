"""Callbacks learn what the server holds, and cannot end a study."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
from tracked import SPACE, score, tune

from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import simulate
from fbo_flower.simulation.clocked_grid import ClockedGrid
from fbo_flower.simulation.durations import constant, slower
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS, STRATEGIES
from fbo_flower.study import Study
from fbo_flower.study.trial import Trial
from fbo_flower.trackers import Callback, RoundInfo, StudyInfo


class Diary(Callback):
    """Writes down all that it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.info: StudyInfo | None = None

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        self.info = study
        self.events.append((trial.state, trial))

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        self.info = study
        self.events.append(("round", finished))

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        self.info = study
        self.events.append(("finish", result))

    def of(self, *kinds: str) -> list[Any]:
        return [event for kind, event in self.events if kind in kinds]


class Broken(Callback):
    """Fails at everything."""

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        raise RuntimeError("no disk")

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        raise RuntimeError("no network")

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        raise SystemError("no idea")


def told(diary: Diary) -> list[tuple[str, int, Any]]:
    return [(t.agent, t.trial, t.config) for t in diary.of("succeeded", "failed")]


def rows(study: Study) -> list[tuple[str, int, Any]]:
    return [(row["agent"], row["trial"], row["config"]) for row in study.trials]


def by_place(trial: tuple[str, int, Any]) -> tuple[str, int]:
    return trial[:2]


def test_a_callback_is_told_every_disclosed_trial_when_its_round_ends() -> None:
    diary = Diary()
    study = tune([diary])
    assert sorted(told(diary), key=by_place) == sorted(rows(study), key=by_place)
    assert [finished.round for finished in diary.of("round")] == [1, 2, 3]
    assert diary.of("finish") == [study]
    finished_before = 0
    for kind, event in diary.events:
        if kind == "round":
            finished_before = event.round
        elif kind != "finish":
            assert event.round == finished_before + 1
    for row, finished in zip(study.rounds, diary.of("round"), strict=True):
        assert {name: row[name] for name in finished.numbers} == pytest.approx(finished.numbers, nan_ok=True)
    assert diary.info is not None
    assert (diary.info.label, diary.info.algorithm, diary.info.space) == ("by chance", "random", SPACE)


def test_a_trial_is_running_before_it_is_finished() -> None:
    diary = Diary()
    tune([diary])
    running: dict[tuple[str, int], int] = {}
    for place, (kind, event) in enumerate(diary.events):
        if kind == "running":
            assert not event.config
            assert math.isnan(event.value)
            running[event.agent, event.trial] = place
        elif kind in {"succeeded", "failed"}:
            assert running[event.agent, event.trial] < place


def test_what_agents_do_not_disclose_reaches_no_callback() -> None:
    for disclose in (None, "none"):
        diary = Diary()
        tune([diary], disclose=disclose)
        assert diary.of("running", "succeeded", "failed") == []
        assert len(diary.of("round")) == 3
        for finished in diary.of("round"):
            assert math.isnan(finished.numbers["best"])
            assert math.isnan(finished.numbers["mean_incumbent"])


def test_of_an_incumbent_only_the_best_value_reaches_a_callback() -> None:
    diary = Diary()
    tune([diary], disclose="incumbent")
    assert diary.of("running", "succeeded", "failed") == []
    assert diary.of("round")[-1].numbers["best"] > 0.8


def test_a_callback_that_fails_costs_a_warning_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    diary = Diary()
    with caplog.at_level(logging.WARNING, "flwr"):
        study = tune([Broken(), diary])
    assert study.trials == tune([]).trials
    assert sorted(told(diary), key=by_place) == sorted(rows(study), key=by_place), "others are still told"
    warnings = [r.getMessage() for r in caplog.records if "the study goes on" in r.getMessage()]
    assert warnings == [
        "Broken.on_trial failed, the study goes on: RuntimeError: no disk",
        "Broken.on_round failed, the study goes on: RuntimeError: no network",
        "Broken.on_finish failed, the study goes on: SystemError: no idea",
    ]


def test_a_resumed_study_is_told_from_its_beginning(tmp_path: Path) -> None:
    first, second = Diary(), Diary()
    tune([first], num_rounds=2, journal=tmp_path / "study.db")
    app = client_app(score, SPACE, seed=1, disclose="trials")
    grid = InProcessGrid(app, 3)
    study = tune([second], num_rounds=4, journal=tmp_path / "study.db", resume=True, grid=grid)
    assert sorted(told(second), key=by_place) == sorted(rows(study), key=by_place)
    assert [finished.round for finished in second.of("round")] == [1, 2, 3, 4]
    assert first.info is not None
    assert second.info is not None
    assert (first.info.num_replayed, second.info.num_replayed) == (0, 2)
    assert first.info.study == second.info.study


def test_an_asynchronous_study_tells_what_is_under_way() -> None:
    diary, app = Diary(), client_app(score, SPACE, seed=1, disclose="trials")
    strategy = STRATEGIES["random"](seed=1, num_agents=3, callbacks=[diary])
    grid = ClockedGrid(InProcessGrid(app, 3), slower(constant(1.0), {"2": 9.0}), 1)
    study = strategy.start(grid, num_rounds=3, mode="async").study
    finished = {(t.agent, t.trial) for t in diary.of("succeeded", "failed")}
    started = {(t.agent, t.trial) for t in diary.of("running")}
    assert sorted(told(diary), key=by_place) == sorted(rows(study), key=by_place)
    assert ("2", 0) in started - finished, "the slow agent still works on its first trial"


def test_an_interrupted_study_is_told_its_end() -> None:
    diary = Diary()

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune([diary, stop])
    (result,) = diary.of("finish")
    assert result.settings["runs"][0]["status"] == "interrupted"
    assert len(told(diary)) == len(result.trials) > 0


def test_simulate_tells_the_same() -> None:
    diary = Diary()
    study = simulate(
        "gp-samples", agents=3, algorithm="random", num_rounds=2, engine="inline", callbacks=[diary]
    )
    assert sorted(told(diary), key=by_place) == sorted(rows(study), key=by_place)


def test_something_else_than_a_callback_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"inherits from fbo_flower\.trackers\.Callback"):
        FTS(callbacks=[object()])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="expected a list of callbacks"):
        FTS(callbacks=Diary())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the class Diary"):
        FTS(callbacks=[Diary])  # type: ignore[list-item]
