"""Journals of earlier versions are read, and the study in them goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golden_study import SETS, Objective, restore, start

from fbo_flower.storage import AgentJournal, StudyJournal, agent_journal, study_journal
from fbo_flower.storage.ledger import BEFORE
from fbo_flower.storage.read_ledger import read_ledger

every_set = pytest.mark.parametrize("number", SETS)


def test_golden_journals_are_of_this_version() -> None:
    versions = agent_journal.VERSION, study_journal.VERSION
    assert versions == (SETS[-1], 2), "a new version needs new golden journals, and a word on the old ones"


@every_set
def test_a_golden_study_says_what_was_asked_and_heard(tmp_path: Path, number: int) -> None:
    restore(tmp_path, number)
    with StudyJournal(tmp_path / "study.db") as journal:
        events = list(journal.events())
        assert journal.settings is not None
        assert journal.settings["algorithm"] == "fts"
    assert [(e.kind, e.round) for e in events] == [
        ("roll", 0), ("agents", 0), ("open", 1), ("ask", 1), ("reply", 1), ("reply", 1), ("tell", 1),
        ("round", 1), ("open", 2), ("ask", 2), ("reply", 2),
    ]  # fmt: skip
    replies = [event for event in events if event.kind == "reply"]
    assert [event.agent for event in replies] == ["0", "1", "0"]
    assert [event.arrays["0"].shape for event in replies] == [(3, 2), (3, 2), (1, 2)]  # disclosed points


@every_set
def test_golden_agents_know_what_they_evaluated(tmp_path: Path, number: int) -> None:
    restore(tmp_path, number)
    for agent in ("0", "1"):
        with (
            StudyJournal(tmp_path / "study.db") as study,
            AgentJournal(tmp_path / f"agent_{agent}.db", agent) as journal,
        ):
            first = str(next(study.events()).values["study"])
            entropy, agent_state = journal.study(first) or (0, b"")
            made = journal.evaluations(first)
        assert entropy == 7
        assert agent_state
        assert [e.trial for e in made] == [0, 1, 2, 3]
        assert made[1].failure == "ValueError: planted"


@every_set
def test_golden_agents_know_what_they_sent_and_reading_it_changes_nothing(
    tmp_path: Path, number: int
) -> None:
    restore(tmp_path, number)
    path = tmp_path / "agent_0.db"
    before = path.read_bytes()
    read = read_ledger(path)
    assert path.read_bytes() == before
    expected = [
        (server_round, name)
        for server_round in (1, 2)
        for name in (
            "disclosed.points", "disclosed.values",
            "num-failed", "disclosed.failures", "disclosed.incumbent", "header",
        )
    ]  # fmt: skip
    assert [(row.round, row.name) for row in read.rows] == expected
    assert read.rows[0].shape == "3 x 2"
    assert {row.source for row in read.rows} == (
        {BEFORE} if number == 1 else {"3 evaluations", "4 evaluations"}
    )
    AgentJournal(path, "0").close()  # brings it to this version
    assert read_ledger(path).rows == read.rows


@every_set
def test_a_golden_study_goes_on_to_the_end_of_an_uninterrupted_one(tmp_path: Path, number: int) -> None:
    for name in ("golden", "whole"):
        (tmp_path / name).mkdir()
    restore(tmp_path / "golden", number)
    resumed, anew = Objective(), Objective()
    study, whole = start(tmp_path / "golden", resumed), start(tmp_path / "whole", anew)
    for column in ("agent", "round", "trial", "failure"):
        assert study.trials[column].tolist() == whole.trials[column].tolist()
    # Earlier versions chose the points in these journals with tighter tolerances.
    np.testing.assert_allclose(study.trials["value"], whole.trials["value"], atol=2e-3)
    assert len(study.rounds) == 3
    with StudyJournal(tmp_path / "golden" / "study.db") as journal:
        first = str(next(journal.events()).values["study"])
    with AgentJournal(tmp_path / "golden" / "agent_0.db", "0") as agent:
        assert str(agent.algorithm(first)).startswith("fts {"), "its options are pinned from now on"
    assert set(resumed.calls) < set(anew.calls)
