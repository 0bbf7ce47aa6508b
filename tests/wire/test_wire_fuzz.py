"""The decoder under thousands of messages that nobody should send: a WireError, or something that fits."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
from amounts import examples
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from hostile import mutate, npy
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower import wire
from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.records import Outcome, Phase, Report, Task
from fbo_flower.errors import WireError
from fbo_flower.wire.flower_records import MAX_BYTES, count_bytes, from_records, to_records

SCHEMA = Schema(
    {"weights": ArraySpec((4,), low=-100.0, high=100.0), "cells": ArraySpec((None,), "int64", 0, 99, 6)},
    {"done": bool, "level": int, "share": float},
)
ENVELOPE = wire.Envelope("0123456789abcdef", "hospital-3", "ab" * 32, "fts", '{"num_initial":3}')
ARRAYS = {"weights": np.array([0.1, -2.5, 0.0, 3.0]), "cells": np.array([1, 5])}
TASK = Task(Phase.TRAIN, 7, 9, 2, ARRAYS, {"done": True, "level": 3})
TRIALS = Outcome(np.full((2, 2), 0.5), np.array([np.nan, 0.75]), np.array([9, 10]), {9: "ValueError: no"})
REPORT = Report(9, 2, 1, ARRAYS, {"share": 0.5})
SENT = {
    "task": to_records(wire.encode_task(TASK, ENVELOPE)),
    "report": to_records(wire.encode_report(REPORT, TASK, ENVELOPE, wire.Disclosure(TRIALS, 0.75))),
}


def read(kind: str, content: RecordDict) -> dict[str, np.ndarray]:
    """Decode; what comes back is checked for what the schema promises."""
    packed = from_records(content)
    if kind == "task":
        wire.decode_envelope(packed[1])
        task = wire.decode_task(packed, SCHEMA)
        assert min(task.round, task.trial, task.num_trials) >= 0
        return dict(task.arrays)
    report, disclosure = wire.decode_report(packed, TASK, ENVELOPE, SCHEMA, 2)
    assert (report.trial, report.num_trials) == (9, 2)
    assert 0 <= report.num_failed <= 2
    if disclosure.trials is not None:
        assert ((disclosure.trials.points >= 0) & (disclosure.trials.points <= 1)).all()
        assert not np.isinf(disclosure.trials.values).any()
    return dict(report.arrays)


def decoded(kind: str, content: RecordDict) -> str:
    """Decode one message and check what came of it; return that in a word."""
    num_bytes = count_bytes(content)
    tracemalloc.start()
    try:
        arrays, answer, text = read(kind, content), "let through", ""
    except WireError as error:
        arrays, answer, text = {}, error.reason, str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    for name, array in arrays.items():
        spec = SCHEMA.arrays[name]
        assert str(array.dtype) == spec.dtype
        assert array.size <= 6
        assert np.all((array >= spec.low) & (array <= spec.high))
    assert "\n" not in text
    assert len(text) < 1000
    assert peak < 2**20 + 8 * num_bytes < MAX_BYTES
    return answer


def test_any_message_fits_or_is_a_wire_error_and_allocates_little() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(examples(2000, 300)):
        rng = np.random.default_rng(seed)
        for kind, sent in SENT.items():
            arrays, config = ArrayRecord(dict(sent["arrays"])), ConfigRecord(dict(sent["config"]))
            content = RecordDict({"arrays": arrays, "config": config})
            for _ in range(3):  # after each change it is another message
                outcomes[decoded(kind, mutate(content, rng))] += 1
    expected = ["schema", "names", "dtype", "shape", "size", "encoding", "content", "values", "bounds"]
    assert {*expected, "let through"} <= set(outcomes), outcomes


@given(st.binary(max_size=200))
def test_no_bytes_give_anything_but_an_array_or_a_wire_error(data: bytes) -> None:
    for content in (data, npy("(4,)")[:10] + data, npy("(4,)") + data):
        array = FlowerArray(dtype="float64", shape=(4,), stype="numpy.ndarray", data=content)
        config = ConfigRecord({"names": "a"})
        try:
            (read_array,) = from_records(
                RecordDict({"arrays": ArrayRecord({"a": array}), "config": config})
            ).arrays.values()
        except WireError:
            continue
        assert read_array.dtype.kind in "fiub"
