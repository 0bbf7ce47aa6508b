"""A memory that stays in its process is kept as objects; everywhere else it has the same bytes as before."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms.records import AgentState, History
from fbo_flower.clients.agent_state_io import (
    LiveReport,
    LiveState,
    agent_state_from_bytes,
    agent_state_to_bytes,
    live_record,
    packed_to_bytes,
    read_record,
)
from fbo_flower.clients.memory import MAX_STATE_REPORT, STATE_KEY, StateMemory
from fbo_flower.errors import JournalError
from fbo_flower.wire.codec import Packed

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def a_state() -> AgentState:
    points = np.asfortranarray(np.random.default_rng(0).random((5, 2)))
    values = np.array([1.0, np.nan, 3.0, -0.0, 5.0])
    history = History(points, values, np.arange(5), {1: "planted"})
    return AgentState(SPACE, history, {"row": np.eye(3)[1], "number": np.array(2.0)}, passed=7)


def a_report(length: int = 3) -> Packed:
    return Packed({"weights": np.arange(float(length))}, {"round": 2, "values": "{}", "ok": True})


def test_a_live_state_is_the_state_that_bytes_give_back() -> None:
    live = agent_state_from_bytes(LiveState.of(a_state()), SPACE)
    stored = agent_state_from_bytes(agent_state_to_bytes(a_state()), SPACE)
    assert (live.passed, live.history.failures) == (stored.passed, stored.history.failures)
    assert agent_state_to_bytes(live) == agent_state_to_bytes(stored) == bytes(LiveState.of(a_state()))
    pairs = [(live.arrays[name], stored.arrays[name]) for name in ("row", "number")]
    for ours, theirs in [*pairs, (live.history.points, stored.history.points)]:
        np.testing.assert_array_equal(ours, theirs)
        assert (ours.shape, ours.dtype, ours.strides) == (theirs.shape, theirs.dtype, theirs.strides)
        assert not ours.flags.writeable


def test_a_live_state_keeps_no_array_of_others() -> None:
    state = a_state()
    live = LiveState.of(state).agent_state
    state.history.values[0] = 99.0  # the caller's own array, which it may still write
    assert live.history.values[0] == 1.0
    assert all(array.base is None for array in live.arrays.values())
    assert LiveState.of(live).agent_state.history.points is live.history.points  # not copied twice


def test_a_live_state_of_another_space_is_refused() -> None:
    with pytest.raises(JournalError, match="space: expected digest"):
        agent_state_from_bytes(LiveState.of(a_state()), SearchSpace({"x": Float(0.0, 2.0)}))


@pytest.mark.parametrize("way", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r)), lambda r: r.copy()])
def test_flower_pickle_and_copy_see_an_ordinary_record(way) -> None:
    record = live_record(LiveState.of(a_state()), {"study": "s"})
    plain = ConfigRecord({"data": agent_state_to_bytes(a_state()), "values": '{"study": "s"}'})
    for seen in (record, way(record)):
        assert seen == plain
        assert plain == seen
        assert dict(seen.items()) == dict(plain.items())
        assert list(seen) == list(plain)
        assert list(seen.values()) == list(plain.values())
        assert seen["data"] == plain["data"]
        assert seen.get("data") == plain["data"]
        assert repr(seen) == repr(plain)
        assert seen.count_bytes() == plain.count_bytes()
        assert read_record(seen)[1] == {"study": "s"}
    assert type(getattr(way(record).__dict__["_data"], "live", b"")) is bytes, "the objects stay here"


def test_a_live_memory_is_the_memory_that_travelled() -> None:
    state = RecordDict()
    memory = StateMemory(state)
    memory.begin("s", 3, agent_state_to_bytes(a_state()), "fts {}")
    memory.finish("s", "task", 1, LiveState.of(a_state()), LiveReport.of(a_report()), (), ("work", "key"))
    for kept in (state, pickle.loads(pickle.dumps(state))):
        found = StateMemory(kept)
        entropy, data = found.study("s") or (0, b"")
        assert (entropy, bytes(data)) == (3, agent_state_to_bytes(a_state()))
        assert bytes(found.report("s", "task") or b"") == packed_to_bytes(a_report())
        assert (found.answered("s", "work"), found.algorithm("s")) == ("key", "fts {}")


@pytest.mark.parametrize("length", [MAX_STATE_REPORT // 8 - 100, MAX_STATE_REPORT // 8 + 1])
def test_a_report_that_is_too_large_is_not_kept(length: int) -> None:
    state = RecordDict()
    StateMemory(state).finish("s", "task", 1, b"", LiveReport.of(a_report(length)))
    assert (f"{STATE_KEY}.report" in state) == (len(packed_to_bytes(a_report(length))) <= MAX_STATE_REPORT)
