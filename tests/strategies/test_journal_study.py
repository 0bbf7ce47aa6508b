"""The study in a server's journal equals the one that the server saved, also in the middle of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fbo_flower.algorithms import make_algorithm
from fbo_flower.cli.main import run
from fbo_flower.errors import JournalError
from fbo_flower.simulation import Async, Clock, Keep, simulate
from fbo_flower.storage import StudyJournal
from fbo_flower.strategies import RoundProgress
from fbo_flower.strategies.start_and_end import study_of_journal
from fbo_flower.study import Study

SMALL = {"num_features": 10, "num_candidates": 16, "num_path_features": 8}


def same_tables(found: Study, saved: Study) -> None:
    columns = ["algorithm", "agent", "round", "trial", "pulls", "config", "value", "failure"]
    for name in columns:  # regret is added by the simulation, which knows the optimum
        assert found.trials[name].tolist() == saved.trials[name].tolist()
    assert found.rounds == saved.rounds


@pytest.mark.parametrize(
    ("algorithm", "options", "mode"),
    [
        ("random", {}, "sync"),
        ("dp-fts", {**SMALL, "noise_multiplier": 1.0}, "sync"),
        ("pf-pne", {"budget": 40}, "sync"),
        ("fed-ei", {"secure_sums": 0}, "async"),
    ],
)
def test_the_study_of_a_journal_is_the_saved_one(
    algorithm: str, options: Any, mode: str, tmp_path: Path
) -> None:
    saved = simulate(
        "gp-samples",
        agents=3,
        algorithm=make_algorithm(algorithm, options),
        num_rounds=4,
        engine="inline",
        keep=Keep(journals=tmp_path),
        **({"rounds": Async(clock=Clock("lognormal:10,1"))} if mode == "async" else {}),
    )
    found = study_of_journal(tmp_path / "study.db")
    same_tables(found, saved)
    assert mode == "async" or found.times == saved.times, "the journal does not hold a simulated clock"
    assert found.replies == saved.replies
    one, other = found.settings["runs"][0], saved.settings["runs"][0]
    for name in ("algorithm", "options", "num_agents", "num_rounds", "status", "space", "study"):
        assert one[name] == other[name]
    assert one.get("privacy", {}).get("epsilon") == other.get("privacy", {}).get("epsilon")


def test_a_running_study_can_be_read_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def on_round(progress: RoundProgress) -> None:
        study = study_of_journal(tmp_path / "study.db")
        seen.append((len(study.rounds), study.settings["runs"][0]["status"]))
        if progress.server_round == 2:
            assert run(["report", str(tmp_path), "--html"]) == 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(
            "gp-samples",
            agents=2,
            algorithm="ts",
            num_rounds=4,
            engine="inline",
            keep=Keep(journals=tmp_path),
            callbacks=[on_round],
        )
    assert seen == [(1, "interrupted"), (2, "interrupted")]
    assert (tmp_path / "report.html").is_file()
    resumed = Keep(journals=tmp_path, resume=True)
    saved = simulate("gp-samples", agents=2, algorithm="ts", num_rounds=4, engine="inline", keep=resumed)
    same_tables(study_of_journal(tmp_path / "study.db"), saved)


def test_a_journal_without_a_study_says_so(tmp_path: Path) -> None:
    StudyJournal(tmp_path / "study.db").close()
    with pytest.raises(JournalError, match="got none yet"):
        study_of_journal(tmp_path / "study.db")
