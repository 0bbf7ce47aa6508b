"""Journals: what was committed is there after a kill, and nothing else is taken for it."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from waiting import Clock

from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.errors import JournalError
from fbo_flower.storage import agent_journal, files, study_journal
from fbo_flower.storage.agent_journal import AgentJournal, Evaluation, read_ledger, task_key
from fbo_flower.storage.store import JournalKind, Store
from fbo_flower.storage.study_journal import Event, StudyJournal, StudyJournalReader


def evaluation(trial: int, value: float = 0.5, **rest: object) -> Evaluation:
    return Evaluation(trial, np.array([0.1, 1 / 3]), value, **rest)  # type: ignore[arg-type]


def test_evaluations_come_back_bit_for_bit_and_in_order(tmp_path: Path) -> None:
    made = [
        evaluation(3, 1 / 3, count=2, span=3, square=0.1, failure="one of them: é"),
        evaluation(6, math.nan, failure="broke"),
        evaluation(7, 5e-324, artifact=b"\x00model"),
    ]
    with AgentJournal(tmp_path / "a.db", "7") as journal:
        for e in made:
            journal.append("s", "t", e)
    with AgentJournal(tmp_path / "a.db", "7") as journal:
        found = journal.evaluations("s", "t")
        assert len(journal.evaluations("s")) == 3
        assert not journal.evaluations("s", "other")
    for e, f in zip(made, found, strict=True):
        np.testing.assert_array_equal(e.point, f.point)
        assert (e.trial, e.count, e.span, e.square, e.failure, e.artifact) == (
            f.trial, f.count, f.span, f.square, f.failure, f.artifact
        )  # fmt: skip
        assert np.array_equal(e.value, f.value, equal_nan=True)


def test_cheap_evaluations_are_committed_by_time_and_slow_ones_one_by_one(tmp_path: Path) -> None:
    clock = Clock()
    journal = AgentJournal(tmp_path / "a.db", "7", clock=clock)
    reader = sqlite3.connect(tmp_path / "a.db")

    def committed() -> int:
        return int(reader.execute("SELECT COUNT(*) FROM evaluations").fetchone()[0])

    for trial in range(100):
        journal.append("s", "t", evaluation(trial))
    assert committed() == 0
    clock.now += 1.0
    journal.append("s", "t", evaluation(100))
    assert committed() == 101
    for trial in range(101, 104):
        clock.now += 5.0
        journal.append("s", "t", evaluation(trial))
        assert committed() == trial + 1
    journal.close()
    reader.close()


def test_a_finished_task_keeps_its_report_and_the_memory_after_it(tmp_path: Path) -> None:
    with AgentJournal(tmp_path / "a.db", "7") as journal:
        assert journal.study("s") is None
        entropy = 2**127 + 1
        journal.begin("s", entropy, b"before")
        journal.begin("s", 5, b"a second beginning changes nothing")
        assert journal.study("s") == (entropy, b"before")
        assert journal.report("s", "t") is None
        journal.append("s", "t", evaluation(0))
        journal.finish("s", "t", 1, b"after", b"report")
    with AgentJournal(tmp_path / "a.db", "7") as journal:
        assert journal.study("s") == (entropy, b"after")
        assert journal.report("s", "t") == b"report"
        assert journal.report("s2", "t") is None
        assert len(journal.evaluations("s", "t")) == 1


def test_a_journal_keeps_its_incarnation_and_a_wiped_one_has_another(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with AgentJournal(path, "7") as journal:
        first = journal.incarnation
    with AgentJournal(path, "7") as journal:
        assert journal.incarnation == first
    for file in tmp_path.iterdir():
        file.unlink()
    with AgentJournal(path, "7") as journal:
        assert journal.incarnation != first


def test_the_journal_of_another_agent_and_other_files_are_refused(tmp_path: Path) -> None:
    AgentJournal(tmp_path / "a.db", "7").close()
    with pytest.raises(JournalError, match="'8'"):
        AgentJournal(tmp_path / "a.db", "8")
    with pytest.raises(JournalError, match="study journal"):
        StudyJournal(tmp_path / "a.db")
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 50)
    with pytest.raises(JournalError, match="text"):
        AgentJournal(tmp_path / "text", "7")
    with pytest.raises(JournalError, match="written"):
        AgentJournal(tmp_path / "text" / "below-a-file", "7")
    AgentJournal(tmp_path / "a.db", "7").close()  # none of them left a lock behind


@pytest.mark.parametrize("version", [-1, 1])
@pytest.mark.parametrize(
    ("make", "read", "kind"),
    [
        (lambda path: AgentJournal(path, "7"), read_ledger, agent_journal.KIND),
        (StudyJournal, StudyJournalReader, study_journal.KIND),
    ],
)
def test_a_journal_of_another_version_is_refused_with_the_same_sentence_by_writer_and_reader(
    tmp_path: Path,
    version: int,
    make: Callable[[Path], Store],
    read: Callable[[Path], object],
    kind: JournalKind,
) -> None:
    path, other = tmp_path / "a.db", kind.version + version
    make(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(other),))
    texts = set()
    for use in (make, read):
        with pytest.raises(JournalError) as refused:
            use(path)
        texts.add(str(refused.value))
    assert texts == {
        f"journal: expected {kind.application} version {kind.version} in {path}, got {kind.application} "
        f"version {other}; pass the path of another file, or use the version of fbo-flower that wrote it"
    }


def test_the_journal_of_an_agent_that_died_before_its_first_entry_is_an_error_to_readers_only(
    tmp_path: Path,
) -> None:
    Store(tmp_path / "a.db", agent_journal.KIND, 1.0).close()
    with pytest.raises(JournalError, match="its content cannot be read"):
        read_ledger(tmp_path / "a.db")
    AgentJournal(tmp_path / "a.db", "7").close()
    assert read_ledger(tmp_path / "a.db").agent == "7"


def test_a_second_process_waits_names_the_holder_and_finds_what_it_committed_before_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    code = f"""
        import signal
        import numpy as np
        from fbo_flower.storage.agent_journal import AgentJournal, Evaluation
        journal = AgentJournal({str(path)!r}, "7")
        for trial in range(6):
            journal.append("s", "t", Evaluation(trial, np.zeros(2), float(trial)))
            if trial == 4:
                journal.commit()
        print("open", flush=True)
        signal.pause()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        clock = Clock()
        monkeypatch.setattr(files, "time", clock)
        with pytest.raises(JournalError, match=f"process {holder.pid} holds it"):
            AgentJournal(path, "7", wait_seconds=60.0)
        assert clock.now == pytest.approx(60.0, abs=0.1)

        def killed(seconds: float) -> None:
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()

        monkeypatch.setattr(clock, "sleep", killed)  # the holder dies while the second one waits
        with AgentJournal(path, "7", wait_seconds=60.0) as journal:
            assert [e.trial for e in journal.evaluations("s", "t")] == [0, 1, 2, 3, 4]


def test_a_task_has_the_same_key_in_another_round_and_another_with_other_content() -> None:
    task = Task(Phase.TRAIN, 3, 5, 2, {"a": np.arange(3.0), "b": np.ones(2)}, {"x": 1})
    again = Task(Phase.TRAIN, 9, 5, 2, {"b": np.ones(2), "a": np.arange(3.0)}, {"x": 1})
    assert task_key(task) == task_key(again)
    others = [
        Task(Phase.FINISH, 3, 5, 2, task.arrays, task.values),
        Task(Phase.TRAIN, 3, 6, 2, task.arrays, task.values),
        Task(Phase.TRAIN, 3, 5, 3, task.arrays, task.values),
        Task(Phase.TRAIN, 3, 5, 2, {"a": np.arange(3.0), "b": np.zeros(2)}, task.values),
        Task(Phase.TRAIN, 3, 5, 2, task.arrays, {"x": 2}),
    ]
    assert len({task_key(t) for t in [task, *others]}) == 6


def test_events_come_back_in_order_with_their_content(tmp_path: Path) -> None:
    written = [
        Event("ask", 1, "train", "3", {"w": np.arange(4.0).reshape(2, 2)}, {"present": ["1", "3"]}),
        Event("tell", 1, "train"),
    ]
    with StudyJournal(tmp_path / "s.db") as journal:
        journal.write(written[:1])
        journal.write(written[1:])
        assert len(journal) == 2
    with StudyJournal(tmp_path / "s.db") as journal:
        found = list(journal.events())
    assert [(e.kind, e.round, e.phase, e.agent) for e in found] == [
        ("ask", 1, "train", "3"),
        ("tell", 1, "train", ""),
    ]
    np.testing.assert_array_equal(found[0].arrays["w"], written[0].arrays["w"])
    assert found[0].values == {"present": ["1", "3"]}


def test_an_interrupted_write_leaves_none_of_its_events(tmp_path: Path) -> None:
    with StudyJournal(tmp_path / "s.db") as journal:
        with pytest.raises(TypeError):
            journal.write([Event("ask"), Event("ask", values={"not JSON": object()})])
        assert len(journal) == 0
        journal.write([Event("tell")])
        assert len(journal) == 1


def test_other_settings_are_refused_with_the_list_of_differences(tmp_path: Path) -> None:
    with StudyJournal(tmp_path / "s.db") as journal:
        assert journal.settings is None
        journal.begin({"seed": 1, "algorithm": "fts"})
    with StudyJournal(tmp_path / "s.db") as journal:
        journal.begin({"algorithm": "fts", "seed": 1})
        with pytest.raises(JournalError, match=r'algorithm was "fts" and is "ts"; seed was 1 and is null'):
            journal.begin({"algorithm": "ts"})
