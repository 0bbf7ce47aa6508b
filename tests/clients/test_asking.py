"""`Asked` and `Site`: an agent and another process of its site, which meet in a file beside the journal."""

import json
import math
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest
from agents import SPACE, node, packed, task
from federation import agents, hill, log_lines
from killing import ForkedWorker
from waiting import wait_until

from fbo_flower import Asked, Site
from fbo_flower.algorithms import RandomSearch
from fbo_flower.algorithms.aims import Aims
from fbo_flower.cli.main import run
from fbo_flower.clients import ObjectiveContext, TuningAgent, agent_state_from_bytes, asking, workers
from fbo_flower.clients.own_answer import read_answers
from fbo_flower.errors import ConfigError, JournalError, NotInTimeError
from fbo_flower.storage.agent_journal import AgentJournal
from fbo_flower.strategies import ExpectedImprovement

ALGORITHM = RandomSearch()


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.002)


def agent(journal, timeout=60.0, **given):
    return TuningAgent(Asked(timeout), SPACE, node(journal), seed=1, **given)


def evaluations(journal):
    with AgentJournal(journal, "3") as memory:
        return memory.evaluations("s")


def left_open(journal, num_trials=1):
    """Let an agent ask, and wait in vain; return the configuration."""
    with pytest.raises(NotInTimeError, match=r"trial 0: expected a value within .*, nobody told one"):
        agent(journal, 0.01).answer(packed(ALGORITHM, task(num_trials=num_trials)))
    return Site(journal).pending[-1]


def answer(journal, num_trials=1, **given):
    return agent(journal, **given).answer(packed(ALGORITHM, task(num_trials=num_trials)))


@contextmanager
def answering(*arguments, **given):
    """Let an agent answer in a thread, until the block has told what it asks."""
    thread = threading.Thread(target=answer, args=arguments, kwargs=given)
    thread.start()
    yield
    thread.join()


def study_of(grid):
    return ExpectedImprovement(num_agents=1, seed=1).start(grid, num_rounds=4).study


def test_a_trial_that_is_not_told_in_time_is_asked_again_and_counted_once(tmp_path):
    journal, site = tmp_path / "a.db", Site(tmp_path / "a.db")
    config = left_open(journal)
    assert evaluations(journal) == []
    with pytest.raises(NotInTimeError, match=r"expected the agent of .* to ask within"):
        site.ask(timeout=0.01)  # nobody waits for it now
    site.tell(config, 0.5)
    reply = answer(journal, timeout=0.01)
    assert [e.values[0] for e in evaluations(journal)] == [0.5]
    assert answer(journal, timeout=0.01).arrays.keys() == reply.arrays.keys()
    assert len(evaluations(journal)) == 1
    assert site.pending == []


def test_a_round_without_a_value_is_lost_and_the_trials_are_those_of_a_study_with_functions(tmp_path):
    site, found, seen = Site(tmp_path / "agent-0.db"), [], []
    grid = agents(1, Asked(0.3), journals=tmp_path)
    thread = threading.Thread(target=lambda: found.append(study_of(grid)))
    with log_lines() as lines:
        thread.start()
        wait_until(lambda: any("0 replies, 1 lost" in line for line in lines), "a lost round")
        while thread.is_alive():
            with suppress(NotInTimeError):
                seen.append(site.ask(timeout=0.05))
                site.tell(seen[-1], hill(seen[-1], None))
    (study,) = found
    assert study.rounds["failures"].tolist()[0] == 1
    expected = study_of(agents(1)).trials
    for name in ("trial", "config", "value", "failure"):
        assert study.trials[name].tolist() == expected[name].tolist()[: len(study.trials)] != []
    assert seen == list(study.trials["config"])


def test_a_site_that_repeats_its_question_or_its_answer_changes_nothing(tmp_path):
    journal, site = tmp_path / "a.db", Site(tmp_path / "a.db")
    with answering(journal):
        config = site.ask()
        assert site.ask() == Site(journal).ask() == config
        site.tell(config, 0.25)
        site.tell(config, 0.25)
    site.tell(config, 0.25)
    with pytest.raises(ConfigError, match=r"value: expected the one told before .* 0.25, got 0.5"):
        site.tell(config, 0.5)
    assert [e.values[0] for e in evaluations(journal)] == [0.25]


@pytest.mark.parametrize("failure", [{"failed": True}, {"value": None}, {"value": math.nan}, None])
def test_a_failure_that_is_told_is_a_failed_trial_and_a_loss_is_told_as_it_is(tmp_path, failure):
    config = left_open(tmp_path / "a.db")
    assert os.stat(asking.mail_of(tmp_path / "a.db")).st_mode & 0o077 == 0, "only its owner may read it"
    Site(tmp_path / "a.db").tell(config, **(failure or {"value": 0.5}))
    answer(tmp_path / "a.db", aims=Aims.of(minimize=True))
    (found,) = evaluations(tmp_path / "a.db")
    assert found.values[0] == -0.5 if failure is None else math.isnan(found.values[0])
    assert (failure is None) == (not found.reasons)


def test_what_another_living_process_evaluates_is_not_handed_out_twice(tmp_path):
    site, path = Site(tmp_path / "a.db"), asking.mail_of(tmp_path / "a.db")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with asking._changing(path) as mail:
        for trial, owner in enumerate((process.pid, 0, process.pid)):
            question = asking.Question("s", trial, {"x": trial}, time.time() + 600, owner)
            asking._put(mail, question)
    assert site.ask() == {"x": 1}
    site.tell({"x": 1}, 1.0)
    with pytest.raises(NotInTimeError):
        site.ask(timeout=0.01)
    process.communicate(b"\n")
    assert site.ask() == {"x": 0}, "its process has ended"
    assert site.ask() == {"x": 0}


def test_several_trials_at_once_are_asked_at_once(tmp_path, monkeypatch):
    forks = SimpleNamespace(Popen=ForkedWorker, DEVNULL=None)
    monkeypatch.setattr(workers, "subprocess", forks)
    journal, site = tmp_path / "a.db", Site(tmp_path / "a.db")
    with answering(journal, 2, num_parallel=2):
        wait_until(lambda: len(site.pending) == 2, "both questions")
        first, second = site.pending
        site.tell(second, 0.2)
        site.tell(first, 0.1)
    assert sorted(e.values[0] for e in evaluations(journal)) == [0.1, 0.2]
    with pytest.raises(NotInTimeError, match="nobody told one"):  # a worker's trial is not lost either
        answer(tmp_path / "b.db", 2, timeout=0.01, num_parallel=2)
    assert evaluations(tmp_path / "b.db") == []
    workers.close_pools()


def test_mistakes_are_refused_with_a_sentence(tmp_path):
    with pytest.raises(NotInTimeError, match="journal: expected a file in node_config"):
        TuningAgent(Asked(), SPACE, node(), seed=1).answer(packed(ALGORITHM, task()))
    site, config = Site(tmp_path / "a.db"), left_open(tmp_path / "a.db")
    with pytest.raises(ConfigError, match="config: expected only texts, finite numbers and flags"):
        site.tell({"x": object()}, 1.0)
    asking.mail_of(tmp_path / "a.db").write_bytes(b"something else" * 100)
    for attempt in (lambda: site.tell(config, 1.0), site.ask, lambda: answer(tmp_path / "a.db")):
        with pytest.raises(JournalError, match="remove the file and start again"):
            attempt()
    assert evaluations(tmp_path / "a.db") == [], "the trial has not failed"
    own = {"journal": str(tmp_path / "a.db")}
    with pytest.raises(NotInTimeError, match="remove the file and start again"):
        Asked()(config, ObjectiveContext("3", 3, 0, 1, np.random.default_rng(0), own, study="s"))


def test_what_nobody_asked_for_is_known_from_the_next_task_on_and_counts_as_no_trial(tmp_path):
    algorithm, journal, site = ExpectedImprovement(num_agents=1).algorithm, tmp_path / "a.db", None

    def asked(first, num_trials):
        with pytest.raises(NotInTimeError):
            agent(journal, 0.01).answer(packed(algorithm, task(first, num_trials)))
        return Site(journal).pending

    site = Site(journal)
    for _ in range(3):
        (config,) = asked(0, 3)
        site.tell(config, hill(config, None))
    agent(journal).answer(packed(algorithm, task(0, 3)))
    before = asked(3, 1)
    for x in (0.29, 0.31, 0.31):
        site.tell({"x": x, "y": 0.0}, hill({"x": x, "y": 0.0}, None))
    site.tell({"x": 0.5, "y": 0.5}, failed=True)
    site.tell({"z": 0.5}, 1.0)  # of another search space
    assert asked(3, 1) == before, "an interrupted task is not changed"
    site.tell(before[0], 0.0)
    agent(journal).answer(packed(algorithm, task(3, 1)))
    assert history(journal).trials.tolist() == [0, 1, 2, 3]
    (config,) = asked(4, 1)
    site.tell(config, 0.1)
    agent(journal).answer(packed(algorithm, task(4, 1)))
    assert history(journal).trials.tolist() == [-2, -1, 0, 1, 2, 3, 4]
    assert history(journal).points[:2].tolist() == [[0.29, 0.0], [0.31, 0.0]]
    assert [answer.answer.num_evaluations for answer in read_answers(journal)] == [5]


def history(journal):
    with AgentJournal(journal, "3") as memory:
        stored = memory.study("s")
    return agent_state_from_bytes(stored.state, SPACE).history


def test_the_commands_ask_and_tell_evaluate_a_trial_by_hand(tmp_path, capsys):
    journal = str(tmp_path / "a.db")
    assert run(["tell", journal, "--value", "1"]) == 2, "nothing was asked"
    with answering(journal, 2):
        assert run(["ask", journal]) == 0
        assert json.loads(capsys.readouterr().out) == Site(journal).ask()
        for words in (["--value", "1", "--failed"], [], ["--value", "1", "--config", "[1]"]):
            assert run(["tell", journal, *words]) == 2
        assert run(["tell", journal, "--value", "-0.75"]) == 0
        assert run(["ask", journal]) == 0
        second = capsys.readouterr().out.splitlines()[-1]
        assert run(["tell", journal, "--config", second, "--failed"]) == 0
    assert [str(e.values[0]) for e in evaluations(journal)] == ["-0.75", "nan"]
    assert run(["ask", journal, "--timeout", "0.01"]) == 1


def test_outputs_are_told_by_name_and_what_is_missing_is_named(tmp_path):
    aims = Aims.of(objectives="loss min", limits="cost <= 1")
    journal, site, told = tmp_path / "a.db", Site(tmp_path / "a.db"), {"loss": 0.25, "cost": 2.0}
    site.tell({"x": 0.5, "y": 0.5}, {"cost": 0.5, "loss": 0.75})  # before the first study
    site.tell({"x": 0.1, "y": 0.5}, 0.75)  # does not fit it
    with answering(journal, 2, aims=aims):
        config = site.ask()
        for value in (0.25, {"loss": 1}, told | {"mb": 1}):
            with pytest.raises(ConfigError, match=r"value: expected a dict of loss, cost, .* got a "):
                site.tell(config, value)
        words = ["tell", str(journal), "--value", "loss=0.25", "--value"]
        assert run([*words, "cost=high"]) == run([*words, "0.3"]) == run([*words, "loss=1"]) == 2
        assert run([*words, "cost=2"]) == 0
        site.tell(config, told)
        site.tell(site.ask(), {"loss": math.nan, "cost": 1.0})
    (stored,) = read_answers(journal)
    assert (stored.num_failed, stored.answer.outputs) == (1, told), "of its own trials the nearest"
    found = history(journal)
    assert found.trials.tolist() == [-1, 0, 1]
    assert found.outputs[:2].tolist() == [[-0.75, -0.5], [-0.25, -2.0]]
