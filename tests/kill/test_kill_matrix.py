"""Server and agents are killed at every write of every journal, before and after its commit (`make kill`)."""

import os
import shutil
import signal
import traceback
from collections import Counter

import pytest
from agents import SPACE, node, packed, task
from contract import same
from federation import hill
from killing import CASES, UNSEEDED, Kill, dying, run, tables

from fbo_flower import Asked, Site
from fbo_flower.algorithms import RandomSearch
from fbo_flower.clients import TuningAgent, asking
from fbo_flower.errors import NotInTimeError
from fbo_flower.storage import AgentJournal, StudyJournal, agent_journal

pytestmark = pytest.mark.kill


@pytest.mark.parametrize("name", CASES)
def test_killed_at_every_write_a_study_comes_to_the_same_tables(name, tmp_path):
    case = CASES[name]
    whole = run(case, _fresh(tmp_path / "whole"))
    assert whole.study is not None
    assert len(set(whole.evaluations)) == len(whole.evaluations) > 0
    expected = tables(whole.study)
    unequal = []
    for number, journal in enumerate(whole.writes, start=1):
        for committed in (False, True):
            directory = _fresh(tmp_path / "killed")
            died = run(case, directory, Kill(number, committed))
            assert died.study is None, "it was to be killed"
            assert died.writes == whole.writes[:number]
            resumed = run(case, directory)
            assert resumed.study is not None
            if tables(resumed.study) != expected:
                unequal.append((number, journal, committed))
            twice = set(died.evaluations) & set(resumed.evaluations)
            # one that was not committed is made again, at the same point and with the same draws
            assert len(twice) <= (not committed), "more than the evaluation at hand was made again"
            assert set(died.evaluations) | set(resumed.evaluations) == set(whole.evaluations)
    assert not unequal, f"{len(unequal)} of {2 * len(whole.writes)} kills"


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
    drawn, unequal = set(), []
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
            if not kept or tables(again.study) != tables(resumed.study):
                unequal.append((number, committed))
            drawn.add(b"".join(e.arrays["sums"].tobytes() for e in after if "sums" in e.arrays))
            twice = set(died.evaluations) & set(resumed.evaluations)
            assert len(twice) <= (not committed)
    total = 2 * len(writes)
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


# -- an agent that is asked, and the process of its site -------------------------------------------------

NUM_TRIALS = 2


def _agent(directory):
    """Answer a task, as a ClientApp's process does, and note that it was answered."""
    agent = TuningAgent(Asked(600.0), SPACE, node(directory / "a.db"), seed=1)
    agent.answer(packed(RandomSearch(), task(num_trials=NUM_TRIALS)))
    (directory / "answered").touch()


def _site(directory):
    """Evaluate what is asked, until the task is answered."""
    site = Site(directory / "a.db")
    while not (directory / "answered").exists():
        try:
            config = site.ask(timeout=0.02)
        except NotInTimeError:
            continue
        with (directory / "evaluated").open("a") as stream:
            stream.write(f"{config}\n")
        site.tell(config, hill(config, None))


def _start(work, directory, kill=None):
    pid = os.fork()
    if pid == 0:
        try:
            agent_journal.COMMIT_SECONDS, asking.POLL_SECONDS = 0.0, 0.002
            with dying(kill, directory / f"writes-{work.__name__}"):
                work(directory)
        except BaseException:
            (directory / "error").write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)
    return pid


def _was_killed(pid, directory):
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    assert status == 0, (directory / "error").read_text()
    return False


@pytest.mark.parametrize("victim", [_agent, _site])
def test_killed_at_every_write_each_trial_is_told_and_counted_once(victim, tmp_path):
    directory, num_kills = tmp_path / "site", 0
    other = _site if victim is _agent else _agent
    while True:
        for committed in (False, True):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            lives = _start(other, directory)
            dies = _start(victim, directory, Kill(num_kills // 2 + 1, committed))
            if not (killed := _was_killed(dies, directory)):
                assert not _was_killed(lives, directory)
                break
            assert not _was_killed(_start(victim, directory), directory)
            assert not _was_killed(lives, directory)
            num_kills += 1
            with AgentJournal(directory / "a.db", "3") as journal:
                found = journal.evaluations("s")
            assert [int(row.trials[0]) for row in found] == list(range(NUM_TRIALS))
            assert [row.values[0] for row in found] == [
                hill(SPACE.decode(row.points[0]), None) for row in found
            ]
            evaluated = Counter((directory / "evaluated").read_text().splitlines())
            assert len(evaluated) == NUM_TRIALS
            assert evaluated.total() <= NUM_TRIALS + (victim is _site and not committed)
        if not killed:
            break
    assert num_kills >= 4 * NUM_TRIALS
