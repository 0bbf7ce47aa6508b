"""An agent: what it answers, what it discloses, what it refuses, and what it remembers."""

import json
import pickle
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import pytest
from agents import SPACE, Objective, node, packed, task
from amounts import examples
from contract import same
from flwr.app import ConfigRecord, Context, RecordDict

from fbo_flower import Float, SearchSpace, wire
from fbo_flower.algorithms import FTS, RandomSearch, make_algorithm
from fbo_flower.algorithms.messages import Content, Replies, real, report_schema, summable
from fbo_flower.algorithms.records import AgentState, Array, Federation, Phase, Trials
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.memory import (
    MAX_STATE_REPORT,
    StateMemory,
    agent_state_from_bytes,
    agent_state_to_bytes,
    journal_path,
    open_memory,
)
from fbo_flower.errors import ConfigError, FBOError, JournalError, ObjectiveError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff
from fbo_flower.storage import AgentJournal, agent_journal
from fbo_flower.storage.files import task_key
from fbo_flower.wire.flower_records import to_lists

CANARY = 0.7234567890123457  # a value that must not leave
FEATURES = rff.draw_features(20, 0.5, 2, np.random.default_rng(0))
MODEL = FTS(num_features=20, num_candidates=64, num_path_features=32)
ARRAYS = {"frequencies": FEATURES.frequencies, "phases": FEATURES.phases}


def canary(function=lambda config, context: CANARY * (1 + context.trial)):
    return Objective(function)


def agent(objective=None, context=None, **options):
    return TuningAgent(objective or canary(), SPACE, context or node(), **{"seed": 4, **options})


def asked(trial=0, num_trials=3, arrays=ARRAYS, phase=Phase.TRAIN, **envelope):
    """Return a task of FTS, with the features of its message."""
    return packed(MODEL, task(trial, num_trials, phase, arrays=arrays, values={"message": True}), **envelope)


def simple(trial=0, num_trials=3, phase=Phase.TRAIN, **envelope):
    return packed(RandomSearch(), task(trial, num_trials, phase), **envelope)


# -- what it answers ---------------------------------------------------------------------------


# -- what it discloses -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Told(Content):
    """A report: a sum, the best value and the best point."""

    total: Annotated[Array | None, summable(1, bound=1e6)] = None
    best: Annotated[Array | None, real(1, disclose=("incumbent", "trials"))] = None
    point: Annotated[Array | None, real("D", low=0.0, high=1.0, disclose=("trials",))] = None


@dataclass(frozen=True, kw_only=True)
class Telling(RandomSearch):
    """Random search whose agents tell the sum of their values; with consent their best value and point."""

    name: ClassVar[str] = "telling"
    report_content: ClassVar[type[Content]] = Told

    def summarise(self, task, agent_state, rng):
        points, values = agent_state.history.points, agent_state.history.values
        row = int(np.argmax(values))
        return Told(total=values.sum(keepdims=True), best=values[[row]], point=points[row])


NOTHING = {"total"}
BEST = {"total", "best", "disclosed.incumbent"}
TRIALS = {"point", "disclosed.failures", "disclosed.points", "disclosed.values", "disclosed.times"} | BEST


@pytest.mark.parametrize(
    ("app", "operator", "expected"),
    [
        (None, {}, NOTHING), ("none", {}, NOTHING), ("incumbent", {}, BEST), ("trials", {}, TRIALS),
        ("trials", {"disclose": "none"}, NOTHING), ("trials", {"disclose": "incumbent"}, BEST),
        ("none", {"disclose": "trials"}, TRIALS),
    ],
)  # fmt: skip
def test_arrays_leave_only_with_consent_and_the_operator_overrides_the_app(app, operator, expected):
    def names(secure_sums):
        one = agent(context=node(**operator), disclose=app, algorithms=[Telling])
        reply = one.answer(packed(Telling(secure_sums=secure_sums), task()))
        if "disclosed.incumbent" in expected:
            assert reply.config["disclosed.incumbent"] == 3 * CANARY
        return {*reply.arrays, *(n for n in reply.config if n.startswith("disclosed."))}

    assert names(0) == expected
    assert names(3) == expected - NOTHING, "an agent outside of a secure sum sends no summand"


def test_reasons_of_failures_stay_at_home_unless_trials_are_disclosed():
    def failing(config, context):
        raise ValueError(f"patient {CANARY} at {config['x']}")

    context = node()
    reply = agent(canary(failing), context).answer(simple())
    assert reply.config["num-failed"] == 3
    assert "patient" not in str(reply)
    told = agent(canary(failing), context, disclose="trials").answer(simple())
    failures = json.loads(told.config["disclosed.failures"])
    assert list(failures) == ["0", "1", "2"]
    assert failures["0"].startswith(f"ValueError: patient {CANARY}")


# -- what it refuses ---------------------------------------------------------------------------


WRONG_ENTRIES = {  # `tests/wire` shows what a message may be made of; None: the key itself is in the error
    "agent": [("4", None), ("", None)], "space": [("0" * 64, "digest")],
    "algorithm": [("nope", "random, ts, fts"), ("", "random, ts, fts")],
    "options": [
        ('{"nope":1}', "no option"), ('{"num_initial":0}', "num_initial"), ("[]", None),
        ("[" * 100_000, None), ('{"num_initial":' + "9" * 5000 + "}", None),
    ],
    "schema": [(2, None)], "phase": [("later", None)], "trial": [(1, None), (-1, None)],
    "num-trials": [(wire.MAX_TASK + 1, "num-trials: expected at most 10000000")],
    "names": [("a", None)], "values": [('{"message":1}', None)], "round": [(None, None)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "match"), [(key, *pair) for key, every in WRONG_ENTRIES.items() for pair in every]
)
def test_tasks_that_cannot_be_trusted_are_refused_before_anything_is_evaluated(key, value, match):
    objective, context = canary(), node()
    arrays, config = to_lists(simple())
    with pytest.raises(FBOError, match=match or key):
        agent(objective, context).fit(arrays, config | {key: value})
    assert not objective.calls
    assert not context.state


@pytest.mark.parametrize("config", [{}, {"agent": ""}, {"agent": "a,b"}, {"agent": "x\n"}])
def test_nodes_without_a_usable_name_are_config_errors(config):
    with pytest.raises(ConfigError, match="agent"):
        agent(context=Context(1, 5, config, RecordDict(), {}))


# -- what it remembers -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [4, None])
def test_a_task_that_comes_again_is_not_done_again(seed):
    """Without a seed a device draws once what nobody can repeat."""
    objective, context = canary(), node()
    first = agent(objective, context, seed=seed).answer(asked())
    later = asked()
    later.config["round"] = 6
    again = agent(objective, context, seed=seed).answer(later)  # a new process, the same state
    assert again.config == first.config | {"round": 6}
    assert same(again.arrays, first.arrays)
    assert objective.trials == [0, 1, 2]
    other = agent(seed=seed).answer(asked()).arrays["weights"]
    assert np.array_equal(first.arrays["weights"], other) == (seed == 4)


def test_a_task_beyond_the_budget_is_done_as_far_as_it_reaches_and_the_next_one_declined():
    objective, context = canary(), node(max_trials=2)
    reply = agent(objective, context).answer(simple(0, 3))
    assert (objective.trials, reply.config["num-trials"]) == ([0, 1], 2)
    assert reply.config["spent"] is True
    for study, trial in (("s", 2), ("another", 0)):  # the budget is one for all studies; nothing is told
        further = simple(trial, 1, study=study)
        declined = agent(objective, context).answer(further)
        assert wire.declines(declined, wire.decode_envelope(further.config))
    agent(objective, context).answer(simple(0, 3))  # answered before: costs nothing
    assert objective.trials == [0, 1]


def test_damaged_memory_is_a_journal_error_and_nothing_is_evaluated():
    objective = canary()
    known = {"study": "s", "entropy": "4", "algorithm": "", "answered": "{}"}
    damaged = ConfigRecord({**known, "data": b"\x00" * 40})
    with pytest.raises(JournalError, match="stored state"):
        agent(objective, node(state=RecordDict({"fbo-flower.memory": damaged}))).answer(asked())
    assert not objective.calls


def test_observations_from_before_make_the_first_message_and_are_not_disclosed():
    points = np.random.default_rng(0).random((8, 2))
    prior = (points, 99 + points.sum(axis=1))
    sent = [agent(prior={name: prior}).answer(asked(0, 0)).arrays for name in ("3", "4")]
    assert list(map(list, sent)) == [["weights"], []]
    reply = agent(prior={"3": prior}, disclose="trials").answer(simple())
    assert reply.arrays["disclosed.points"].shape == (3, 2)
    assert reply.config["disclosed.incumbent"] == 3 * CANARY, "the best of this study"


# -- an agent that dies and comes back: nothing it evaluated is lost, repeated or answered differently ------

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


def device(objective, context, seed=7):
    return TuningAgent(objective, SPACE, context, seed=seed, disclose="trials")


def content(reply):
    """Return a reply without times, which differ between two runs, and without its round."""
    arrays = {name: a.tobytes() for name, a in reply.arrays.items() if name != "disclosed.times"}
    return arrays, {name: value for name, value in reply.config.items() if name != "round"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_killed_at_any_evaluation_it_goes_on_after_the_last_one(name, tmp_path, monkeypatch):
    monkeypatch.setattr(agent_journal, "COMMIT_SECONDS", 0.0)  # every evaluation, as if it had taken a second
    whole = Objective(noisy)
    expected = play(name, lambda message, _: device(whole, node(tmp_path / "whole.db")).answer(message))
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
                return device(dying, node(path)).answer(message)
            return device(dying, node(path)).answer(message)  # a new process, the same file

        reports = play(name, answer)
        assert list(map(content, reports)) == list(map(content, expected))
        assert made == whole.trials, "nothing twice, nothing left out"


def test_the_incarnation_stays_with_the_memory_and_goes_with_it(tmp_path):
    def incarnation(context):
        return str(device(Objective(), context).get_properties({})["incarnation"])

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
        return device(Objective(), node(tmp_path / "a.db")).answer(message)

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


def test_a_memory_in_flowers_state_is_the_same_after_it_travelled_and_stays_small():
    state = RecordDict()
    memory = StateMemory(state)
    memory.begin("s", 2**80, agent_state_to_bytes(a_state()), "fts {}")
    memory.begin("s", 1, b"", "another")  # what is known already stays
    for number in range(30):
        memory.finish("s", "task", 1, b"the state", b"report", (), (f"work {number}", "key"))
    for kept in (state, pickle.loads(pickle.dumps(state))):
        found = StateMemory(kept)
        assert (found.num_studies(), found.study("s")) == (1, (2**80, b"the state", "fts {}", ""))
        assert (found.report("s", "task"), found.report("t", "task")) == (b"report", None)
        assert [n for n in range(30) if found.answered("s", f"work {n}") == "key"] == list(range(22, 30))
        assert found.answered("t", "work 29") is None
    memory.finish("s", "large", 1, b"", bytes(MAX_STATE_REPORT + 1))
    assert memory.report("s", "large") is memory.report("s", "task") is None
    memory.begin("t", 4, b"", "ei {}")
    assert (memory.study("s"), memory.study("t")) == (None, (4, b"", "ei {}", ""))
    assert memory.note("forgotten") == {"studies": ["s"]}
