"""Garbage is collected rarely during a simulation, and as before after it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import logging
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import LOGGER_NAME, ConsoleHandler
from waiting import LIMIT, Clock

from fbo_flower import Float, SearchSpace
from fbo_flower.simulation import grids, simulate
from fbo_flower.simulation import rare_collections as rare
from fbo_flower.simulation.engines import colour_terminals_only
from fbo_flower.simulation.grids import Fault, InProcessGrid, answer_all
from fbo_flower.strategies.exchange import ReplyProgress


def echo():
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        count = context.state.get("count", ConfigRecord({"n": 0}))["n"] + 1
        context.state["count"] = ConfigRecord({"n": count})
        answer = {
            "partition": context.node_config["partition-id"],
            "count": count,
            "of": message.content["c"]["i"],
        }
        return Message(RecordDict({"c": ConfigRecord(answer)}), reply_to=message)

    return app


def grid(faults=None, num_nodes=3, **options):
    return InProcessGrid(echo(), num_nodes, faults=faults, **options)


def send(grid, server_round=1, nodes=None):
    nodes = list(grid.contexts) if nodes is None else nodes
    messages = [
        grid.create_message(
            RecordDict({"c": ConfigRecord({"i": i})}), MessageType.TRAIN, node, str(server_round)
        )
        for i, node in enumerate(nodes)
    ]
    return grid.push_messages(messages)


def answers(grid, ids):
    return {r.metadata.reply_to_message_id: r for r in grid.pull_messages(ids)}


def test_a_long_round_says_how_many_agents_have_answered_while_others_still_evaluate(monkeypatch, caplog):
    monkeypatch.setattr(importlib.import_module(ReplyProgress.__module__), "REPORT_SECONDS", 0.0)
    said = []

    def objective(config, data):
        said.append([record.replies for record in caplog.records if hasattr(record, "replies")])
        return config["x"]

    with caplog.at_level(logging.INFO, "flwr"):
        simulate(
            objective,
            space=SearchSpace({"x": Float(0.0, 1.0)}),
            agents=3,
            algorithm="pf-pne",
            num_rounds=1,
            engine="inline",
        )
    registered = len(said[0])
    assert [lines[registered:] for lines in said] == [
        [],
        ["1 of 3 replies"],
        ["1 of 3 replies", "2 of 3 replies"],
    ]


def test_every_node_answers_its_own_message():
    one = grid()
    ids = send(one)
    replies = answers(one, ids)
    assert [replies[i].content["c"]["partition"] for i in ids] == [0, 1, 2]
    assert [replies[i].content["c"]["of"] for i in ids] == [0, 1, 2]
    assert [replies[i].metadata.src_node_id for i in ids] == list(one.contexts)
    assert not answers(one, ids), "each reply comes once"


def test_contexts_are_those_of_simulated_nodes_and_last():
    one = grid(num_nodes=2, node_configs={1: {"agent": "pump"}}, run_config={"a": 1})
    assert [c.node_config for c in one.contexts.values()] == [
        {"partition-id": 0, "num-partitions": 2},
        {"partition-id": 1, "num-partitions": 2, "agent": "pump"},
    ]
    assert all(c.run_config == {"a": 1} for c in one.contexts.values())
    for expected in (1, 2):
        ids = send(one)
        assert [answers(one, [i])[i].content["c"]["count"] for i in ids] == [expected] * 2
    assert set(one.contexts).isdisjoint({0, 1}), "node ids are no partition ids"


def test_node_that_is_down_is_not_connected_in_its_rounds():
    one = grid({1: Fault("down", rounds=[0, 2])})
    assert len(one.get_node_ids()) == 2  # before the registration
    send(one, 0)
    assert len(one.get_node_ids()) == 3  # before round 1
    send(one, 1)
    assert len(one.get_node_ids()) == 2  # before round 2
    send(one, 2, one.get_node_ids())
    assert len(one.get_node_ids()) == 3
    send(one, 0)  # a late registration does not turn time back
    assert len(one.get_node_ids()) == 3


def test_message_to_a_node_that_is_down_comes_back_as_an_error():
    one = grid({1: Fault("down", rounds=[1])})
    send(one, 0)
    ids = send(one, 1)
    replies = answers(one, ids)
    assert replies[ids[1]].error.code == 5
    assert not replies[ids[0]].has_error()
    assert "count" in one.contexts[1001].state
    assert one.contexts[1002].state["count"]["n"] == 1, "of round 0 alone"


def test_raising_node_answers_with_an_error_in_its_rounds_only():
    one = grid({1: Fault("raising", rounds=[2])})
    assert not any(r.has_error() for r in answers(one, send(one, 1)).values())
    ids = send(one, 2)
    replies = answers(one, ids)
    assert replies[ids[1]].error.code == 2
    assert "planted fault" in replies[ids[1]].error.reason
    assert [replies[i].has_error() for i in ids] == [False, True, False]


def test_client_app_that_raises_is_an_error_with_its_reason():
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise ValueError("no data")

    one = InProcessGrid(app, 1)
    (reply,) = answers(one, send(one)).values()
    assert (reply.error.code, reply.error.reason) == (2, "ValueError: no data")


def test_a_silent_node_does_nothing_and_a_malformed_reply_is_changed_after_the_work():
    one = grid({1: Fault("silent"), 2: Fault("malformed", change=lambda content: RecordDict())})
    ids = send(one)
    replies = answers(one, ids)
    assert set(replies) == {ids[0], ids[2]}
    assert "count" not in one.contexts[1002].state
    assert not replies[ids[2]].content
    assert one.contexts[1003].state["count"]["n"] == 1


def test_send_and_receive_waits_for_the_slow_but_not_for_the_silent(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(grids, "time", clock)
    one = grid({0: Fault("silent"), 1: Fault("slow", seconds=3.0)})
    messages = [
        one.create_message(RecordDict({"c": ConfigRecord({"i": i})}), MessageType.TRAIN, node, "1")
        for i, node in enumerate(one.contexts)
    ]
    replies = one.send_and_receive(messages, timeout=LIMIT)
    assert len(replies) == 2
    assert clock.now == pytest.approx(3.0, abs=0.01), "until the slow one has answered, and no longer"


@pytest.mark.parametrize("kind", ["down", "silent", "raising", "malformed", "slow"])
def test_a_fault_without_rounds_is_always_there(kind):
    fault = Fault(kind)
    assert all(fault.strikes(r) for r in range(5))
    assert [Fault(kind, rounds=[1, 3]).strikes(r) for r in range(5)] == [False, True, False, True, False]


def test_the_collector_is_as_before_afterwards() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with contextlib.suppress(RuntimeError), rare.rare_collections():
        assert gc.get_threshold() == rare.THRESHOLDS
        assert gc.get_freeze_count() > 0
        raise RuntimeError("planted")
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_a_collector_that_is_turned_off_is_left_alone() -> None:
    before = gc.get_threshold()
    gc.disable()
    try:
        with rare.rare_collections():
            assert gc.get_threshold() == before
            assert gc.get_freeze_count() == 0
    finally:
        gc.enable()


def test_cycles_of_a_long_batch_are_collected_after_it(monkeypatch) -> None:
    class Large:
        pass

    made: list[weakref.ref] = []
    app = ClientApp()

    @app.train()
    def train(message, context):
        large = Large()
        large.itself = large
        made.append(weakref.ref(large))
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(app, 1)
    (node,) = grid.get_node_ids()
    batch = [(grid.create_message(RecordDict(), "train", node, "1"), grid.contexts[node])]
    with rare.rare_collections():
        answer_all(app, batch)
        assert made[0]() is not None
        monkeypatch.setattr(rare, "LONG_SECONDS", -1.0)
        answer_all(app, batch)
        assert [reference() for reference in made] == [None, None]


SCRIPT = """
from fbo_flower import Float, SearchSpace
from fbo_flower.simulation import simulate

def f(config, data):
    return 1 / (config["x"] > 0.5)  # some evaluations fail: a warning with a traceback

simulate(f, SearchSpace({"x": Float(0, 1)}), agents=2, num_rounds=2, engine="inline")
"""


def test_a_redirected_log_has_no_colour_codes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "script.py"]
        subprocess.run(command, cwd=tmp_path, stdout=log, stderr=log, check=True, timeout=300)
    text = (tmp_path / "log").read_text()
    assert "WARNING :" in text
    assert "[round 2/2]" in text
    assert "\x1b" not in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "colours"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_terminal_keeps_its_colours(stream: io.StringIO, colours: bool) -> None:
    handler = ConsoleHandler(colored=True, stream=stream)
    logger = logging.getLogger(LOGGER_NAME)
    logger.addHandler(handler)
    try:
        colour_terminals_only()
        logger.warning("hello")
    finally:
        logger.removeHandler(handler)
    assert ("\x1b" in stream.getvalue()) == colours
