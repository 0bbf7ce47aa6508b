"""An agent that dies and comes back: nothing it evaluated is lost, repeated or answered differently."""

import pickle
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import pytest
from agents import SPACE, Objective, node, packed
from amounts import examples
from contract import same
from flwr.app import RecordDict

from fbo_flower import Float, SearchSpace, wire
from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.messages import Replies, report_schema
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Trials
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.memory import (
    MAX_STATE_REPORT,
    STATE_KEY,
    StateMemory,
    agent_state_from_bytes,
    agent_state_to_bytes,
    journal_path,
    open_memory,
)
from fbo_flower.errors import JournalError, ObjectiveError
from fbo_flower.numerics.seeding import generator
from fbo_flower.storage import AgentJournal, agent_journal
from fbo_flower.storage.files import dumps, task_key

ALGORITHMS = {
    "random": {"num_initial": 5},
    "fts": {"num_initial": 5, "num_features": 10},
    "pf-pne": {"budget": 30, "max_evaluations_per_round": 12},
    "local-pne": {"budget": 30, "max_evaluations_per_round": 12, "deterministic": True},
    "ei": {"num_initial": 2, "trials_per_round": 3, "num_candidates": 32},
}


class Killed(KeyboardInterrupt):
    """Stands for SIGKILL."""


def noisy(config, context):
    if context.trial == 3:
        raise ObjectiveError("planted")
    return -((config["x"] - 0.3) ** 2) - (config["y"] - 0.6) ** 2 + 0.1 * context.rng.standard_normal()


def play(name, answer):
    """Play the server for three rounds, and return the agent's reports."""
    algorithm = make_algorithm(name, ALGORITHMS[name])
    state, reports = algorithm.init(Federation(SPACE, ("3",)), generator(0, "init")), []
    envelope = wire.Envelope("s", "3", SPACE.digest)
    for server_round in range(1, 4):
        rng = generator(0, "ask", str(server_round))
        state, asked = algorithm.ask(state, Phase.TRAIN, server_round, ["3"], rng)
        task = asked["3"]
        reports.append(answer(packed(algorithm, task), task))
        report, _ = wire.decode_report(reports[-1], task, envelope, report_schema(algorithm, SPACE), 2)
        state = algorithm.tell(state, Phase.TRAIN, Replies({"3": report}, algorithm.report_content))
    return reports


def agent(objective, context, seed=7):
    return TuningAgent(objective, SPACE, context, seed=seed, disclose="trials")


def content(reply):
    """Return a reply without times, which differ between two runs, and without its round."""
    arrays = {name: a.tobytes() for name, a in reply.arrays.items() if name != "disclosed.times"}
    return arrays, {name: value for name, value in reply.config.items() if name != "round"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_killed_at_any_evaluation_it_goes_on_after_the_last_one(name, tmp_path, monkeypatch):
    monkeypatch.setattr(agent_journal, "COMMIT_SECONDS", 0.0)  # every evaluation, as if it had taken a second
    whole = Objective(noisy)
    expected = play(name, lambda message, _: agent(whole, node(tmp_path / "whole.db")).answer(message))
    assert whole.calls >= 7
    for dies_at in range(0, whole.calls, examples(1, 1 + whole.calls // 5)):
        path, made, fatal = tmp_path / f"{dies_at}.db", list[int](), [dies_at]

        def dying(config, context, made=made, fatal=fatal):
            if [len(made)] == fatal:
                fatal.clear()
                raise Killed
            made.append(context.trial)
            return noisy(config, context)

        def answer(message, _, path=path, dying=dying):
            with suppress(Killed):
                return agent(dying, node(path)).answer(message)
            return agent(dying, node(path)).answer(message)  # a new process, the same file

        reports = play(name, answer)
        assert list(map(content, reports)) == list(map(content, expected))
        assert made == whole.trials, "nothing twice, nothing left out"


def test_the_entropy_of_a_device_is_kept_in_its_journal(tmp_path):
    def proposals(name):
        one = agent(Objective(), node(tmp_path / name), seed=None)
        reports = play("random", lambda message, _: one.answer(message))
        return [report.arrays["disclosed.points"].tolist() for report in reports]

    first = proposals("a.db")
    with AgentJournal(tmp_path / "a.db", "3") as journal:
        stored = journal.study("s")
    assert stored is not None
    assert stored.entropy > 2**64
    assert proposals("a.db") == first != proposals("b.db")


def test_the_incarnation_stays_with_the_memory_and_goes_with_it(tmp_path):
    def incarnation(context):
        return str(agent(Objective(), context).get_properties({})["incarnation"])

    in_state, file = node(), node(tmp_path / "a.db")
    found = [incarnation(context) for context in (in_state, node(), file, node(tmp_path / "b.db"))]
    assert len(set(found)) == 4
    assert [incarnation(in_state), incarnation(node(tmp_path / "a.db"))] == [found[0], found[2]]
    with closing(open_memory(file, "3", journal_path(file, "3"))) as memory:
        assert memory.note("account") == {}
        memory.put_note("account", {"answers": {"inbag": 3}})
        memory.begin("s2", 5, b"")
    with closing(open_memory(file, "3", journal_path(file, "3"))) as memory:
        assert memory.note("account") == {"answers": {"inbag": 3}}, "it outlives studies"


def test_a_directory_of_journals_serves_agents_whose_operator_names_none(tmp_path):
    paths = [journal_path(node(), "3/../x", tmp_path), journal_path(node(tmp_path / "own.db"), "3", tmp_path)]
    assert paths == [str(tmp_path / name) for name in ("agent-3-x-b6d15b8f6aa8cc3f.db", "own.db")]
    assert isinstance(open_memory(node(), "3", journal_path(node(), "3")), StateMemory)


def test_a_journal_that_does_not_fit_the_algorithm_is_an_error(tmp_path):
    def answer(message, task):
        with AgentJournal(tmp_path / "a.db", "3") as journal:
            journal.append("s", task_key(task), Trials(np.full((1, 2), 0.5), np.ones(1), np.array([0])))
        return agent(Objective(), node(tmp_path / "a.db")).answer(message)

    with pytest.raises(JournalError, match="another version"):
        play("random", answer)


def a_state():
    points = np.asfortranarray(np.random.default_rng(0).random((5, 2)))
    values = np.array([1.0, np.nan, 3.0, -0.0, 5.0])
    stopped, predicted = np.array([-1, -1, 3, -1, -1]), np.where(np.arange(5) == 2, 0.1 + 0.2, np.nan)
    failures = np.array(["", "planted", "", "", ""], dtype=object)
    history = Trials(points, values, np.arange(5), failures, stopped=stopped, predicted=predicted)
    return AgentState(SPACE, history, {"row": np.eye(3)[1], "number": np.array(2.0)}, passed=7)


def test_a_state_comes_back_from_its_bytes_as_it_was_stored():
    state = a_state()
    found = agent_state_from_bytes(agent_state_to_bytes(state), SPACE)
    assert same(found, replace(state, space=found.space))
    assert agent_state_to_bytes(found) == agent_state_to_bytes(state)
    assert not found.history.points.flags.writeable, "what is stored is a value"
    with pytest.raises(JournalError, match="space: expected digest"):
        agent_state_from_bytes(agent_state_to_bytes(state), SearchSpace({"x": Float(0.0, 2.0)}))


def a_report(length=3):
    return bytes(dumps({"weights": np.arange(float(length))}, {"round": 2, "values": "{}", "ok": True}))


def test_a_memory_in_flowers_state_is_the_same_after_it_travelled():
    state, report = RecordDict(), a_report()
    memory = StateMemory(state)
    assert (memory.num_studies(), memory.study("s")) == (0, None)
    memory.begin("s", 2**80, agent_state_to_bytes(a_state()), "fts {}")
    memory.begin("s", 1, b"", "another")  # what is known already stays
    for number in range(30):
        memory.finish("s", "task", 1, b"the state", report, (), (f"work {number}", "key"))
    for kept in (state, pickle.loads(pickle.dumps(state))):
        found = StateMemory(kept)
        assert found.study("s") == (2**80, b"the state", "fts {}", "")
        assert found.report("s", "task") == report
        assert (found.report("s", "other"), found.report("t", "task")) == (None, None)
        answered = [n for n in range(30) if found.answered("s", f"work {n}") == "key"]
        assert answered == list(range(22, 30)), "the state travels with every message, so it stays small"
        assert found.answered("t", "work 1") is None
        assert (found.num_studies(), found.note("forgotten")) == (1, {})
    memory.begin("t", 4, b"", "ei {}")
    assert (memory.study("s"), memory.study("t")) == (None, (4, b"", "ei {}", ""))
    assert memory.note("forgotten") == {"studies": ["s"]}


@pytest.mark.parametrize("length", [MAX_STATE_REPORT // 8 - 100, MAX_STATE_REPORT // 8 + 1])
def test_a_report_that_is_too_large_is_not_kept(length):
    state, report = RecordDict(), a_report(length)
    StateMemory(state).finish("s", "task", 1, b"", b"an earlier report")
    StateMemory(state).finish("s", "task", 1, b"", report)
    assert (f"{STATE_KEY}.report" in state) == (len(report) <= MAX_STATE_REPORT)
