"""A running study in TensorBoard's event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tracked import SPACE, tune

from fbo_flower.study import Study
from fbo_flower.study.trial import Trial
from fbo_flower.trackers import RoundInfo, StudyInfo, TensorBoardTracker

pytest.importorskip("tensorboard", reason="needs fbo-flower[tensorboard]")


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return tag -> (step, value) of one folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def study_folder(logdir: Path, study: Study) -> Path:
    return logdir / f"by chance {study.settings['runs'][0]['study']}"


def test_an_agent_is_a_folder_with_its_values(tmp_path: Path) -> None:
    study = tune([TensorBoardTracker(tmp_path)])
    folder = study_folder(tmp_path, study)
    assert sorted(path.name for path in folder.iterdir()) == ["agent 0", "agent 1", "agent 2", "rounds"]
    for agent in "012":
        rows = list(study.trials.where(agent=agent))
        found = read(folder / f"agent {agent}")
        good = [(row["trial"], row["value"]) for row in rows if math.isfinite(row["value"])]
        assert [step for step, _ in found["value"]] == [step for step, _ in good]
        assert [value for _, value in found["value"]] == pytest.approx([value for _, value in good])
        assert found["best"][-1][1] == pytest.approx(study.best[agent]["value"])
        assert [value for _, value in found["failed"]] == [math.isnan(row["value"]) for row in rows]
        assert [value for _, value in found["config/C"]] == pytest.approx(
            [row["config"]["C"] for row in rows]
        )
        inactive = [row["trial"] for row in rows if "gamma" not in row["config"]]
        assert not {step for step, _ in found.get("config/gamma", [])} & set(inactive)


def test_rounds_have_a_folder_with_their_numbers(tmp_path: Path) -> None:
    study = tune([TensorBoardTracker(tmp_path)])
    found = read(study_folder(tmp_path, study) / "rounds")
    assert found["replies"] == [(1, 3.0), (2, 3.0), (3, 3.0)]
    assert [value for _, value in found["best"]] == pytest.approx(study.rounds["best"].tolist())
    assert [value for _, value in found["bytes_up"]] == study.rounds["bytes_up"].tolist()


def test_a_resumed_study_replaces_what_was_written_before(tmp_path: Path) -> None:
    journal, logdir = tmp_path / "journal.db", tmp_path / "logs"
    tune([TensorBoardTracker(logdir)], num_rounds=2, journal=journal)
    study = tune([TensorBoardTracker(logdir)], num_rounds=4, journal=journal, resume=True)
    found = read(study_folder(logdir, study) / "agent 0")
    assert [step for step, _ in found["failed"]] == study.trials.where(agent="0")["trial"].tolist()


def test_nothing_but_counts_is_written_of_agents_that_disclose_nothing(tmp_path: Path) -> None:
    study = tune([TensorBoardTracker(tmp_path)], disclose=None)
    (folder,) = study_folder(tmp_path, study).iterdir()
    assert folder.name == "rounds"
    found = read(folder)
    assert not {"best", "mean_incumbent"} & set(found)
    assert found["replies"][-1] == (3, 3.0)


def test_a_hostile_name_stays_in_the_log_directory(tmp_path: Path) -> None:
    tracker, info = TensorBoardTracker(tmp_path / "logs"), StudyInfo("id", "../..", "x", {}, SPACE, False)
    tracker.on_trial(info, Trial("../../../escape", 0, 1, "succeeded", {"C": 1.0}, 0.5))
    tracker.on_round(info, RoundInfo(1, {"replies": 1}))
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert len([path for path in (tmp_path / "logs").rglob("*") if path.is_file()]) == 2
