"""What no sender of this package writes is refused: records, scalars and arrays, at both ends."""

import logging

import numpy as np
import pytest
from flwr.app import Array, MessageType, MetricRecord

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS, RandomSearch

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
APP = client_app(lambda config, context: config["x"], SPACE, seed=0, disclose="trials")


def record(content):
    content["junk"] = MetricRecord({"loss": float("nan")})


def scalar(content):
    content["config"]["loss"] = float("nan")


def array(content):
    if "arrays" in content:
        content["arrays"]["junk"] = Array(np.array([np.nan]))
        content["config"]["names"] = ",".join(content["arrays"])


class Changed(InProcessGrid):
    """A grid that changes the replies of one node, or the messages to it."""

    def __init__(self, change, kinds, node=0, towards=False, app=APP, **options):
        super().__init__(app, 3, **options)
        self.change, self.kinds, self.towards = change, kinds, towards
        self.victim = list(self.get_node_ids())[node]

    def push_messages(self, messages):
        messages = list(messages)
        for message in messages if self.towards else ():
            if message.metadata.dst_node_id == self.victim and self.concerns(message):
                self.change(message.content)
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))
        for reply in () if self.towards else replies:
            if reply.metadata.src_node_id == self.victim and not reply.has_error() and self.concerns(reply):
                self.change(reply.content)
        return replies

    def concerns(self, message):
        return message.metadata.message_type.partition(".")[0] in self.kinds


@pytest.mark.parametrize("change", [record, scalar, array])
@pytest.mark.parametrize("towards", [True, False], ids=["a task", "a reply"])
def test_tasks_and_replies_with_something_else_are_refused_and_the_others_go_on(change, towards):
    kind = RandomSearch if towards else FTS
    grid = Changed(change, {MessageType.TRAIN}, towards=towards)
    study = kind(num_agents=3, seed=0).start(grid, num_rounds=3).study
    assert set(study.trials["agent"]) == {"1", "2"}
    reasons = {"error:1"} if towards else {"names:1", "content:1"}
    assert set(study.rounds["reasons"].tolist()) <= reasons


@pytest.mark.parametrize("change", [record, scalar])
def test_registrations_with_something_else_are_refused(change):
    strategy = RandomSearch(num_agents=3, seed=0, wait_seconds=0.5)
    with pytest.raises(ConfigError, match="expected only the entries that this version knows"):
        strategy.start(Changed(change, {MessageType.QUERY}), num_rounds=1)


def test_questions_with_something_else_are_refused():
    with pytest.raises(ConfigError, match=r"expected the entries key or end, got \['loss'\]"):
        RandomSearch(num_agents=3, seed=0, wait_seconds=0.5).start(
            Changed(scalar, {MessageType.QUERY}, towards=True), num_rounds=1
        )


@pytest.mark.parametrize("change", [record, scalar])
def test_only_the_expected_answer_confirms_the_end_of_a_study(change, caplog):
    logging.getLogger("flwr").propagate = True

    def at_the_end(content):
        if not content["config"]:
            change(content)

    app = client_app(lambda c, _: c["x"], SPACE, seed=0, on_finish=lambda answer, context: None)
    RandomSearch(num_agents=3, seed=0).start(Changed(at_the_end, {MessageType.QUERY}, app=app), num_rounds=1)
    assert "1 of 3 agents did not confirm the end of the study" in caplog.text


@pytest.mark.parametrize(("changes", "text"), [
    ({"version": "9.9.9"}, "fbo-flower 9.9.9, the server has"),
    ({"version": "9\x1b[31m"}, "fbo-flower 9"),
    ({"flwr": "0.1"}, "flwr 0.1, the server has"),
    ({"time": 600.0}, "its clock is"),
])  # fmt: skip
def test_another_version_or_clock_is_told_once(changes, text, caplog):
    logging.getLogger("flwr").propagate = True

    def change(content):
        content["config"].update(changes)

    grid = Changed(change, {MessageType.QUERY})
    strategy = RandomSearch(num_agents=3, seed=0)
    study = strategy.start(grid, num_rounds=4).study
    warned = [r.getMessage() for r in caplog.records if "Agent 0, node" in r.getMessage()]
    assert len(warned) == 1
    assert text in warned[0]
    assert "\x1b" not in warned[0]
    assert set(study.trials["agent"]) == {"0", "1", "2"}
    assert not [r for r in caplog.records if "Agent 1, node" in r.getMessage()]


@pytest.mark.parametrize("time", [float("nan"), float("inf"), "now", True])
def test_what_is_no_time_does_no_harm(time):
    grid = Changed(lambda content: content["config"].update(time=time), {MessageType.QUERY})
    assert len(RandomSearch(num_agents=3, seed=0).start(grid, num_rounds=1).study.rounds) == 1


def test_the_last_answer_of_a_lockbox_is_no_exception(monkeypatch):
    from fbo_flower.strategies import replies

    original, changed = replies.from_records, []

    def spoilt(content, *others):
        if content["config"].get("phase") == "finish":
            changed.append(content["config"]["agent"])
            record(content)
        return original(content, *others)

    monkeypatch.setattr(replies, "from_records", spoilt)
    study = simulate("breast-cancer-5sites", agents=5, algorithm="rfms", num_rounds=2, engine="inline")
    assert changed
    assert study.rounds["refused"].sum() == len(changed)
