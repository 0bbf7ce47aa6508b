import json
import struct
import time

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

import fbo_flower
from fbo_flower import wire
from fbo_flower.algorithms import FTS, RandomSearch, ThompsonSampling
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.clients import TuningAgent, client_app
from fbo_flower.errors import ConfigError, FBOError, JournalError, WireError
from fbo_flower.numerics.surrogates import rff
from fbo_flower.space import Float, Int, SearchSpace
from fbo_flower.storage.serialization import loads
from fbo_flower.wire.flower_records import from_lists, from_records, to_lists, to_records

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
CANARY = 0.7234567890123457  # a value that must not leave
FEATURES = rff.draw_features(20, 0.5, 2, np.random.default_rng(0))
MODEL = FTS(num_features=20, num_candidates=64, num_path_features=32)


def node(state=None, **config):
    return Context(1, 5, {"partition-id": 3, "num-partitions": 9, **config}, state or RecordDict(), {})


class Objective:
    """Counts its calls; its values are a canary plus something small."""

    def __init__(self, value=None):
        self.calls = []
        self.value = value

    def __call__(self, config, context):
        self.calls.append((context.trial, dict(config), context))
        return CANARY * (1 + context.trial) if self.value is None else self.value(config, context)


def agent(objective=None, context=None, **options):
    options = {"seed": 4, **options}
    return TuningAgent(objective or Objective(), SPACE, context or node(), **options)


def task(trial=0, num_trials=3, *, algorithm=MODEL, message=True, arrays=None, **changes):
    if arrays is None:
        arrays = {"frequencies": FEATURES.frequencies, "phases": FEATURES.phases} if message else {}
    envelope = {
        "study": "s1",
        "agent": "3",
        "space": SPACE.digest,
        "algorithm": algorithm.name,
        "options": canonical_json(algorithm.options()),
    }
    envelope |= {k: changes.pop(k) for k in list(changes) if k in envelope}
    values = {"message": True} if message else {}
    task = Task(changes.pop("phase", Phase.TRAIN), 1 + trial, trial, num_trials, arrays, values)
    packed, config = to_lists(wire.encode_task(task, wire.Envelope(**envelope)))
    return packed, config | changes


def simple(trial=0, num_trials=3, **changes):
    return task(trial, num_trials, algorithm=RandomSearch(), message=False, **changes)


def all_bytes(arrays, config):
    """The reply as it would travel, all of it in one text of bytes."""
    content = to_records(from_lists(arrays, config))
    found = [a.data for a in content["arrays"].values()]
    for key, value in content["config"].items():
        number = struct.pack("<d", value) if isinstance(value, float) else b""
        found.append(f"{key}={value!r}".encode() + number)
    return b"|".join(found)


def secrets(objective, context):
    """Every form in which the agent's points and values might stand in a message."""
    arrays, _ = loads(context.state["fbo-flower.memory"]["data"])
    numbers = [*arrays["history.points"].ravel(), *arrays["history.values"].ravel()]
    assert len(numbers) >= 9
    forms = []
    for number in set(map(float, numbers)) - {0.0, 1.0}:  # a corner of the cube says nothing
        forms += [struct.pack("<d", number), struct.pack(">d", number), struct.pack("<f", number)]
        forms += [repr(number).encode(), f"{number:.8g}".encode()]
    return forms


# -- what it answers ---------------------------------------------------------------------------


def test_registration_says_who_and_what():
    before = time.time()
    answer = agent(context=node(role="lead", disclose="incumbent")).get_properties({})
    assert len(answer.pop("incarnation")) == 16
    assert {answer.pop(key) for key in ("version", "flwr", "python")} >= {fbo_flower.__version__}
    assert before <= answer.pop("time") <= time.time()
    assert answer == {
        "journal": "none",
        "schema": wire.SCHEMA_VERSION,
        "agent": "3",
        "space": SPACE.to_json(),
        "digest": SPACE.digest,
        "role": "lead",
        "disclose": "incumbent",
        "disclose_by": "operator",
    }


def test_report_answers_the_task():
    arrays, num_examples, config = agent().fit(*task())
    assert num_examples == 3
    report, disclosure = wire.decode_report(
        from_lists(arrays, config),
        Task(Phase.TRAIN, 1, 0, 3, {}, {"message": True}),
        wire.Envelope("s1", "3", SPACE.digest),
        MODEL.report_schema(SPACE),
        2,
    )
    assert report.arrays["weights"].shape == (20,)
    assert disclosure == wire.Disclosure()


def test_objective_is_told_where_it_is():
    objective = Objective()
    agent(objective, node(data="here.csv")).fit(*simple(0, 2))
    (_, config, context) = objective.calls[1]
    assert set(config) == {"x", "y"}
    assert (context.agent, context.partition, context.trial, context.server_round) == ("3", 3, 1, 1)
    assert context.node_config["data"] == "here.csv"


def test_partition_is_minus_1_on_a_device_without_one():
    context = Context(1, 5, {"agent": "pump-7"}, RecordDict(), {})
    objective = Objective()
    agent(objective, context).fit(*simple(agent="pump-7"))
    assert objective.calls[0][2].partition == -1
    assert agent(context=context).get_properties({})["agent"] == "pump-7"


def test_noise_of_a_trial_repeats_whenever_and_wherever_it_is_evaluated():
    def noisy(config, context):
        return float(context.rng.standard_normal())

    values = []
    for _ in range(2):
        objective = Objective(noisy)
        arrays, _, config = agent(objective, disclose="trials").fit(*simple())
        values.append(dict(zip(config["names"].split(","), arrays, strict=True))["disclosed.values"])
    np.testing.assert_array_equal(*values)
    other = agent(Objective(noisy), seed=5, disclose="trials").fit(*simple())[0][1]
    assert not np.array_equal(other, values[0])


def test_without_a_seed_nobody_can_repeat_the_draws():
    sent = [agent(seed=None).fit(*task())[0][0] for _ in range(2)]
    assert not np.array_equal(*sent)


def test_evaluate_returns_scalars_only():
    loss, count, config = agent(disclose="incumbent").evaluate(*simple(phase=Phase.EVALUATE))
    assert (loss, count) == (0.0, 3)
    assert config["disclosed.incumbent"] == pytest.approx(3 * CANARY)
    _, _, everything = agent(disclose="trials").evaluate(*simple(phase=Phase.EVALUATE))
    assert everything == config, "trials are arrays, which cannot travel"
    with pytest.raises(WireError, match="scalars"):
        agent().evaluate(*task(phase=Phase.EVALUATE))


# -- what it does not disclose -----------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm", [RandomSearch(), ThompsonSampling(), MODEL, FTS(lengthscale="federated")]
)
def test_no_point_or_value_leaves_an_agent_that_discloses_nothing(algorithm):
    context, objective = node(), Objective()
    asked = isinstance(algorithm, FTS)
    arrays = (
        {}
        if algorithm != FTS(lengthscale="federated")
        else {"lengthscales": np.array((0.1, 0.2, 0.3, 0.5, 0.7, 1.0))}
    )
    given = None if algorithm is MODEL else arrays
    one = agent(objective, context)
    reply = b""
    for trial, count in ((0, 3), (3, 1), (4, 1), (0, 3), (5, 0)):
        answer, _, config = one.fit(*task(trial, count, algorithm=algorithm, message=asked, arrays=given))
        reply += all_bytes(answer, config)
    assert not [s for s in secrets(objective, context) if s in reply]
    assert b"disclosed" not in reply


def test_canary_is_found_where_trials_are_disclosed():
    context, objective = node(), Objective()
    answer, _, config = agent(objective, context, disclose="trials").fit(*simple())
    found = [s for s in secrets(objective, context) if s in all_bytes(answer, config)]
    assert len(found) >= 9, "six coordinates and three values in some form"


def test_incumbent_discloses_the_best_value_and_nothing_else():
    context, objective = node(), Objective()
    answer, _, config = agent(objective, context, disclose="incumbent").fit(*simple())
    assert config["disclosed.incumbent"] == 3 * CANARY
    found = {s for s in secrets(objective, context) if s in all_bytes(answer, config)}
    best = 3 * CANARY
    assert found <= {struct.pack("<d", best), repr(best).encode(), f"{best:.8g}".encode()}


def test_reasons_of_failures_stay_at_home():
    def failing(config, context):
        raise ValueError(f"patient {CANARY} at {config['x']}")

    context, objective = node(), Objective(failing)
    answer, _, config = agent(objective, context).fit(*simple())
    assert config["num-failed"] == 3
    reply = all_bytes(answer, config)
    assert b"patient" not in reply
    assert str(CANARY).encode() not in reply


@pytest.mark.parametrize(
    ("operator", "app"), [("none", "trials"), ("incumbent", "trials"), ("trials", "none")]
)
def test_operators_word_comes_before_the_apps(operator, app):
    one = agent(context=node(disclose=operator), disclose=app)
    assert one.get_properties({})["disclose"] == operator
    _, _, config = one.fit(*simple())
    assert ("disclosed.incumbent" in config) == (operator != "none")
    assert ("disclosed.points" in config["names"]) == (operator == "trials")


def test_unknown_disclosure_is_a_config_error():
    with pytest.raises(ConfigError, match="none, incumbent, trials"):
        agent(disclose="everything")
    with pytest.raises(ConfigError, match="disclose"):
        agent(context=node(disclose="Trials"))


def test_errors_of_refused_tasks_tell_nothing_of_the_data():
    one = agent()
    one.fit(*task())
    with pytest.raises(WireError) as caught:
        one.fit(*task(9, 1))
    assert "0.72" not in str(caught.value)


# -- what it refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"agent": "4"}, "agent"),
        ({"agent": ""}, "agent"),
        ({"space": "0" * 64}, "digest"),
        ({"algorithm": "nope"}, "random, ts, fts"),
        ({"algorithm": ""}, "random, ts, fts"),
        ({"options": '{"nope":1}'}, "no option"),
        ({"options": '{"num_initial":0}'}, "num_initial"),
        ({"options": "[]"}, "options"),
        ({"options": "{"}, "options"),
        ({"options": "[" * 100_000}, "options"),
        ({"options": '{"num_initial":' + "9" * 5000 + "}"}, "options"),
        ({"options": '{"num_initial":NaN}'}, "num_initial"),
        ({"schema": 2}, "schema"),
        ({"schema": True}, "schema"),
        ({"schema": "1"}, "schema"),
        ({"phase": "later"}, "phase"),
        ({"trial": -1}, "trial"),
        ({"trial": 1}, "trial"),
        ({"trial": True}, "trial"),
        ({"num-trials": -1}, "num-trials"),
        ({"num-trials": 1.0}, "num-trials"),
        ({"round": None}, "round"),
        ({"names": "a"}, "names"),
        ({"values": '{"message":1}'}, "values"),
        ({"study": 5}, "study"),
    ],
)
def test_tasks_that_cannot_be_trusted_are_refused_before_anything_is_evaluated(changes, match):
    objective, context = Objective(), node()
    arrays, config = simple()
    with pytest.raises(FBOError, match=match):
        agent(objective, context).fit(arrays, config | changes)
    assert not objective.calls
    assert not context.state


@pytest.mark.parametrize(
    "options",
    [
        {"lengthscale": [[1, 2], [3]]}, {"lengthscale": [0.1]}, {"targets": 5}, {"targets": [[1]]},
        {"schedule": []}, {"advice": {}}, {"kernel": None}, {"num_features": 1e9}, {"num_features": 10**9},
        {"min_distance": "0"}, {"lengthscale": {}}, {"targets": [None]}, {"refresh_every": 0},
        {"y_transform": ["clip"]},
    ],
)  # fmt: skip
def test_hostile_options_are_config_errors(options):
    objective = Objective()
    with pytest.raises(ConfigError):
        agent(objective).fit(*task(options=json.dumps(options)))
    assert not objective.calls


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("point", np.array([0.5, 1.5])),
        ("point", np.array([0.5, -1e-9])),
        ("point", np.array([np.nan, 0.5])),
        ("point", np.array([0.5])),
        ("point", np.array([0.5, 0.5], dtype=np.float32)),
        ("weights", np.full(20, np.inf)),
        ("weights", np.ones(21)),
        ("phases", np.full(20, 7.0)),
        ("frequencies", np.ones((20, 3))),
        ("messages", np.ones((33, 20))),
        ("messages", np.ones((2, 19))),
        ("history.points", np.zeros((1, 2))),
    ],
)
def test_arrays_that_do_not_fit_the_schema_are_refused(name, array):
    objective = Objective()
    one = agent(objective)
    one.fit(*task())
    arrays = {"frequencies": FEATURES.frequencies, "phases": FEATURES.phases, name: array}
    with pytest.raises(WireError, match=name):
        one.fit(*task(3, 1, arrays=arrays))
    assert len(objective.calls) == 3


@pytest.mark.parametrize(
    "config", [{}, {"agent": ""}, {"agent": "a,b"}, {"agent": "x\n"}, {"agent": "x" * 101}]
)
def test_nodes_without_a_usable_name_are_config_errors(config):
    context = Context(1, 5, config, RecordDict(), {})
    with pytest.raises(ConfigError, match="agent"):
        TuningAgent(Objective(), SPACE, context)


# -- what it remembers -------------------------------------------------------------------------


def test_a_task_that_comes_again_is_not_done_again():
    objective, context = Objective(), node()
    first = agent(objective, context).fit(*task())
    again = agent(objective, context).fit(*task())  # a new process, the same state
    assert all_bytes(first[0], first[2]) == all_bytes(again[0], again[2])
    assert [trial for trial, _, _ in objective.calls] == [0, 1, 2]
    agent(objective, context).fit(*task(3, 1))
    agent(objective, context).fit(*task(0, 3))
    assert [trial for trial, _, _ in objective.calls] == [0, 1, 2, 3]


def test_a_task_that_begins_with_a_trial_that_was_made_is_refused():
    objective, context = Objective(), node()
    agent(objective, context).fit(*simple(0, 3))
    with pytest.raises(WireError, match="trial: expected 3"):
        agent(objective, context, disclose="trials").fit(*simple(1, 4))
    assert [trial for trial, _, _ in objective.calls] == [0, 1, 2]


def test_memory_survives_bytes():
    objective, context = Objective(), node()
    whole = agent(objective, context)
    whole.fit(*task())
    memory = dict(context.state["fbo-flower.memory"])
    later = node(RecordDict({"fbo-flower.memory": ConfigRecord(memory)}))
    one, two = whole.fit(*task(3, 1)), agent(objective, later).fit(*task(3, 1))
    assert all_bytes(one[0], one[2]) == all_bytes(two[0], two[2])


def test_damaged_memory_is_a_journal_error_and_nothing_is_evaluated():
    objective = Objective()
    study = json.dumps({"study": "s1", "entropy": "4"})
    later = node(RecordDict({"fbo-flower.memory": ConfigRecord({"data": b"\x00" * 40, "values": study})}))
    with pytest.raises(JournalError, match="stored state"):
        agent(objective, later).fit(*task())
    assert not objective.calls


def test_entropy_of_a_device_is_drawn_once_and_kept():
    context = node()
    agent(context=context, seed=None).fit(*task())
    one = agent(context=context, seed=None).fit(*task())
    two = agent(context=context, seed=None).fit(*task())
    np.testing.assert_array_equal(one[0][0], two[0][0])


def test_another_study_starts_from_nothing():
    objective, context = Objective(), node()
    one = agent(objective, context)
    one.fit(*task(study="s1"))
    one.fit(*task(3, 1, study="s1"))
    one.fit(*task(study="s2"))
    assert [trial for trial, _, _ in objective.calls] == [0, 1, 2, 3, 0, 1, 2]
    with pytest.raises(WireError, match="trial"):
        one.fit(*task(9, 1, study="s2"))


def test_failures_are_remembered_with_their_reasons():
    def sometimes(config, context):
        return 1 / 0 if context.trial == 1 else 0.5

    context = node()
    agent(Objective(sometimes), context).fit(*simple())
    answer = agent(Objective(sometimes), context, disclose="trials").fit(*simple())
    config = answer[2]
    assert config["num-failed"] == 1
    assert json.loads(config["disclosed.failures"]) == {"1": "ZeroDivisionError: division by zero"}


def test_observations_from_before_make_the_first_message():
    points = np.random.default_rng(0).random((8, 2))
    values = points.sum(axis=1)
    with_prior, without = (
        agent(prior=p).fit(*task(0, 0)) for p in ({"3": (points, values)}, {"4": (points, values)})
    )
    assert with_prior[2]["names"] == "weights"
    assert without[2]["names"] == ""
    assert with_prior[1] == 0


def test_observations_from_before_are_not_disclosed_as_trials():
    prior = {"3": (np.full((2, 2), 0.25), np.array([99.0, 98.0]))}
    arrays, _, config = agent(prior=prior, disclose="trials").fit(*simple())
    named = dict(zip(config["names"].split(","), arrays, strict=True))
    assert named["disclosed.points"].shape == (3, 2)
    assert config["disclosed.incumbent"] == 3 * CANARY, "the best of this study"


def test_work_in_mixed_spaces_is_decoded():
    space = SearchSpace({"n": Int(1, 3), "x": Float(0.0, 1.0)})
    objective = Objective()
    TuningAgent(objective, space, node(), seed=1).fit(*simple(space=space.digest))
    assert all(isinstance(config["n"], int) for _, config, _ in objective.calls)


# -- under Flower ------------------------------------------------------------------------------


def message(packed, kind=MessageType.TRAIN):
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 0
    return Message(to_records(from_lists(*packed)), 5, kind)


def test_client_app_is_the_agent():
    objective, context = Objective(), node()
    app = client_app(objective, SPACE, seed=4)
    reply = app(message(task()), context)
    arrays, config = to_lists(from_records(reply.content))
    direct = agent().fit(*task())
    assert all_bytes(arrays, config) == all_bytes(direct[0], direct[2])
    query = app(Message(RecordDict({"config": ConfigRecord()}), 7, MessageType.QUERY), context)
    assert query.content["config"]["agent"] == "3"
    evaluating = simple(0, 0, phase=Phase.EVALUATE, study="s2")
    answer = app(message(evaluating, MessageType.EVALUATE), context)
    assert answer.content["config"]["phase"] == "evaluate"


def test_client_app_refuses_what_the_agent_refuses():
    with pytest.raises(WireError, match="agent"):
        client_app(Objective(), SPACE)(message(task(agent="9")), node())


def test_agent_works_as_a_client_of_the_legacy_app():
    from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.compat.common.recorddict_compat import fitins_to_recorddict, recorddict_to_fitres

    objective = Objective()
    app = ClientApp(client_fn=lambda context: agent(objective, context).to_client())
    arrays, config = task()
    ins = FitIns(ndarrays_to_parameters(arrays), config)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 0
    context = node()
    reply = app(Message(fitins_to_recorddict(ins, keep_input=True), 5, MessageType.TRAIN), context)
    result = recorddict_to_fitres(reply.content, keep_input=True)
    direct = agent().fit(*task())
    assert result.num_examples == 3
    assert result.metrics == direct[2]
    for got, expected in zip(parameters_to_ndarrays(result.parameters), direct[0], strict=True):
        np.testing.assert_array_equal(got, expected)
    assert len(objective.calls) == 3
    assert "fbo-flower.memory" in context.state
