"""The decoder under thousands of messages that nobody should send: a WireError, or something that fits."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
from amounts import examples
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hostile import JUNK, npy
from hypothesis import given, settings
from hypothesis import strategies as st

from fbo_flower import wire
from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.records import Outcome, Phase, Report, Task
from fbo_flower.errors import WireError
from fbo_flower.wire.flower_records import MAX_BYTES, count_bytes, from_records, to_records

NUM_CASES = examples(6_000, 2_400)
PREFIXES = 3  # messages made of one example
SCHEMA = Schema(
    {"weights": ArraySpec((4,), low=-100.0, high=100.0), "cells": ArraySpec((None,), "int64", 0, 99, 6)},
    {"done": bool, "level": int, "share": float},
)
ENVELOPE = wire.Envelope("0123456789abcdef", "hospital-3", "ab" * 32, "fts", '{"num_initial":3}')
ARRAYS = {"weights": np.array([0.1, -2.5, 0.0, 3.0]), "cells": np.array([1, 5])}
TASK = Task(Phase.TRAIN, 7, 9, 2, ARRAYS, {"done": True, "level": 3})
TRIALS = Outcome(np.full((2, 2), 0.5), np.array([np.nan, 0.75]), np.array([9, 10]), {9: "ValueError: no"})
SENT = {
    "task": to_records(wire.encode_task(TASK, ENVELOPE)),
    "report": to_records(
        wire.encode_report(
            Report(9, 2, 1, ARRAYS, {"share": 0.5}), TASK, ENVELOPE, wire.Disclosure(TRIALS, 0.75)
        )
    ),
}
KEYS = sorted({key for content in SENT.values() for key in content["config"]} | {"more", ""})
NAMES = ["weights", "cells", "disclosed.points", "disclosed.values", "disclosed.pulls", "", ",", "other"]

lengths = st.integers(-3, 7) | st.sampled_from([2**31, 2**40, 2**62, 10**30])
headers = st.builds(
    npy,
    st.lists(lengths, max_size=10).map(lambda shape: str(tuple(shape))) | st.text(max_size=20).map(repr),
    st.binary(max_size=64),
    st.sampled_from(
        ["'<f8'", "'>f8'", "'<i8'", "'<f2'", "'|b1'", "'|u1'", "'|O'", "'<U3'", "'V0'", "[('a','<f8')]"]
    ),
    st.sampled_from([False, True, "'x'"]),
    st.sampled_from([b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\xff\x00"]),
)  # fmt: skip
numbers = (
    st.lists(st.floats() | st.sampled_from([np.nan, np.inf, 1e308, -0.0, 5e-324]), max_size=8)
    | st.lists(st.sampled_from([0.0, 99.0, 101.0, -1e300]), min_size=4, max_size=4)
).map(lambda values: npy(f"({len(values)},)", np.array(values, dtype=np.float64).tobytes()))
scalars = (
    st.sampled_from([junk for junk in JUNK if junk is not None])
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=30)
)
leaves = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4)
keys = st.sampled_from(["done", "level", "9"])
nested = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=4
)
changes = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(KEYS), scalars),
    st.tuples(st.just("set"), st.sampled_from(KEYS), nested.map(lambda value: str(value).replace("'", '"'))),
    st.tuples(st.just("pop"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("array"), st.sampled_from(NAMES), headers | numbers | st.binary(max_size=80)),
    st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.just("cut"), st.sampled_from(NAMES), st.integers(0, 200)),
    st.tuples(st.just("record"), st.sampled_from(["arrays", "config", "more"]), st.integers(0, 3)),
)  # fmt: skip


def changed(content: RecordDict, change: tuple) -> None:
    kind, key, value = change
    arrays, config = content.get("arrays"), content.get("config")
    if kind == "record":
        kinds = [ArrayRecord(), ConfigRecord(), MetricRecord({"a": 1.0}), ConfigRecord({"schema": 1})]
        content[key] = kinds[value]
    if isinstance(config, ConfigRecord):
        if kind == "set":
            config[key] = value
        elif kind == "pop":
            config.pop(key, None)
    if isinstance(arrays, ArrayRecord):
        if kind == "array":
            arrays[key] = FlowerArray(dtype="float64", shape=(4,), stype="numpy.ndarray", data=value)
        elif kind == "cut" and key in arrays:
            old = arrays[key]
            arrays[key] = FlowerArray(old.dtype, old.shape, old.stype, old.data[:value])
        elif kind == "rename" and key in arrays and isinstance(config, ConfigRecord):
            arrays[value] = arrays.pop(key)
            config["names"] = ",".join(arrays)


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

    @settings(max_examples=NUM_CASES // (PREFIXES * len(SENT)))
    @given(st.lists(changes, min_size=PREFIXES, max_size=PREFIXES))
    def fuzzed(made: list[tuple]) -> None:
        for kind, sent in SENT.items():
            arrays, config = ArrayRecord(dict(sent["arrays"])), ConfigRecord(dict(sent["config"]))
            content = RecordDict({"arrays": arrays, "config": config})
            for change in made:  # after each of them it is another message
                changed(content, change)
                outcomes[decoded(kind, content)] += 1

    fuzzed()
    assert outcomes.total() >= 0.98 * NUM_CASES
    expected = ["schema", "names", "dtype", "shape", "size", "encoding", "content", "values", "bounds"]
    assert {*expected, "let through"} <= set(outcomes), outcomes
