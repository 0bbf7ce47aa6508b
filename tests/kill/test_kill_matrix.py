"""Server and agents are killed at every write of every journal, before and after its commit (`make kill`)."""

import shutil
from collections import Counter

import pytest
from contract import same
from killing import CASES, UNSEEDED, Kill, run, tables

from fbo_flower.storage import StudyJournal

pytestmark = pytest.mark.kill


@pytest.mark.parametrize("name", CASES)
def test_killed_at_every_write_a_study_comes_to_the_same_tables(name, tmp_path):
    case = CASES[name]
    whole = run(case, _fresh(tmp_path / "whole"))
    assert whole.study is not None
    assert len(set(whole.evaluations)) == len(whole.evaluations) > 0
    expected = tables(whole.study)
    kills: Counter[str] = Counter()
    unequal, repeated = [], 0
    for number, journal in enumerate(whole.writes, start=1):
        for committed in (False, True):
            directory = _fresh(tmp_path / "killed")
            died = run(case, directory, Kill(number, committed))
            assert died.study is None, "it was to be killed"
            assert died.writes == whole.writes[:number]
            resumed = run(case, directory)
            assert resumed.study is not None
            kills["server" if journal == "study.db" else "agent"] += 1
            if tables(resumed.study) != expected:
                unequal.append((number, journal, committed))
            twice = set(died.evaluations) & set(resumed.evaluations)
            repeated += len(twice)
            # one that was not committed is made again, at the same point and with the same draws
            assert len(twice) <= (not committed), "more than the evaluation at hand was made again"
            assert set(died.evaluations) | set(resumed.evaluations) == set(whole.evaluations)
    total = kills.total()
    print(
        f"\n{name}: {total} kills (server {kills['server']}, agents {kills['agent']}), "
        f"{total - len(unequal)} equal, {len(unequal)} unequal, {repeated} evaluations made again"
    )
    assert not unequal


@pytest.mark.parametrize("name", ["fts", "pf-pne"])
def test_killed_again_and_again_a_study_gets_to_its_end(name, tmp_path):
    case, directory = CASES[name], _fresh(tmp_path / "killed")
    whole = run(case, _fresh(tmp_path / "whole"))
    assert whole.study is not None
    times = 0
    # the registration and its agents take some writes at the start of every process
    while (ended := run(case, directory, Kill(9, times % 2 == 0))).study is None:
        times += 1
        assert times < 200
    assert times > 3
    assert tables(ended.study) == tables(whole.study)
    with StudyJournal(directory / "study.db") as journal:
        assert sum(event.kind == "round" for event in journal.events()) == len(whole.study.rounds)


def test_killed_dp_fts_without_a_seed_goes_on_with_the_draws_that_it_has_recorded(tmp_path):
    writes = run(UNSEEDED, _fresh(tmp_path / "whole")).writes
    directory = tmp_path / "killed"
    equal, drawn, unequal = 0, set(), []
    for number in range(1, len(writes) + 1):
        for committed in (False, True):
            died = run(UNSEEDED, _fresh(directory), Kill(number, committed))
            assert died.study is None
            before = _events(directory)
            resumed = run(UNSEEDED, directory)
            after = _events(directory)
            shutil.rmtree(directory / "result")
            again = run(UNSEEDED, directory)  # nothing is left to do: it replays the journal
            assert resumed.study is not None
            assert again.study is not None
            asks = [(e.phase, e.round) for e in after if e.kind == "ask"]
            assert len(asks) == len(set(asks)), "a half-round was drawn for twice"
            kept = same(after[: len(before)], before)
            if kept and tables(again.study) == tables(resumed.study):
                equal += 1
            else:
                unequal.append((number, committed))
            drawn.add(b"".join(e.arrays["sums"].tobytes() for e in after if "sums" in e.arrays))
            twice = set(died.evaluations) & set(resumed.evaluations)
            assert len(twice) <= (not committed)
    total = 2 * len(writes)
    print(f"\ndp-fts without a seed: {total} kills, {equal} equal, {len(unequal)} unequal")
    assert not unequal
    assert total >= 60
    assert len(drawn) == total, "no two studies have the same noise"


def _events(directory):
    if not (directory / "study.db").exists():
        return []
    with StudyJournal(directory / "study.db") as journal:
        return list(journal.events())


def _fresh(directory):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory
