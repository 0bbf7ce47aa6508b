import json
import threading
import time

import numpy as np
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from waiting import LIMIT

from fbo_flower.algorithms.records import Phase
from fbo_flower.clients import TuningAgent, client_app
from fbo_flower.clients.app import agent_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, Int, SearchSpace
from fbo_flower.strategies import RandomSearch
from fbo_flower.strategies.exchange import Stopped, drive
from fbo_flower.strategies.node_report import Registration
from fbo_flower.strategies.registration import Agent, AgentRegistry

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
OTHER = SearchSpace({"x": Float(0.0, 2.0)})
THIRD = SearchSpace({"x": Float(0.0, 1.0), "y": Int(1, 9)})


def objective(config, context):
    return float(config["x"])


def grid(num_nodes=4, spaces=None, app=None, **options):
    def agent(context: Context):
        space = (spaces or {}).get(context.node_config["partition-id"], SPACE)
        return TuningAgent(objective, space, context, seed=1, disclose="trials")

    return InProcessGrid(app or agent_app(agent), num_nodes, **options)


def register(grid, num_agents, wait=0.2, space=None, registry=None):
    registry = registry or AgentRegistry(space)
    stop = threading.Event()
    drive(grid, registry.wait_for_agents(grid, num_agents, wait, stop), stop)
    return registry


def register_late(registry, grid, connected=None, **options):
    connected = grid.get_node_ids() if connected is None else connected
    return drive(grid, registry.register_late(connected, **options), threading.Event())


def test_a_resumed_run_knows_the_agents_of_its_journal_and_who_has_lost_its_memory():
    before = register(grid(2), 2)
    restored = AgentRegistry(SPACE)
    restored.restore(json.loads(json.dumps(before.for_journal())))
    assert (restored.for_journal(), restored.nodes) == (before.for_journal(), {})
    register(grid(2), 2, registry=restored)  # other nodes, with other memories
    assert list(restored.agents) == ["0", "1", "0~2", "1~2"]
    assert restored.nodes == {"0~2": 1001, "1~2": 1002}
    assert restored.agents["1~2"].registration.agent == "1"


def test_who_may_be_asked_is_a_question_of_budgets_and_shares():
    agents = {name: Agent(Registration(agent=name)) for name in "abc"}
    registry = AgentRegistry(SPACE, agents=agents, nodes={"a": 0, "b": 1, "c": 2})
    assert not registry.all_spent
    assert not registry.someone_rests
    assert registry.longest_pause == 1
    agents["a"].spent = agents["c"].spent = True
    assert registry.willing("abc", Phase.TRAIN, 1, 0) == ["b"]
    assert registry.willing("abc", Phase.EVALUATE, 1, 0) == ["a", "b", "c"]
    assert registry.end_line(3).startswith("2 agents have made all evaluations (max_trials)")
    assert "the other 1" in registry.end_line(3)
    del registry.nodes["b"]
    assert registry.all_spent, "who is not there is not waited for"
    agents["b"].registration = Registration(agent="b", participation=0.3)
    assert registry.longest_pause == 4
    assert sum(bool(registry.willing("b", Phase.TRAIN, r, 0)) for r in range(1, 101)) == 30
    assert registry.willing("b", Phase.FINISH, 1, 0) == registry.willing("b", Phase.FINISH, 2, 0) == ["b"]


def test_too_few_agents_is_one_line_with_the_numbers():
    with pytest.raises(ConfigError) as caught:
        register(grid(3), 5)
    assert str(caught.value) == (
        "agents: expected 5, only 3 registered after 0.2 s; start more SuperNodes or set num-supernodes=5"
        "; devices may start slowly: raise wait_seconds (in a run config wait-seconds)"
    )
    with pytest.raises(
        ConfigError, match=r"expected (at least 1, only 0 registered after 0.2 s|an integer >= 1, got 0)"
    ):
        register(grid(0), None)


@pytest.mark.parametrize(
    ("num_nodes", "spaces", "parts"),
    [
        (5, {1: OTHER, 3: OTHER}, ["agents 1, 3", OTHER.digest[:12], SPACE.digest[:12]]),
        (
            3, {1: OTHER, 2: THIRD},
            [
                f"{SPACE.digest[:12]} at agent 0", f"{OTHER.digest[:12]} at agent 1",
                f"{THIRD.digest[:12]} at agent 2", "they differ in x, y",
            ],
        ),
        (20, dict.fromkeys(range(9), OTHER), ["agents 0, 1, 2, 3, 4, ..."]),
    ],
    ids=["two", "a tie", "many"],
)  # fmt: skip
def test_differing_search_spaces_name_agents_and_parameters(num_nodes, spaces, parts):
    with pytest.raises(ConfigError) as caught:
        register(grid(num_nodes, spaces=spaces), num_nodes)
    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize("first", [False, True])
def test_once_enough_agents_agree_one_with_another_space_does_not_take_part(first, caplog):
    crowd, all_nodes, asked = grid(3, spaces={0: OTHER}), [1001, 1002, 1003], []
    push = crowd.push_messages
    crowd.push_messages = lambda messages: asked.append(1) or push(messages)
    crowd.get_node_ids = lambda: all_nodes[:2] if first and not asked else all_nodes
    registry = register(crowd, 2, wait=LIMIT)
    assert (registry.space, registry.nodes) == (SPACE, {"1": 1002, "2": 1003})
    assert "Node 1001 does not take part: space: expected digest" in caplog.text
    assert "at agent 0, which differs in x; give this agent the study's search space" in caplog.text


@pytest.mark.parametrize(
    ("others", "match"),
    [
        (lambda: grid(2, spaces={0: OTHER, 1: OTHER}), "the study began with another: use it again"),
        (
            lambda: grid(2, app=client_app(objective, SPACE, seed=1, minimize=True)),
            "expected value max, with which the study began, got value min at agents 0, 1; resume it",
        ),
    ],
    ids=["a space", "an objective"],
)
def test_a_study_that_is_resumed_with_something_else_says_what_to_do(others, match, tmp_path):
    journal = tmp_path / "study.db"
    RandomSearch(num_agents=2, seed=1).start(grid(2), num_rounds=2, journal=journal)
    strategy = RandomSearch(num_agents=2, seed=1, wait_seconds=0.2)
    with pytest.raises(ConfigError, match=match):
        strategy.start(others(), num_rounds=3, journal=journal, resume=True)


def test_space_that_is_insisted_on_decides():
    assert register(grid(2), 2, space=SPACE).space == SPACE
    with pytest.raises(ConfigError, match="agents 0, 1"):
        register(grid(2), 2, space=OTHER)


def test_second_claimant_of_an_id_is_refused():
    crowd = grid(3, node_configs={2: {"agent": "0"}})
    registry = register(crowd, 2)
    assert registry.nodes == {"0": 1001, "1": 1002}
    assert list(registry.refused) == [1003]
    with pytest.raises(
        ConfigError, match=r"expected 3, only 2 registered .*; 1 were refused.*'0', which node 1001 has"
    ):
        register(crowd, 3)


@pytest.mark.parametrize("same_memory", [True, False])
def test_id_can_be_taken_over_once_its_node_is_gone(same_memory, tmp_path):
    # node 2 claims agent 0's id, is refused, and is asked again after node 0 is gone
    claim = {2: {"agent": "0"}}
    if same_memory:
        claim = {0: {"journal": str(tmp_path / "a.db")}, 2: {"agent": "0", "journal": str(tmp_path / "a.db")}}
    crowd = grid(3, node_configs=claim, faults={0: Fault("down", rounds=range(3, 99))})
    registry = register(crowd, 2)
    for _ in range(2):
        register_late(registry, crowd)
        assert registry.nodes["0"] == 1001
    connected = [1002, 1003]
    for _ in range(6):
        register_late(registry, crowd, connected)
    name = "0" if same_memory else "0~2"  # an agent without the memory cannot go on where the first one was
    assert registry.nodes[name] == 1003
    assert 1003 not in registry.refused
    assert set(registry.present(connected)) == {name, "1"}


class Changed(ClientApp):
    """Counts registrations per node; `change` may raise, or change an answer or return another."""

    def __init__(self, change):
        super().__init__()
        self.calls = []
        inner = client_app(objective, SPACE)

        @self.query()
        def query(message: Message, context: Context) -> Message:
            self.calls.append(context.node_id)
            reply = inner(message, context)
            content = change(context.node_id, self.calls.count(context.node_id), reply.content)
            return Message(reply.content if content is None else content, reply_to=message)


def deaf(node, until):
    """Return an app in which a node fails at its first registrations."""

    def change(node_id, number, content):
        if node_id == node and number <= until:
            raise RuntimeError("not yet")

    return Changed(change)


def test_failing_node_is_asked_less_and_less_often_but_not_forgotten():
    app = deaf(1002, 10**6)
    crowd = grid(2, app=app)
    registry = register(crowd, 1)
    asked = []
    for number in range(1, 41):
        before = len(app.calls)
        register_late(registry, crowd)
        asked += [number] * (len(app.calls) - before)
    assert set(app.calls) == {1001, 1002}
    assert np.diff(asked).tolist() == [3, 5, 9, 9, 9]
    assert registry.nodes == {"0": 1001}


def test_node_that_recovers_is_admitted():
    app = deaf(1002, 2)
    crowd = grid(2, app=app)
    registry = register(crowd, 1)
    for _ in range(5):
        register_late(registry, crowd)
    assert registry.nodes == {"0": 1001, "1": 1002}
    assert app.calls.count(1001) == 1, "who is admitted is not asked again"


def test_silent_node_holds_up_one_late_call_only():
    crowd = grid(2, faults={1: Fault("silent")})
    registry = AgentRegistry(SPACE, agents={"0": Agent(Registration(agent="0"))}, nodes={"0": 1001})
    asked, push = [], crowd.push_messages

    def noting(messages):
        asked.extend(message.metadata.dst_node_id for message in messages)
        return push(messages)

    crowd.push_messages = noting
    for _ in range(2):
        register_late(registry, crowd, seconds=0.0)
        assert asked == [1002], "nobody is asked, and waited for, by the second call"


def test_first_call_asks_failing_nodes_again_until_there_are_enough():
    app = deaf(1002, 1)
    assert register(grid(2, app=app), 2, wait=LIMIT).nodes == {"0": 1001, "1": 1002}


def test_late_joiner_with_another_space_is_refused_and_the_run_goes_on():
    faults = {2: Fault("down", rounds=range(3))}
    strategy = RandomSearch(num_agents=2, seed=1)
    study = strategy.start(grid(3, spaces={2: OTHER}, faults=faults), num_rounds=6).study
    assert set(study.trials["agent"].tolist()) == {"0", "1"}
    assert "digest" in strategy._rounds.registry.refused[1003]


def config(**entries):
    return lambda content: content["config"].update(entries)


MALFORMED = [
    *(
        config(**{name: value})
        for name, value in [
            ("schema", 2), ("schema", "1"), ("agent", ""), ("agent", "x" * 101), ("agent", "a\nb"),
            ("agent", ["1"]), ("agent", b"1"), ("role", 1.0), ("digest", "0" * 64), ("space", "{"),
            ("space", "[" * 10**5), ("space", "x" * 2**21), ("space", OTHER.to_json()),
            ("space", SPACE.to_json().replace("1.0", "1e999")),
            ("aims", "{"), ("aims", "[" * 10**5), ("aims", b"{}"),
            ("aims", '{"objectives": {"": "up"}, "limits": {}}'),
            ("aims", '{"objectives": {"a": "max"}, "limits": {"a": ["<="]}}'),
            ("aims", '{"objectives": {"a": "max"}, "limits": {"b": [">=", 1e999]}}'),
            ("aims", '{"objectives": {"a": "max"}, "limits": {"b\\n": [">="]}}'),
            ("aims", '{"objectives": {"a": "max"}, "limits": [1, 2]}'),
        ]
    ),
    lambda content: content["config"].pop("space") and None,
    lambda content: content.pop("config") and None,
    lambda content: RecordDict(),
    lambda content: RecordDict({"config": MetricRecord({"schema": 1})}),
]  # fmt: skip


def test_malformed_answers_cost_their_node_only():
    count = len(MALFORMED)
    app = Changed(
        lambda node, number, content: None if node > 1000 + count else MALFORMED[node - 1001](content)
    )
    registry = register(grid(count + 2, app=app), 2)
    assert registry.nodes == {str(count): 1001 + count, str(count + 1): 1002 + count}
    assert list(registry.refused) == list(range(1001, 1001 + count))


def test_stop_is_heard_while_waiting_for_nodes():
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        drive(grid(1), AgentRegistry(None).wait_for_agents(grid(1), 3, 60.0, stop), stop)


# -- nobody takes part -------------------------------------------------------------------------


def refusing(*reasons):
    """Return an app whose nodes all fail, with the reasons in turn."""

    def change(node_id, number, content):
        raise RuntimeError(reasons[node_id % len(reasons)])

    return Changed(change)


@pytest.mark.parametrize(
    ("num_nodes", "num_agents", "who", "which"),
    [
        (1, None, "the only node refuses", "Node 1001 does not"),
        (4, 4, "all 4 nodes refuse", "Node 1001 and 3 more do not"),
    ],
)
def test_if_every_node_refuses_the_run_ends_at_once_with_the_reason(
    num_nodes, num_agents, who, which, caplog
):
    app = refusing("no disk\n  is left")
    started = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        register(grid(num_nodes, app=app), num_agents, wait=LIMIT)
    assert time.monotonic() - started < LIMIT / 4
    reason = "registration: expected an answer, got an error: RuntimeError: no disk is left"
    assert str(caught.value) == f"agents: expected nodes that take part, {who}: {reason}"
    assert len(app.calls) == num_nodes, "each node was asked once"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"{which} take part: {reason}"]


def test_several_reasons_are_logged_once_each_and_the_commonest_is_the_error(caplog):
    with pytest.raises(ConfigError, match=r"all 5 nodes refuse: .* two; 1 other reasons are in the log"):
        register(grid(5, app=refusing("one", "two")), 5, wait=LIMIT)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text[-3:] for text in warnings] == ["two", "one"]


class InMemoryGrid(InProcessGrid):
    """Named as the grid of Flower's simulation, which starts Ray at the first message."""

    def push_messages(self, messages):
        raise AssertionError("no message may be sent")


def test_a_simulation_with_too_few_nodes_ends_at_once_and_says_how_many_to_add(monkeypatch):
    monkeypatch.setattr("fbo_flower.strategies.registration._STEADY_SECONDS_SIMULATED", 0.1)
    started = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        register(InMemoryGrid(client_app(objective, SPACE), 2), 5, wait=LIMIT)
    assert time.monotonic() - started < LIMIT / 4
    assert str(caught.value) == (
        "agents: expected 5, the simulation has 2 nodes; add --federation-config num-supernodes=5"
    )


def test_agents_are_bound_to_their_nodes():
    registry = register(grid(3, node_configs={1: {"agent": "pump", "role": "lead"}}), 3)
    assert registry.nodes == {"0": 1001, "2": 1003, "pump": 1002}
    assert registry.roles() == {"pump": "lead"}
    assert registry.space == SPACE
    assert registry.present([1002, 1003]) == ["2", "pump"]
