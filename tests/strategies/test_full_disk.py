"""A full disk: the server names the agent's reason within seconds, and no result is lost."""

from __future__ import annotations

import logging
import resource
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from federation import agents

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.storage import AgentJournal, Event, StudyJournal, store
from fbo_flower.storage.agent_journal import Evaluation
from fbo_flower.strategies import FTS, RandomSearch


def limit_pages(monkeypatch: pytest.MonkeyPatch, name: str, pages: int) -> None:
    """Limit the number of pages of files with this name, as a small disk does."""
    original = store._connect

    def connect(path: Path, wait_seconds: float) -> sqlite3.Connection:
        connection = original(path, wait_seconds)
        if path.name.startswith(name):
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(store, "_connect", connect)


@pytest.mark.parametrize("how", ["no room for a page", "no room for a byte"])
def test_an_agent_whose_disk_is_full_says_so_at_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid = agents(2, journals=tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if how == "no room for a page":
        limit_pages(monkeypatch, "agent-1.db", 1)
    else:
        AgentJournal(tmp_path / "agent-0.db", "0").close()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    started = time.monotonic()
    try:
        with pytest.raises(ConfigError, match=r"1 were refused|2 were refused|all 2 nodes refuse") as raised:
            RandomSearch(num_agents=2, seed=1, wait_seconds=2.0).start(grid, num_rounds=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "did not answer" not in str(raised.value)
    assert "expected a disk with room for" in str(raised.value)
    assert "free some space" in str(raised.value)
    first = next(record for record in caplog.records if "does not take part" in record.getMessage())
    assert "expected a disk with room for" in first.getMessage()
    assert first.created - caplog.records[0].created < 1.0  # said at once, not at the end of the wait
    assert time.monotonic() - started < 10.0


def append(journal: AgentJournal, trials: range) -> None:
    for trial in trials:
        journal.append("s", "t", Evaluation(trial, np.zeros(1), 0.5))


def test_the_evaluations_of_an_agent_whose_disk_is_full_are_kept_and_its_lock_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent-0.db"
    with AgentJournal(path, "0") as journal:
        append(journal, range(1))
    pages = path.stat().st_size // 4096
    with monkeypatch.context() as full:
        limit_pages(full, path.name, pages)
        journal = AgentJournal(path, "0")
        append(journal, range(1, 400))
        with pytest.raises(JournalError, match="what was committed before is kept"):
            journal.close()
    with AgentJournal(path, "0", wait_seconds=0.1) as journal:
        assert [e.trial for e in journal.evaluations("s", "t")] == [0]
        journal.connection.execute(f"PRAGMA max_page_count = {pages}")
        append(journal, range(1, 400))
        with pytest.raises(JournalError, match="free some space"):
            journal.commit()
        journal.connection.execute("PRAGMA max_page_count = 100000")  # somebody has freed some
    with AgentJournal(path, "0") as journal:
        assert len(journal.evaluations("s", "t")) == 400


def test_a_server_whose_disk_is_full_keeps_the_results_so_far_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strategy() -> FTS:
        return FTS(num_agents=2, seed=1, num_features=9, num_candidates=16, num_path_features=9)

    with monkeypatch.context() as full:
        limit_pages(full, "study.db", 8)
        failed = strategy()
        with pytest.raises(JournalError, match=r"study\.db.*free some space"):
            failed.start(agents(2, journals=tmp_path), num_rounds=20, journal=tmp_path / "study.db")
        assert failed.study is not None
        assert 0 < len(failed.study.rounds) < 20
        assert failed.study.settings["runs"][0]["status"] == "failed"
    resumed = {"num_rounds": 20, "journal": tmp_path / "study.db", "resume": True}
    study = strategy().start(agents(2, journals=tmp_path), **resumed).study
    whole = strategy().start(agents(2), num_rounds=20).study
    assert study.trials["value"].tolist() == whole.trials["value"].tolist()
    assert len(study.rounds) == 20


def test_an_event_that_finds_no_room_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_pages(monkeypatch, "s.db", 6)
    with StudyJournal(tmp_path / "s.db") as journal:
        journal.write([Event("ask")])
        with pytest.raises(JournalError, match="free some space"):
            journal.write([Event("reply", arrays={"a": np.zeros(100_000)})])
        assert len(journal) == 1
        journal.write([Event("tell")])
        assert [event.kind for event in journal.events()] == ["ask", "tell"]
