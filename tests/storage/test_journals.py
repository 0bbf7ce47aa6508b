"""Journals: what was committed is there after a kill, nothing else is taken for it, others cannot read it."""

import json
import logging
import math
import os
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from contract import same
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from waiting import Clock

from fbo_flower.algorithms.records import Phase, Task, Trials
from fbo_flower.errors import JournalError, WireError
from fbo_flower.storage import agent_journal, files, study_journal
from fbo_flower.storage.agent_journal import AgentJournal, read_ledger
from fbo_flower.storage.files import dumps, loads, task_key
from fbo_flower.storage.store import Store
from fbo_flower.storage.study_journal import Event, StudyJournal, StudyJournalReader
from fbo_flower.storage.warm_start import WarmStart


def evaluation(trial, value=0.5, *more, **rest):
    return Trials(np.array([[0.1, 1 / 3]]), np.array([value]), np.array([trial]), *more, **rest)


# -- what an agent's journal keeps -----------------------------------------------------------------------


def test_evaluations_reports_and_memory_come_back_bit_for_bit_after_the_journal_was_closed(tmp_path):
    made = [
        evaluation(3, 1 / 3, np.array(["one of them: é"], dtype=object), *map(np.array, ([3], [2], [0.1]))),
        evaluation(6, math.nan, np.array(["broke"], dtype=object), measures={"num_rows": np.ones(1)}),
        evaluation(7, 5e-324, artifact=np.frombuffer(b"\x00model", np.uint8), curve=np.eye(2)),
    ]
    entropy = 2**127 + 1
    with AgentJournal(tmp_path / "a.db", "7") as journal:
        assert journal.study("s") is None
        journal.begin("s", entropy, b"before")
        journal.begin("s", 5, b"a second beginning changes nothing")
        assert journal.study("s") == (entropy, b"before", "", "")
        assert journal.report("s", "t") is None
        for e in made:
            journal.append("s", "t", e)
        journal.finish("s", "t", 1, b"after", b"report")
        first = journal.incarnation
    with AgentJournal(tmp_path / "a.db", "7") as journal:
        assert same(list(journal.evaluations("s", "t")), made)
        assert len(journal.evaluations("s")) == 3
        assert not journal.evaluations("s", "other")
        assert journal.study("s") == (entropy, b"after", "", "")
        assert (journal.report("s", "t"), journal.report("s2", "t")) == (b"report", None)
        assert journal.incarnation == first


@pytest.mark.parametrize("crash", [False, True])
def test_a_journal_that_was_wiped_is_another_one_whatever_a_crash_left_beside_it(tmp_path, crash):
    path = tmp_path / "a.db"
    with AgentJournal(path, "7") as journal:
        first = journal.incarnation
        journal.append("s", "t", evaluation(0))
        journal.commit()
        left = (tmp_path / "a.db-wal").read_bytes()  # as after a kill
    path.unlink()
    if crash:
        (tmp_path / "a.db-wal").write_bytes(left)
        (tmp_path / "a.db.new").write_bytes(b"of a process that died while it made the file")
    with AgentJournal(path, "7") as journal:
        assert journal.incarnation != first
        assert not journal.evaluations("s")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.db", "a.db.lock"]


def test_cheap_evaluations_are_committed_by_time_and_slow_ones_one_by_one(tmp_path):
    clock = Clock()
    with (
        AgentJournal(tmp_path / "a.db", "7", clock=clock) as journal,
        closing(sqlite3.connect(tmp_path / "a.db")) as reader,
    ):

        def committed(trial, seconds=0.0):
            journal.append("s", "t", evaluation(trial, times=np.array([[5.0, 5.0 + seconds]])))
            return int(reader.execute("SELECT COUNT(*) FROM evaluations").fetchone()[0])

        assert {committed(trial) for trial in range(100)} == {0}
        clock.now += 1.0
        assert committed(100) == 101
        for trial in range(101, 104):
            clock.now += 5.0
            assert committed(trial) == trial + 1
        assert committed(104, 0.5) == 104
        assert committed(105, 2.0) == 106, "it was long, although another was committed just before"


def test_a_second_process_waits_names_the_holder_and_finds_what_it_committed_before_it_was_killed(
    tmp_path, monkeypatch
):
    path = tmp_path / "a.db"
    code = f"""
        import signal
        import numpy as np
        from fbo_flower.storage.agent_journal import AgentJournal
        from fbo_flower.algorithms.records import Trials
        journal = AgentJournal({str(path)!r}, "7")
        for trial in range(6):
            row = Trials(np.zeros((1, 2)), np.array([float(trial)]), np.array([trial]))
            journal.append("s", "t", row)
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

        def killed(seconds):
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()

        monkeypatch.setattr(clock, "sleep", killed)  # the holder dies while the second one waits
        with AgentJournal(path, "7", wait_seconds=60.0) as journal:
            assert [int(e.trials[0]) for e in journal.evaluations("s", "t")] == [0, 1, 2, 3, 4]


def test_a_task_has_the_same_key_in_another_round_and_another_with_other_content():
    task = Task(Phase.TRAIN, 3, 5, 2, {"a": np.arange(3.0), "b": np.ones(2)}, {"x": 1})
    again = replace(task, round=9, arrays={"b": np.ones(2), "a": np.arange(3.0)})
    assert task_key(task) == task_key(again)
    changes: list[dict[str, object]] = [
        {"phase": Phase.FINISH}, {"trial": 6}, {"num_trials": 3}, {"values": {"x": 2}},
        {"arrays": {"a": np.arange(3.0), "b": np.zeros(2)}},
    ]  # fmt: skip
    others = [replace(task, **change) for change in changes]
    assert len({task_key(t) for t in [task, *others]}) == 6


# -- what is no journal of this agent ----------------------------------------------------------------------


def test_the_journal_of_another_agent_and_other_files_are_refused_and_not_locked(tmp_path):
    AgentJournal(tmp_path / "a.db", "7").close()
    StudyJournal(tmp_path / "study.db").close()
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 50)
    (tmp_path / "empty.db").touch()
    refused = [
        (lambda: AgentJournal(tmp_path / "a.db", "8"), "'8'"),
        (lambda: StudyJournal(tmp_path / "a.db"), "study journal"),
        (lambda: AgentJournal(tmp_path / "text", "7"), "text"),
        (lambda: AgentJournal(tmp_path / "text" / "below-a-file", "7"), "written"),
        (lambda: AgentJournal(tmp_path / "empty.db", "7"), r"empty\.db.*the file is empty; restore a copy"),
        (lambda: read_ledger(tmp_path / "nowhere.db"), "nowhere"),
        (lambda: read_ledger(tmp_path / "text"), "text"),
        (lambda: read_ledger(tmp_path / "study.db"), "study journal"),
    ]
    for use, match in refused:
        with pytest.raises(JournalError, match=match):
            use()
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
    tmp_path, version, make, read, kind
):
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


def test_the_journal_of_an_agent_that_died_before_its_first_entry_is_an_error_to_readers_only(tmp_path):
    Store(tmp_path / "a.db", agent_journal.KIND, 1.0).close()
    with pytest.raises(JournalError, match="its content cannot be read"):
        read_ledger(tmp_path / "a.db")
    AgentJournal(tmp_path / "a.db", "7").close()
    assert read_ledger(tmp_path / "a.db").agent == "7"


# -- a study's journal ---------------------------------------------------------------------------------------


def test_events_come_back_in_order_and_an_interrupted_write_leaves_none_of_its_own(tmp_path):
    arrays, present = {"w": np.arange(4.0).reshape(2, 2)}, {"present": ["1", "3"]}
    written = [Event("ask", 1, "train", "3", arrays, present), Event("tell", 1, "train")]
    with StudyJournal(tmp_path / "s.db") as journal:
        with pytest.raises(TypeError):
            journal.write([Event("ask"), Event("ask", values={"not JSON": object()})])
        assert len(journal) == 0
        for event in written:
            journal.write([event])
        assert len(journal) == 2
    with StudyJournal(tmp_path / "s.db") as journal:
        assert same(list(journal.events()), written)


def test_other_settings_are_refused_with_the_list_of_differences(tmp_path):
    with StudyJournal(tmp_path / "s.db") as journal:
        assert journal.settings is None
        journal.begin({"seed": 1, "algorithm": "fts"})
    with StudyJournal(tmp_path / "s.db") as journal:
        journal.begin({"algorithm": "fts", "seed": 1})
        with pytest.raises(JournalError, match=r'algorithm was "fts" and is "ts"; seed was 1 and is null'):
            journal.begin({"algorithm": "ts"})


# -- files that only their owner reads ---------------------------------------------------------------------

private = pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def _no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@private
@pytest.mark.usefixtures("_no_umask")
def test_journals_and_exported_messages_are_private_and_results_follow_the_umask(tmp_path):
    new = tmp_path / "new"
    with AgentJournal(new / "deep" / "a.db", "7") as agent, StudyJournal(new / "s.db") as study:
        agent.append("s", "t", evaluation(0))
        agent.commit()
        study.write([Event("ask")])
        kept = WarmStart("fts", "space", {"w": np.zeros(3)}).save(new / "kept", "fts")
        found = {path.name: mode(path) for path in new.rglob("*") if path.is_file()}
        own = {f"{name}.db{suffix}" for name in ("a", "s") for suffix in ("", "-wal", "-shm", ".lock")}
        assert found == dict.fromkeys({*own, kept.name}, 0o600)
    assert {mode(path) for path in (new, new / "deep", kept.parent)} == {0o700}
    with files.atomic_file(tmp_path / "trials.csv", text=True) as file:
        file.write("a\n")
    assert mode(tmp_path / "trials.csv") == 0o666


@private
@pytest.mark.usefixtures("_no_umask")
def test_directories_and_files_that_exist_keep_their_modes_and_a_warning_names_the_command(
    tmp_path, caplog, monkeypatch
):
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


numbers = arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
    array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
state_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**128) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.text(max_size=8), numbers, max_size=4),
    st.dictionaries(st.text(), state_values, max_size=3),
)
def test_a_stored_state_comes_back_bit_for_bit_and_has_the_same_bytes_each_time(named, values):
    data = dumps(named, values)
    thawed, got = loads(data)
    assert list(thawed) == list(named)
    assert same(dict(thawed), named)
    assert got == values
    assert dumps(thawed, got) == data


FROZEN = dumps({"points": np.random.default_rng(0).random((3, 2)), "n": np.array(7)}, {"study": "s"})
HEADERS = [
    [], 1, {}, {"arrays": None, "values": {}}, {"arrays": []}, b"[" * 100_000, b"\xff\xfe",
    *({"arrays": rows, "values": {}} for rows in (
        [["a"]], [["a", "<f8", [10**30]]], [["a", "<f8", [10**9]]], [["a", "<f8", [-7]]], [["a", "|O", [1]]],
        [["a", "nope", [1]]], [[["a"], "<f8", [1]]],
    )),
]  # fmt: skip


def test_a_truncated_or_damaged_state_is_a_wire_error():
    texts = [header if isinstance(header, bytes) else json.dumps(header).encode() for header in HEADERS]
    damaged = [struct.pack("<I", len(text)) + text + bytes(16) for text in texts]
    damaged += [FROZEN[:length] for length in (0, 1, 3, 4, 5, 30, len(FROZEN) - 60, len(FROZEN) - 1)]
    for data in damaged:
        with pytest.raises(WireError, match="stored state"):
            loads(data)


def test_flipped_bytes_of_a_state_never_raise_anything_else():
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(2000):
        data = bytearray(FROZEN)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        try:
            loads(bytes(data))
        except WireError:
            refused += 1
    assert 0 < refused < 2000  # flipped values still read, flipped headers do not
