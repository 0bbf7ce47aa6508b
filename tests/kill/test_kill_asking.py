"""An agent that is asked, and the process of its site: each is killed at every write of each file."""

import os
import shutil
import signal
import traceback
from collections import Counter

import pytest
from agents import SPACE, node, packed, task
from federation import hill
from killing import Kill, dying

from fbo_flower import Asked, Site
from fbo_flower.algorithms import RandomSearch
from fbo_flower.clients import TuningAgent, asking
from fbo_flower.errors import NotInTimeError
from fbo_flower.storage import AgentJournal, agent_journal

pytestmark = pytest.mark.kill
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
