import importlib
import threading

import pytest
from flwr.app import DEFAULT_TTL, ConfigRecord, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from waiting import LIMIT, Clock

from fbo_flower.strategies.exchange import Exchange, Stopped, UnderWay, send_and_receive


class FakeGrid:
    """Answers `replies[k]` at the k-th look: lists of positions, None for a reply to nobody."""

    def __init__(self, replies, ids=None):
        self.replies, self.ids, self.looks = list(replies), ids, []

    def push_messages(self, messages):
        self.sent = list(messages)
        for i, message in enumerate(self.sent):
            message.metadata.__dict__["_message_id"] = f"m{i}"
        return self.ids if self.ids is not None else [f"m{i}" for i in range(len(self.sent))]

    def pull_messages(self, message_ids):
        self.looks.append(list(message_ids))
        positions = self.replies.pop(0) if self.replies else []
        return [self.reply(p) for p in positions]

    def reply(self, position):
        message = Message(RecordDict(), reply_to=self.sent[position or 0])
        if position is None:
            message.metadata.__dict__["_reply_to_message_id"] = "unknown"
        return message


def messages(count):
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 0
    return [
        Message(RecordDict({"config": ConfigRecord({"i": i})}), 10 + i, MessageType.TRAIN)
        for i in range(count)
    ]


def run(grid, count=3, timeout=LIMIT, stop=None):
    return send_and_receive(grid, messages(count), timeout, stop or threading.Event())


@pytest.mark.parametrize(
    ("replies", "given", "expected", "looks"),
    [
        ([[2], [], [0, 1]], {}, [0, 1, 2], ["012", "01", "01"]),
        ([[None, 1], [1, None], [0], [2]], {}, [0, 1, 2], ["012", "02", "02", "2"]),
        ([[0, 2]], {"timeout": 0.0}, [0, 2], ["012"]),
        ([[2], [0]], {"ids": ["m0", "", "m2"]}, [0, 2], ["02", "0"]),
        ([], {"ids": ["", "", ""]}, [], []),
    ],
    ids=["in any order", "to nobody and twice", "no time is one look", "not sent", "none sent"],
)
def test_replies_are_known_by_the_position_of_their_message(replies, given, expected, looks):
    grid = FakeGrid(replies, given.pop("ids", None))
    assert sorted(run(grid, **given)) == expected
    assert ["".join(ids).replace("m", "") for ids in grid.looks] == looks


class Patient(threading.Event):
    """Waits on a clock of its own, which stands for the module's `time`."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.clock = Clock()
        monkeypatch.setattr(importlib.import_module(send_and_receive.__module__), "time", self.clock)

    def wait(self, timeout=None):
        self.clock.now += timeout
        return self.is_set()


def test_each_message_is_given_up_at_its_own_time(monkeypatch):
    stop, grid = Patient(monkeypatch), FakeGrid([])
    under_way = UnderWay(grid, stop)
    sent = zip("ab", messages(2), strict=True)
    assert under_way.send(Exchange(sent, 10.0, sent_before={"a": stop.clock.monotonic() - 4.0})) == []
    ends = [(under_way.receive(seconds), round(stop.clock.now, 6)) for seconds in (60.0, 1.0, 60.0, 60.0)]
    assert ends == [({"a": None}, 6.0), ({}, 7.0), ({"b": None}, 10.0), ({}, 10.0)]
    grid.replies = [[0]]
    assert under_way.receive(0.0) == {}, "a reply after that is not read"


def test_who_has_left_is_named(monkeypatch):
    under_way = UnderWay(FakeGrid([[2]], ids=["m0", "", "m2"]), Patient(monkeypatch))
    assert under_way.send(Exchange(zip("abc", messages(3), strict=True), 10.0)) == ["b"]
    assert (len(under_way), list(under_way.receive(60.0)), len(under_way)) == (2, ["c"], 1)


def test_stop_is_heard_while_waiting():
    class Pressed(threading.Event):
        def wait(self, timeout=None):
            self.set()  # while the exchange waits, and in no other way
            return True

    grid = FakeGrid([[1]])
    with pytest.raises(Stopped):
        run(grid, timeout=60, stop=Pressed())
    assert len(grid.looks) == 1


def test_a_message_lives_as_long_as_its_round_and_never_less_than_flower_says():
    for timeout, expected in ((10 * DEFAULT_TTL, 10 * DEFAULT_TTL), (LIMIT, DEFAULT_TTL)):
        grid = FakeGrid([[0]])
        run(grid, count=1, timeout=timeout)
        assert [message.metadata.ttl for message in grid.sent] == [expected]
