"""Damaged journals: every one ends in a JournalError that says what to do, and none is read wrongly."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import cut_study
import numpy as np
import pytest
from amounts import examples
from damage import (
    ALL,
    IN_ROWS,
    Damage,
    copy,
    damage,
    empty,
    make_it_another_database,
    make_it_text,
    put_a_directory_there,
    zero_a_page,
)

from fbo_flower.cli.main import run
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.storage import AgentJournal, StudyJournal
from fbo_flower.storage.agent_journal import Evaluation, read_ledger
from fbo_flower.strategies import RandomSearch

ADVICE = ("restore a copy", "remove the file", "start a new study", "pass the path")


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals of a study that was cut off, and of its agents."""
    found = tmp_path_factory.mktemp("journals")
    cut_study.write(found)
    with AgentJournal(found / "agent_0.db", "0") as journal:
        for trial in range(120):
            rest: dict[str, Any] = {"artifact": bytes(9000)} if trial % 40 == 0 else {}
            journal.append("other", "task", Evaluation(trial, np.full(2, trial / 120), 0.5 - trial, **rest))
        journal.finish("other", "task", 1, b"state", b"report" * 2000)
    return found


def read_agent(path: Path, known: list[tuple[str, str]]) -> list[Any]:
    """Read all that an agent's journal holds, in the ways that agents read it, and write something."""
    with AgentJournal(path, "0", wait_seconds=0.2) as journal:
        read: list[Any] = [journal.incarnation, dict(journal.note("roll-call"))]
        for study in sorted({study for study, _ in known}):
            read += [study, journal.study(study), journal.evaluations(study)]
        read += [(task, journal.report(*task), journal.evaluations(*task)) for task in known]
        journal.put_note("later", {"written": True})
    return [*read, read_ledger(path)]


def read_study(path: Path) -> list[Any]:
    """Read all that a study's journal holds."""
    with StudyJournal(path, wait_seconds=0.2) as journal:
        return [journal.settings, list(journal.events())]


def outcome(read: Any, path: Path, truth: str) -> str:
    """Return what came of reading a damaged journal, in one word."""
    try:
        found = repr(read(path))
    except JournalError as error:
        return "error" if any(advice in str(error) for advice in ADVICE) else f"no advice: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "true" if found == truth else "WRONG"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_damaged_journal_ends_in_an_error_with_advice_or_is_read_rightly(
    journals: Path, tmp_path: Path, kind: Damage
) -> None:
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


def test_a_damaged_study_cannot_be_resumed_and_the_error_says_what_to_do(
    journals: Path, tmp_path: Path
) -> None:
    for seed, kind in enumerate(ALL):
        directory = copy(journals, tmp_path / "damaged")
        damage(directory / "study.db", kind, seed)
        try:
            cut_study.start(directory, cut_study.Objective())
        except (JournalError, ConfigError) as error:
            assert any(advice in str(error) for advice in ADVICE), error  # noqa: PT017


def test_a_file_that_was_perhaps_never_a_journal_is_not_to_be_removed_unseen(tmp_path: Path) -> None:
    for number, kind in enumerate((make_it_text, put_a_directory_there, make_it_another_database)):
        path = tmp_path / f"{number}.db"
        path.touch()
        kind(path, np.random.default_rng(1))
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(JournalError, match="pass the path of a journal; if this was one"):
            AgentJournal(path, "0")
        assert (path.read_bytes() if path.is_file() else b"") == before


def test_commands_say_in_one_line_what_to_do_about_a_damaged_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fbo_flower.reports.figures.draw", lambda *_: "")
    given = (
        "simulate --problem gp-samples --algorithm random --agents 2 --rounds 2 --engine inline --journal -q"
    )
    assert run([*given.split(), "--out", str(tmp_path / "run")]) == 0
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


def test_the_server_names_an_agent_whose_journal_is_damaged(
    journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    directory = copy(journals, tmp_path / "damaged")
    damage(directory / "agent_1.db", zero_a_page, 1)
    configs = {n: {"journal": str(directory / f"agent_{n}.db")} for n in range(2)}
    app = client_app(cut_study.Objective(), cut_study.SPACE, seed=7)
    strategy = RandomSearch(num_agents=2, seed=7, wait_seconds=0.5)
    with pytest.raises(ConfigError, match=r"1 were refused, the first because: .*agent_1\.db.*remove"):
        strategy.start(InProcessGrid(app, 2, node_configs=configs), num_rounds=2)
    assert any("does not take part" in record.getMessage() for record in caplog.records)
