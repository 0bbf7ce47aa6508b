"""Damaged journals: every one ends in a JournalError that says what to do, and none is read wrongly."""

import logging
import resource
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from amounts import examples
from damage import (
    ALL,
    IN_ROWS,
    copy,
    damage,
    empty,
    make_it_another_database,
    make_it_text,
    put_a_directory_there,
    zero_a_page,
)
from federation import agents

from fbo_flower.algorithms.records import Trials
from fbo_flower.cli.main import run
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import AgentJournal, Event, StudyJournal, store
from fbo_flower.storage.agent_journal import read_ledger
from fbo_flower.strategies import FTS, RandomSearch

ADVICE = ("restore a copy", "remove the file", "start a new study", "pass the path")


# -- a study that was cut off in its second round, and its journals ---------------------------------------

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
LAST_WRITE = 11  # of the server: it dies with one of two replies of round 2 in its journal


class Cut(BaseException):
    """Stands for the server's death."""


def hill(config, context):
    """Return the height of a hill without noise; the second trial fails."""
    if context.trial == 1:
        raise ValueError("planted")
    return -((config["x"] - 0.25) ** 2) - config["y"] ** 2


class OneByOne(InProcessGrid):
    """Hands over one reply at a time."""

    def pull_messages(self, message_ids):
        for message_id in message_ids:
            if replies := super().pull_messages([message_id]):
                return replies
        return []


def start_study(directory):
    """Begin or resume the study whose journals are in `directory`."""
    journals = {agent: {"journal": str(directory / f"agent_{agent}.db")} for agent in range(2)}
    grid = OneByOne(client_app(hill, SPACE, seed=7, disclose="trials"), 2, node_configs=journals)
    small = {"num_features": 4, "num_candidates": 16, "num_path_features": 8, "advice": "random"}
    strategy = FTS(num_agents=2, seed=7, **small)
    strategy.start(grid, num_rounds=3, journal=directory / "study.db", resume=True)


def write_journals(directory):
    """Write the journals of the study as it was cut off in round 2."""
    original, written = StudyJournal.write, []

    def cut(self, events):
        original(self, events)
        written.append(events)
        if len(written) == LAST_WRITE:
            raise Cut

    with pytest.MonkeyPatch.context() as patch, suppress(Cut):
        patch.setattr(StudyJournal, "write", cut)
        start_study(directory)


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    """Journals of a study that was cut off, and of its agents."""
    found = tmp_path_factory.mktemp("journals")
    write_journals(found)
    with AgentJournal(found / "agent_0.db", "0") as journal:
        for trial in range(120):
            rest: dict[str, Any] = {"artifact": np.zeros(9000, np.uint8)} if trial % 40 == 0 else {}
            row = Trials(np.full((1, 2), trial / 120), np.array([0.5 - trial]), np.array([trial]), **rest)
            journal.append("other", "task", row)
        journal.finish("other", "task", 1, b"state", b"report" * 2000)
    return found


def read_agent(path, known):
    """Read all that an agent's journal holds, in the ways that agents read it, and write something."""
    with AgentJournal(path, "0", wait_seconds=0.2) as journal:
        read: list[Any] = [journal.incarnation, dict(journal.note("roll-call"))]
        for study in sorted({study for study, _ in known}):
            read += [study, journal.study(study), journal.evaluations(study)]
        read += [(task, journal.report(*task), journal.evaluations(*task)) for task in known]
        journal.put_note("later", {"written": True})
    return [*read, read_ledger(path)]


def read_study(path):
    """Read all that a study's journal holds."""
    with StudyJournal(path, wait_seconds=0.2) as journal:
        return [journal.settings, list(journal.events())]


def outcome(read, path, truth):
    """Return what came of reading a damaged journal, in one word."""
    try:
        found = repr(read(path))
    except JournalError as error:
        return "error" if any(advice in str(error) for advice in ADVICE) else f"no advice: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "true" if found == truth else "WRONG"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_damaged_journal_ends_in_an_error_with_advice_or_is_read_rightly(journals, tmp_path, kind):
    with closing(sqlite3.connect(journals / "agent_0.db")) as connection:
        known = connection.execute("SELECT study, task FROM tasks").fetchall()
    for name, read in (("agent_0.db", partial(read_agent, known=known)), ("study.db", read_study)):
        truth = repr(read(copy(journals, tmp_path / "whole") / name))
        outcomes: Counter[str] = Counter()
        for seed in range(examples(8, 4)):
            path = copy(journals, tmp_path / "damaged") / name
            damage(path, kind, seed)
            outcomes[outcome(read, path, truth)] += 1
        assert set(outcomes) <= {"error", "true"}, outcomes
        if kind in IN_ROWS and (name, kind.__name__) != ("study.db", "drop_an_index"):  # it has none
            assert set(outcomes) == {"error"}, outcomes


def test_a_damaged_study_cannot_be_resumed_and_the_error_says_what_to_do(journals, tmp_path):
    for seed, kind in enumerate(ALL):
        directory = copy(journals, tmp_path / "damaged")
        damage(directory / "study.db", kind, seed)
        try:
            start_study(directory)
        except (JournalError, ConfigError) as error:
            assert any(advice in str(error) for advice in ADVICE), error  # noqa: PT017


def test_a_file_that_was_perhaps_never_a_journal_is_not_to_be_removed_unseen(tmp_path):
    for number, kind in enumerate((make_it_text, put_a_directory_there, make_it_another_database)):
        path = tmp_path / f"{number}.db"
        path.touch()
        kind(path, np.random.default_rng(1))
        before = path.read_bytes() if path.is_file() else b""
        advice = r"pass the path of (a journal; if this was one|the file itself)"
        with pytest.raises(JournalError, match=advice):
            AgentJournal(path, "0")
        assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.usefixtures("unpictured")
def test_commands_say_in_one_line_what_to_do_about_a_damaged_journal(tmp_path, capsys):
    given = "simulate --problem gp-samples --algorithm random --agents 2 --rounds 2 --engine inline -q"
    assert run([*given.split(), "--journal", "--out", str(tmp_path / "run")]) == 0
    for kind in (zero_a_page, empty):
        directory = copy(tmp_path / "run", tmp_path / "copy")
        for path in (next(directory.rglob("study.db")), min(directory.rglob("agent-*.db"))):
            damage(path, kind, 1)
        capsys.readouterr()
        assert run(["simulate", "--resume", str(directory), "-q"]) == 1
        assert "study.db" in (said := capsys.readouterr().err)
        assert "start a new study" in said
        assert "unexpected" not in said
        assert run(["ledger", str(directory)]) == 1
        assert "remove the file" in (said := capsys.readouterr().err)
        assert said.count("\n") == 1


def test_the_server_names_an_agent_whose_journal_is_damaged(journals, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    directory = copy(journals, tmp_path / "damaged")
    damage(directory / "agent_1.db", zero_a_page, 1)
    configs = {n: {"journal": str(directory / f"agent_{n}.db")} for n in range(2)}
    app = client_app(hill, SPACE, seed=7)
    strategy = RandomSearch(num_agents=2, seed=7, wait_seconds=0.5)
    with pytest.raises(ConfigError, match=r"1 were refused, the first because: .*agent_1\.db.*remove"):
        strategy.start(InProcessGrid(app, 2, node_configs=configs), num_rounds=2)
    assert any("does not take part" in record.getMessage() for record in caplog.records)


# -- a full disk: the server names the agent's reason within seconds, and no result is lost ---------------


def limit_pages(monkeypatch, name, pages):
    """Limit the number of pages of files with this name, as a small disk does."""
    original = store._connect

    def connect(path, wait_seconds):
        connection = original(path, wait_seconds)
        if path.name.startswith(name):
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(store, "_connect", connect)


@pytest.mark.parametrize("how", ["no room for a page", "no room for a byte"])
def test_an_agent_whose_disk_is_full_says_so_at_registration(tmp_path, monkeypatch, caplog, how):
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


def append(journal, trials):
    for trial in trials:
        journal.append("s", "t", Trials(np.zeros((1, 1)), np.array([0.5]), np.array([trial])))


def test_the_evaluations_of_an_agent_whose_disk_is_full_are_kept_and_its_lock_is_released(
    tmp_path, monkeypatch
):
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
        assert [int(e.trials[0]) for e in journal.evaluations("s", "t")] == [0]
        journal.connection.execute(f"PRAGMA max_page_count = {pages}")
        append(journal, range(1, 400))
        with pytest.raises(JournalError, match="free some space"):
            journal.commit()
        journal.connection.execute("PRAGMA max_page_count = 100000")  # somebody has freed some
    with AgentJournal(path, "0") as journal:
        assert len(journal.evaluations("s", "t")) == 400


def test_a_server_whose_disk_is_full_keeps_the_results_so_far_and_resumes(tmp_path, monkeypatch):
    def strategy():
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


def test_an_event_that_finds_no_room_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    limit_pages(monkeypatch, "s.db", 6)
    with StudyJournal(tmp_path / "s.db") as journal:
        journal.write([Event("ask")])
        with pytest.raises(JournalError, match="free some space"):
            journal.write([Event("reply", arrays={"a": np.zeros(100_000)})])
        assert len(journal) == 1
        journal.write([Event("tell")])
        assert [event.kind for event in journal.events()] == ["ask", "tell"]
