import threading

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from waiting import LIMIT

from fbo_flower.clients import TuningAgent, client_app
from fbo_flower.clients.app import agent_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, Int, SearchSpace
from fbo_flower.strategies import RandomSearch
from fbo_flower.strategies.exchange import Stopped, drive
from fbo_flower.strategies.registration import AgentRegistry

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
OTHER = SearchSpace({"x": Float(0.0, 2.0)})
THIRD = SearchSpace({"x": Float(0.0, 1.0), "y": Int(1, 9)})


def objective(config, context):
    return float(config["x"])


def grid(num_nodes=4, spaces=None, app=None, **options):
    def agent(context):
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


def test_too_few_agents_is_one_line_with_the_numbers():
    with pytest.raises(ConfigError) as caught:
        register(grid(3), 5)
    said = "agents: expected 5, only 3 registered after 0.2 s; start more SuperNodes or set num-supernodes=5"
    assert str(caught.value).startswith(said)


def test_differing_search_spaces_name_agents_and_parameters():
    spaces = {0: SPACE, 1: OTHER, 2: THIRD}
    with pytest.raises(ConfigError, match="they differ in x, y") as caught:
        register(grid(3, spaces=spaces), 3)
    assert all(f"{s.digest[:12]} at agent {agent}" in str(caught.value) for agent, s in spaces.items())
    with pytest.raises(ConfigError, match=r"agents 0, 1, 2, 3, 4, \.\.\."):
        register(grid(20, spaces=dict.fromkeys(range(9), OTHER)), 20)


def test_once_enough_agents_agree_one_with_another_space_does_not_take_part(caplog):
    crowd, all_nodes, asked = grid(3, spaces={0: OTHER}), [1001, 1002, 1003], []
    push = crowd.push_messages
    crowd.push_messages = lambda messages: asked.append(1) or push(messages)
    crowd.get_node_ids = lambda: all_nodes if asked else all_nodes[:2]
    registry = register(crowd, 2, wait=LIMIT)
    assert (registry.space, registry.nodes) == (SPACE, {"1": 1002, "2": 1003})
    assert "Node 1001 does not take part: space: expected digest" in caplog.text
    assert "at agent 0, which differs in x; give this agent the study's search space" in caplog.text


def test_a_study_that_is_resumed_with_something_else_says_what_to_do(tmp_path):
    strategy, journal = RandomSearch(num_agents=2, seed=1, wait_seconds=0.2), tmp_path / "study.db"
    strategy.start(grid(2), num_rounds=2, journal=journal)
    minimizing = client_app(objective, SPACE, seed=1, minimize=True)
    for others, match in (
        (grid(2, spaces={0: OTHER, 1: OTHER}), "the study began with another: use it again"),
        (grid(2, app=minimizing), "expected value max, with which the study began, got value min at agents"),
    ):
        with pytest.raises(ConfigError, match=match):
            strategy.start(others, num_rounds=3, journal=journal, resume=True)


def test_second_claimant_of_an_id_is_refused():
    crowd = grid(3, node_configs={2: {"agent": "0"}})
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
        def query(message, context):
            self.calls.append(context.node_id)
            reply = inner(message, context)
            content = change(context.node_id, self.calls.count(context.node_id), reply.content)
            return Message(reply.content if content is None else content, reply_to=message)


def refusing(reason, until=10**6):
    """Return an app whose nodes fail at their first registrations, for the `reason` of their id."""

    def change(node_id, number, content):
        if reason(node_id) and number <= until:
            raise RuntimeError(reason(node_id))

    return Changed(change)


def test_failing_node_is_asked_less_and_less_often_but_not_forgotten():
    app = refusing(lambda node: node == 1002)
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


def test_first_call_asks_failing_nodes_again_until_there_are_enough():
    app = refusing(lambda node: node == 1002, until=1)
    assert register(grid(2, app=app), 2, wait=LIMIT).nodes == {"0": 1001, "1": 1002}


def config(**entries):
    return lambda content: content["config"].update(entries)


MALFORMED = [
    *(
        config(**{name: value})
        for name, value in [
            ("schema", 2), ("agent", ""), ("agent", "x" * 101), ("agent", "a\nb"), ("agent", ["1"]),
            ("role", 1.0), ("digest", "0" * 64), ("space", "{"), ("space", "[" * 10**5),
            ("space", "x" * 2**21), ("space", OTHER.to_json()), ("aims", "[" * 10**5), ("aims", b"{}"),
            ("space", SPACE.to_json().replace("1.0", "1e999")),
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


def test_if_every_node_refuses_the_run_ends_at_once_with_the_reasons(caplog):
    app = refusing(lambda node: ["one", "two\n more"][node % 2])
    with pytest.raises(ConfigError, match=r"all 5 nodes refuse: .* two more; 1 other reasons are in the log"):
        register(grid(5, app=app), 5, wait=LIMIT)
    assert len(app.calls) == 5, "each node was asked once"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    named = [text.partition(" take part: ")[0] for text in warnings]
    assert named == ["Node 1001 and 2 more do not", "Node 1002 and 1 more do not"]


class InMemoryGrid(InProcessGrid):
    """Named as the grid of Flower's simulation, which starts Ray at the first message."""

    def push_messages(self, messages):
        raise AssertionError("no message may be sent")


def test_a_simulation_with_too_few_nodes_ends_at_once_and_says_how_many_to_add(monkeypatch):
    monkeypatch.setattr("fbo_flower.strategies.registration._STEADY_SECONDS_SIMULATED", 0.1)
    with pytest.raises(ConfigError, match=r"the simulation has 2 nodes; add .* num-supernodes=5$"):
        register(InMemoryGrid(client_app(objective, SPACE), 2), 5, wait=LIMIT)
