"""Journals and the directories that are made for them are closed to other users, whatever the umask says."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fbo_flower.errors import JournalError
from fbo_flower.storage import AgentJournal, Event, StudyJournal
from fbo_flower.storage.agent_journal import Evaluation
from fbo_flower.storage.files import atomic_file
from fbo_flower.storage.warm_start import WarmStart

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_no_umask")
def test_journals_and_their_side_files_are_for_their_owner_only(tmp_path: Path) -> None:
    with (
        AgentJournal(tmp_path / "new" / "deep" / "a.db", "7") as agent,
        StudyJournal(tmp_path / "new" / "s.db") as study,
    ):
        agent.append("s", "t", Evaluation(0, np.zeros(2), 0.5))
        agent.commit()
        study.write([Event("ask")])
        files = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
        assert {path.name for path in files} == {
            f"{name}.db{suffix}" for name in ("a", "s") for suffix in ("", "-wal", "-shm", ".lock")
        }
        assert {path.name: oct(mode(path)) for path in files if mode(path) != 0o600} == {}
    assert mode(tmp_path / "new") == mode(tmp_path / "new" / "deep") == 0o700


@pytest.mark.usefixtures("_no_umask")
def test_exported_messages_are_private_and_results_follow_the_umask(tmp_path: Path) -> None:
    path = WarmStart("fts", "space", {"w": np.zeros(3)}).save(tmp_path / "study", "fts")
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    with atomic_file(tmp_path / "study" / "trials.csv", text=True) as file:
        file.write("a\n")
    assert mode(tmp_path / "study" / "trials.csv") == 0o666


@pytest.mark.usefixtures("_no_umask")
def test_directories_and_files_that_exist_keep_their_modes_and_a_warning_names_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    directory, path = tmp_path / "shared", tmp_path / "shared" / "a.db"
    directory.mkdir(mode=0o755)
    AgentJournal(path, "7").close()
    assert not caplog.records
    for opened_to in (0o640, 0o644):
        path.chmod(opened_to)
        for _ in range(2):
            AgentJournal(path, "7").close()
        assert mode(path) == opened_to
    assert mode(directory) == 0o755
    (record,) = caplog.records  # once, and not about a group, whose members the operator chose
    assert f"chmod 600 {path}" in record.getMessage()


def test_what_a_crash_left_is_not_taken_into_a_new_journal(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with AgentJournal(path, "7") as journal:
        first = journal.incarnation
        journal.append("s", "t", Evaluation(0, np.zeros(2), 0.5))
        journal.commit()
        left = (tmp_path / "a.db-wal").read_bytes()  # as after a kill
    path.unlink()
    (tmp_path / "a.db-wal").write_bytes(left)
    (tmp_path / "a.db.new").write_bytes(b"of a process that died while it made the file")
    with AgentJournal(path, "7") as journal:
        assert journal.incarnation != first
        assert not journal.evaluations("s")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.db", "a.db.lock"]


def test_an_empty_file_is_a_journal_that_lost_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    with pytest.raises(JournalError, match=r"a\.db.*the file is empty; restore a copy"):
        AgentJournal(tmp_path / "a.db", "7")
