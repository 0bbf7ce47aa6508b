"""Journals: what was committed is there after a kill, nothing else is taken for it, others cannot read it."""

import json
import logging
import math
import os
import signal
import sqlite3
import stat
import struct
from contextlib import closing

import numpy as np
import pytest
from contract import same
from federation import Recording, agents, hill, log_lines
from waiting import Clock, wait_until

from fbo_flower.algorithms.records import Trials
from fbo_flower.errors import JournalError, WireError
from fbo_flower.storage import agent_journal, files
from fbo_flower.storage.agent_journal import AgentJournal, read_ledger
from fbo_flower.storage.files import dumps, loads
from fbo_flower.storage.store import Store
from fbo_flower.storage.study_journal import Event, StudyJournal
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies import FTS


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
    path, ready = tmp_path / "a.db", tmp_path / "ready"

    def hold():
        journal = AgentJournal(path, "7")
        for trial in range(6):
            journal.append("s", "t", evaluation(trial))
            if trial == 4:
                journal.commit()
        ready.touch()
        signal.pause()

    if (holder := os.fork()) == 0:
        try:
            hold()
        finally:
            os._exit(1)
    wait_until(ready.exists, "the holder")
    clock = Clock()
    monkeypatch.setattr(files, "time", clock)
    with pytest.raises(JournalError, match=f"process {holder} holds it"):
        AgentJournal(path, "7", wait_seconds=60.0)
    assert clock.now == pytest.approx(60.0, abs=0.1)

    def killed(seconds):
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)

    monkeypatch.setattr(clock, "sleep", killed)  # the holder dies while the second one waits
    with AgentJournal(path, "7", wait_seconds=60.0) as journal:
        assert [int(e.trials[0]) for e in journal.evaluations("s", "t")] == [0, 1, 2, 3, 4]


# -- what is no journal of this agent ----------------------------------------------------------------------


def test_the_journal_of_another_agent_and_other_files_are_refused_and_not_locked(tmp_path):
    AgentJournal(tmp_path / "a.db", "7").close()
    StudyJournal(tmp_path / "study.db").close()
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 50)
    (tmp_path / "empty.db").touch()
    Store(tmp_path / "begun.db", agent_journal.KIND, 1.0).close()  # its agent died before its first entry
    refused = [
        (lambda: AgentJournal(tmp_path / "a.db", "8"), "'8'"),
        (lambda: StudyJournal(tmp_path / "a.db"), "study journal"),
        (lambda: AgentJournal(tmp_path / "text" / "below-a-file", "7"), "written"),
        (lambda: AgentJournal(tmp_path / "empty.db", "7"), r"empty\.db.*the file is empty; restore a copy"),
        (lambda: read_ledger(tmp_path / "nowhere.db"), "nowhere"),
        (lambda: read_ledger(tmp_path / "text"), "text"),
        (lambda: read_ledger(tmp_path / "study.db"), "study journal"),
        (lambda: read_ledger(tmp_path / "begun.db"), "its content cannot be read"),
    ]
    for use, match in refused:
        with pytest.raises(JournalError, match=match):
            use()
    for name in ("a.db", "begun.db"):
        AgentJournal(tmp_path / name, "7").close()  # none of them left a lock behind


def test_a_journal_of_another_version_is_refused_by_writer_and_reader(tmp_path):
    path = tmp_path / "a.db"
    AgentJournal(path, "7").close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = '999' WHERE key = 'version'")
    for use in (lambda: AgentJournal(path, "7"), lambda: read_ledger(path)):
        with pytest.raises(JournalError, match=rf"version {agent_journal.KIND.version} in .* 999; pass"):
            use()


# -- a study's journal ---------------------------------------------------------------------------------------


def test_events_and_settings_come_back_and_an_interrupted_write_leaves_none_of_its_own(tmp_path):
    arrays, present = {"w": np.arange(4.0).reshape(2, 2)}, {"present": ["1", "3"]}
    written = [Event("ask", 1, "train", "3", arrays, present), Event("tell", 1, "train")]
    with StudyJournal(tmp_path / "s.db") as journal:
        assert journal.settings is None
        journal.begin({"seed": 1, "algorithm": "fts"})
        with pytest.raises(TypeError):
            journal.write([Event("ask"), Event("ask", values={"not JSON": object()})])
        assert len(journal) == 0
        for event in written:
            journal.write([event])
    with StudyJournal(tmp_path / "s.db") as journal:
        assert same(list(journal.events()), written)
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
def test_directories_and_files_that_exist_keep_their_modes_and_a_warning_names_the_command(tmp_path):
    directory, path = tmp_path / "shared", tmp_path / "shared" / "a.db"
    directory.mkdir(mode=0o755)
    with log_lines(logging.WARNING) as lines:
        AgentJournal(path, "7").close()
        for opened_to in (0o640, 0o644, 0o644):
            path.chmod(opened_to)
            AgentJournal(path, "7").close()
            assert mode(path) == opened_to
    assert mode(directory) == 0o755
    (line,) = lines  # once, and not about a group, whose members the operator chose
    assert f"chmod 600 {path}" in line


FROZEN = dumps({"points": np.random.default_rng(0).random((3, 2)), "n": np.array(7)}, {"study": "s"})
HEADERS = [
    [], {}, {"arrays": None, "values": {}}, b"[" * 100_000, b"\xff\xfe",
    *({"arrays": rows, "values": {}} for rows in (
        [["a"]], [["a", "<f8", [10**9]]], [["a", "<f8", [-7]]], [["a", "|O", [1]]], [["a", "nope", [1]]],
    )),
]  # fmt: skip


def test_a_truncated_or_damaged_state_is_a_wire_error_or_another_state():
    texts = [header if isinstance(header, bytes) else json.dumps(header).encode() for header in HEADERS]
    damaged = [struct.pack("<I", len(text)) + text + bytes(16) for text in texts]
    damaged += [FROZEN[:length] for length in (0, 3, 4, 30, len(FROZEN) - 60, len(FROZEN) - 1)]
    for data in damaged:
        with pytest.raises(WireError, match="stored state"):
            loads(data)
    rng, refused = np.random.default_rng(1), 0
    for _ in range(500):
        data = bytearray(FROZEN)
        data[rng.integers(len(data))] = rng.integers(256)
        try:
            loads(bytes(data))
        except WireError:
            refused += 1
    assert 0 < refused < 500  # flipped values still read, flipped headers do not


# -- the ledger holds what left the agent: every name, every byte, once for every time -------------------


@pytest.mark.parametrize("disclose", ["none", "trials"])
def test_the_ledger_is_what_a_tap_on_the_line_hears(tmp_path, disclose):
    grid = agents(2, hill, journals=tmp_path, grid=Recording, disclose=disclose)
    small = {"num_features": 7, "num_candidates": 16, "num_path_features": 8}
    FTS(num_agents=2, seed=3, **small).start(grid, num_rounds=4)
    heard: dict[str, list[tuple[int, str, str, int]]] = {"0": [], "1": []}
    for reply in grid.replies:
        config = {k: v for record in reply.content.config_records.values() for k, v in record.items()}
        if "names" not in config:
            continue  # the registration
        arrays = [a for record in reply.content.array_records.values() for a in record.to_numpy_ndarrays()]
        names = [name for name in str(config["names"]).split(",") if name]
        for name, array in zip(names, arrays, strict=True):
            shape = " x ".join(map(str, array.shape))
            heard[str(config["agent"])].append((int(config["round"]), name, shape, array.nbytes))
    for agent in ("0", "1"):
        read = read_ledger(tmp_path / f"agent-{agent}.db")
        assert read.agent == agent
        assert [(r.round, r.name, r.shape, r.num_bytes) for r in read.rows if r.shape] == heard[agent] != []
        names = {r.name for r in read.rows}
        assert ("disclosed.points" in names) == (disclose == "trials")
        assert ("disclosed.incumbent" in names) == (disclose != "none")
        assert {r.algorithm for r in read.rows} == {"fts"}
        sources = [r.source for r in read.rows if r.name == "weights"]
        assert sources == [f"{n} evaluations" for n in (3, 4, 5, 6)]
        assert {"agent", "space", "digest", "version", "time"} <= set(read.registration)
