"""The grid in this process: its nodes, planted faults, and garbage that is collected rarely beside it."""

import contextlib
import gc

import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from waiting import LIMIT, Clock

from fbo_flower import Float, SearchSpace
from fbo_flower.simulation import grids
from fbo_flower.simulation.grids import Fault, InProcessGrid

SPACE = SearchSpace({"x": Float(0.0, 1.0)})


def echo():
    app = ClientApp()

    @app.train()
    def train(message, context):
        count = context.state.get("count", ConfigRecord({"n": 0}))["n"] + 1
        context.state["count"] = ConfigRecord({"n": count})
        answer = {"count": count}
        return Message(RecordDict({"c": ConfigRecord(answer)}), reply_to=message)

    return app


def grid(faults=None, num_nodes=3, **options):
    return InProcessGrid(echo(), num_nodes, faults=faults, **options)


def messages(grid, server_round=1):
    nodes = grid.get_node_ids() if server_round == 2 else grid.contexts
    return [grid.create_message(RecordDict(), MessageType.TRAIN, node, str(server_round)) for node in nodes]


def send(grid, server_round=1):
    return grid.push_messages(messages(grid, server_round))


def answers(grid, ids):
    return {r.metadata.reply_to_message_id: r for r in grid.pull_messages(ids)}


def test_node_that_is_down_is_not_connected_in_its_rounds():
    one, there = grid({1: Fault("down", rounds=[0, 2])}), []
    for server_round in (0, 1, 2, 0, 1):
        there.append(len(one.get_node_ids()))
        send(one, server_round)
    assert there == [2, 3, 2, 3, 3], "a late registration or message does not turn time back"


@pytest.mark.parametrize(
    ("fault", "code", "reason", "count"),
    [
        (Fault("down", rounds=[1]), 5, "planted fault", 0),
        (Fault("raising", rounds=[1]), 2, "RuntimeError: planted fault", 0),
        (Fault("silent", rounds=[1]), None, "", 0),
        (Fault("malformed", rounds=[1], change=lambda content: RecordDict()), None, "", 1),
    ],
)
def test_a_fault_strikes_its_node_in_its_rounds_and_no_other(fault, code, reason, count):
    one = grid({1: fault})
    assert len(answers(one, send(one, 0))) == 3
    replies = answers(one, ids := send(one, 1))
    assert [i in replies for i in ids] == [True, fault.kind != "silent", True]
    assert [n for i, n in zip(ids, one.contexts, strict=True) if i in replies and replies[i].has_error()] == (
        [1002] if code else []
    )
    if code:
        assert (replies[ids[1]].error.code, replies[ids[1]].error.reason) == (code, reason)
    elif fault.change:
        assert not replies[ids[1]].content, "changed after the work"
    assert [c.state["count"]["n"] for c in one.contexts.values()] == [2, 1 + count, 2]
    replies = answers(one, send(one, 2))
    assert [reply.has_error() for reply in replies.values()] == [False] * 3


def test_send_and_receive_waits_for_the_slow_but_not_for_the_silent(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(grids, "time", clock)
    one = grid({0: Fault("silent"), 1: Fault("slow", seconds=3.0)})
    assert len(one.send_and_receive(messages(one), timeout=LIMIT)) == 2
    assert clock.now == pytest.approx(3.0, abs=0.01), "until the slow one has answered, and no longer"


def test_the_collector_is_as_before_afterwards():
    before = gc.get_threshold(), gc.get_freeze_count()
    with contextlib.suppress(RuntimeError), grids.rare_collections():
        assert gc.get_threshold() == grids.THRESHOLDS
        assert gc.get_freeze_count() > 0
        raise RuntimeError("planted")
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
