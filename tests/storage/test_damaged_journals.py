"""Damaged journals: every one ends in a JournalError that says what to do, and none is read wrongly."""

import resource
import sqlite3
from collections import Counter
from contextlib import closing
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
    zero_a_page,
)
from federation import agents

from fbo_flower.algorithms.records import Trials
from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import AgentJournal, StudyJournal
from fbo_flower.storage.agent_journal import read_ledger
from fbo_flower.strategies import FTS, RandomSearch

ADVICE = ("restore a copy", "remove the file", "start a new study", "pass the path")


SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def hill(config, context):
    """Return the height of a hill without noise; the second trial fails."""
    if context.trial == 1:
        raise ValueError("planted")
    return -((config["x"] - 0.25) ** 2) - config["y"] ** 2


def start_study(directory):
    """Begin the study whose journals will be in `directory`."""
    node_configs = {agent: {"journal": str(directory / f"agent_{agent}.db")} for agent in range(2)}
    small = {"num_features": 4, "num_candidates": 16, "num_path_features": 8, "advice": "random"}
    grid = agents(2, hill, space=SPACE, node_configs=node_configs)
    FTS(num_agents=2, seed=7, **small).start(grid, num_rounds=2, journal=directory / "study.db")


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    """Journals of a study, and of its agents."""
    found = tmp_path_factory.mktemp("journals")
    start_study(found)
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
        for seed in range(examples(8, 2)):
            path = copy(journals, tmp_path / "damaged") / name
            damage(path, kind, seed)
            outcomes[outcome(read, path, truth)] += 1
        assert set(outcomes) <= {"error", "true"}, outcomes
        if kind in IN_ROWS and (name, kind.__name__) != ("study.db", "drop_an_index"):  # it has none
            assert set(outcomes) == {"error"}, outcomes


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


# -- a full disk: the server names the agent's reason within seconds, and no result is lost ---------------


def test_an_agent_whose_disk_is_full_says_so_at_registration(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    AgentJournal(tmp_path / "agent-0.db", "0").close()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"refused?.*expected a disk with room for .*free some space"):
            RandomSearch(num_agents=2, wait_seconds=0.5).start(agents(2, journals=tmp_path), num_rounds=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def append(journal, trials):
    for trial in trials:
        journal.append("s", "t", Trials(np.zeros((1, 1)), np.array([0.5]), np.array([trial])))


def test_the_evaluations_of_an_agent_whose_disk_is_full_are_kept_and_its_lock_is_released(tmp_path):
    path = tmp_path / "agent-0.db"
    journal = AgentJournal(path, "0")
    small = "PRAGMA max_page_count = 1"  # no more than there are
    journal.connection.execute(small)
    append(journal, range(400))
    with pytest.raises(JournalError, match="free some space"):
        journal.commit()
    journal.connection.execute("PRAGMA max_page_count = 100000")  # somebody has freed some
    journal.commit()
    journal.connection.execute(small)
    append(journal, range(400, 800))
    with pytest.raises(JournalError, match="what was committed before is kept"):
        journal.close()
    with AgentJournal(path, "0", wait_seconds=0.1) as journal:
        assert len(journal.evaluations("s", "t")) == 400
