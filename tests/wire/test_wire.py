"""Messages come back as they were sent, golden ones stay readable, and malformed ones are a WireError."""

import json
import pickle
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amounts import examples
from contract import same
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hostile import mutate, npy

from fbo_flower import wire
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.records import Phase, Report, Task, Trials
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.strategies.node_report import read_registration
from fbo_flower.wire import flower_records
from fbo_flower.wire.codec import MAX_STEPS, checked_summary
from fbo_flower.wire.flower_records import (
    MAX_BYTES,
    count_bytes,
    from_lists,
    from_records,
    record_of,
    to_lists,
    to_records,
)

GOLDEN = Path(__file__).parents[1] / "golden"
ENVELOPE = wire.Envelope("0123456789abcdef", "hospital-3", "ab" * 32, "fts", '{"num_initial":3}')
SCHEMA = Schema(
    {"weights": ArraySpec((4,), low=-100.0, high=100.0), "cells": ArraySpec((None,), "int64", 0, 99, 6)},
    {"done": bool, "level": int, "share": float},
)
WEIGHTS = {"weights": np.array([0.1, -2.5, 1e-300, 3.0])}
TASK = Task(Phase.TRAIN, 7, 9, 2, WEIGHTS, {"done": True, "level": 3})
REPORT = Report(9, 2, 1, {"weights": np.array([1.0, 2.0, -0.0, 0.3])}, {"done": False})
POINTS = np.array([[0.25, 1.0], [0.0, 0.125]])
FAILURES = np.array(["ValueError: no", ""], dtype=object)
TRIALS = Trials(POINTS, np.array([np.nan, 0.75]), np.array([9, 10]), FAILURES)
DISCLOSURE = wire.Disclosure(TRIALS, 0.75)
TIMES = np.array([[1.75e9, 1.75e9 + 2.5], [1.75e9 + 3, 1.75e9 + 3.25]])
AIMS = Aims.of(False, {"accuracy": "max"}, {"latency_ms": 20.0})
OUTPUTS = np.array([[np.nan, np.nan], [0.75, -12.5]])
WITH_OUTPUTS = wire.Disclosure(replace(TRIALS, outputs=OUTPUTS, feasible=np.array([False, True])), 0.75)


def reply(disclosure=DISCLOSURE):
    return to_records(wire.encode_report(REPORT, TASK, ENVELOPE, disclosure))


def read(content, *aims):
    return wire.decode_report(from_records(content), TASK, ENVELOPE, SCHEMA, 2, *aims)


def sent(task=TASK):
    return wire.encode_task(task, ENVELOPE)


# -- round trips and golden messages of schema version 1 -------------------------------------------------


def as_json(content):
    arrays = {
        name: {"dtype": a.dtype, "shape": list(a.shape), "stype": a.stype, "hex": a.data.hex()}
        for name, a in content["arrays"].items()
    }
    return {"arrays": arrays, "config": dict(content["config"])}


def golden(name):
    """Return a kept message as JSON and as the content of a message."""
    kept = json.loads((GOLDEN / f"{name}_v1.json").read_text())
    arrays = {
        name: FlowerArray(a["dtype"], tuple(a["shape"]), a["stype"], bytes.fromhex(a["hex"]))
        for name, a in kept["arrays"].items()
    }
    return kept, RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord(kept["config"])})


def test_golden_task_is_still_written_and_read():
    assert wire.SCHEMA_VERSION == 1, "a new version needs new golden messages, and the old ones refused"
    kept, content = golden("task")
    assert as_json(to_records(sent())) == kept
    packed = from_records(content)
    assert same(wire.decode_task(packed, SCHEMA), TASK)
    assert wire.decode_envelope(packed.config) == ENVELOPE


@pytest.mark.parametrize(
    ("name", "disclosure"),
    [
        ("report", DISCLOSURE),
        ("report_times", wire.Disclosure(replace(TRIALS, times=TIMES), 0.75)),
        ("report_expected", wire.Disclosure(TRIALS, 0.75, POINTS[0], 0.625)),
    ],
)
def test_golden_reports_are_still_written_and_read(name, disclosure):
    kept, content = golden(name)
    assert as_json(reply(disclosure)) == kept
    assert same(read(content), (REPORT, disclosure))


def test_outputs_and_flags_come_back_and_the_bound_is_not_sent():
    assert same(read(reply(WITH_OUTPUTS), Aims.from_json(AIMS.to_json()))[1], WITH_OUTPUTS)
    with pytest.raises(WireError, match="disclosed"):  # a server that expects one number
        read(reply(WITH_OUTPUTS))


# -- hostile messages ----------------------------------------------------------------------------------


def raw(*header, dtype="float64", stype="numpy.ndarray", **rest):
    """Return an array of Flower's whose bytes are these, or an npy file with this header."""
    data = header[0] if isinstance(header[0], bytes) else npy(*header, **rest)
    return FlowerArray(dtype=dtype, shape=(4,), stype=stype, data=data)


NAN, INF, DEEP = np.nan, np.inf, '{"a":' * 50_000
GOOD = np.array([1.0, 2.0, 3.0, 4.0])
PICKLE, FOUR = b"cos\nsystem\n(S'exit 1'\ntR.", bytes(32)
# wrong arrays, and wrong entries; None: it is missing
ARRAYS = {
    "weights": [
        np.array([1.0, NAN, 0.0, 0.0]), np.array([1.0, INF, 0.0, 0.0]), np.array([1.0, 100.1, 0.0, 0.0]),
        np.ones(5), np.ones(0), np.ones((4, 1)), np.ones(4, np.float32), np.ones(4, np.bool_),
        GOOD.astype(">f8"), np.array(["a", "b", "c", "d"]), raw("(4,)", FOUR, "[('x', '<f8')]"),
        raw("(1,)", FOUR, "('<f8', (4,))"), raw(PICKLE), raw("(4,)", PICKLE, "'|O'"),
        raw("(1000000000000,)", FOUR), raw(f"({10**30}, 0)"), raw("(-2, -2)", FOUR),
        raw(str((1,) * 100), bytes(8)), raw("(True,)", bytes(8)), raw("[4]", FOUR),
        raw("(" * 3000 + ")" * 3000, FOUR), raw("__import__('os').system('exit 1')", FOUR),
        raw("(4,)", b"", "'V0'"), raw("(4,)", FOUR, fortran="'no'"), raw("(4,)", FOUR, version=b"\x09\x00"),
        raw("(4,)", bytes(31)), raw("(4,)", bytes(33)), raw(b""), raw(npy("(4,)", FOUR)[:20]),
        raw("(4,)", FOUR, stype="pickle"),
    ],
    "secret": [GOOD],
    "disclosed.points": [
        None, np.array([[0.0, 1.1], [0.0, 0.0]]), np.full((2, 2), NAN), np.zeros((2, 3)), np.zeros((3, 2)),
    ],
    "disclosed.values": [None, np.array([NAN, INF]), np.array([NAN, NAN]), np.array([1.0, 1.0])],
    "disclosed.times": [
        TIMES[:1], TIMES[:, ::-1], np.array([[1.0, 2.0], [3.0, NAN]]), np.array([[1.0, 2.0], [3.0, 1e300]]),
        np.array([[-1.0, 2.0], [3.0, 4.0]]), TIMES[0], np.array([[1, 2], [3, 4]]),
    ],
    "disclosed.stopped": [np.array([1, 1]), np.array([-1]), np.array([-1, -2]), np.array([-1.0, 1.0])],
}  # fmt: skip
ENTRIES = {
    "names": [None, "", "weights,weights,disclosed.points,disclosed.values",
              "disclosed.points,weights,disclosed.values", 3],
    "disclosed.failures": [
        None, '{"99":"no"}', '{"9":1}', json.dumps({"9": "x" * 1001}), "[]", DEEP
    ],
    "disclosed.incumbent": [INF, "1", 1, True, [1.0]],
    "disclosed.expected": [0.5],  # without a recommendation
    "schema": [None, 2, True, 1.0, "1"],
    "study": [None, "another", 1], "agent": ["hospital-4", "x" * 2**21, "\udcff"], "space": ["cd" * 32],
    "phase": ["evaluate", "\x00"], "round": [8, True, 7.0], "trial": [8, -1, 2**62], "num-trials": [3],
    "num-failed": [None, -1, 2, 3, True, 1.0, NAN, "1"],
    "values": [
        None, '{"secret":1}', '{"done":1}', '{"level":true}', '{"level":1.0}', '{"done":null}',
        '{"done":{"done":true}}', DEEP, "[" * 100_000, '{"level":' + "9" * 5000 + "}", '{"level":NaN}', "{",
        "[]", "", " " * 2**21, b"{}",
    ],
    "more": [[1, 2], [], b"x"],
}  # fmt: skip
TOGETHER = {
    **{f"the name {n!r}": {"weights": None, n: GOOD} for n in ("points", "", "a,b", "\ud800")},
    "the name of nothing disclosed": {"weights": None, "disclosed.secret": GOOD},
    "many arrays": {f"a{i}": GOOD for i in range(40)},
    "less than named": {"weights": None, "names": "weights,disclosed.points,disclosed.values"},
    "times of nothing": {
        "disclosed.points": None, "disclosed.values": None, "disclosed.failures": None,
        "disclosed.times": TIMES, "num-failed": 1,
    },
    "expected nan": {"disclosed.recommendation": POINTS[0], "disclosed.expected": NAN},
    "expected inf": {"disclosed.recommendation": POINTS[0], "disclosed.expected": INF},
}  # fmt: skip
CHANGES = TOGETHER | {
    f"{name} {i}": {name: wrong}
    for name, every in (ARRAYS | ENTRIES).items()
    for i, wrong in enumerate(every)
}
RECORDS = {
    "nothing": {"arrays": None, "config": None}, "a third record": {"junk": MetricRecord({"loss": NAN})},
    "arrays are empty": {"arrays": ArrayRecord()}, "arrays are metrics": {"arrays": MetricRecord({"a": 1.0})},
    "config is empty": {"config": ConfigRecord()},
    "config is arrays": {"config": ArrayRecord({"a": FlowerArray(GOOD)})},
}  # fmt: skip


def put(record, changes):
    """Set the entries of a record; None takes one away."""
    for key, value in changes.items():
        if value is None:
            record.pop(key, None)
        else:
            record[key] = value


def change(content, changes):
    """Change arrays and scalars; the list of names follows unless it is changed itself."""
    record = content["arrays"]
    arrays = {k for k, v in changes.items() if k in record or isinstance(v, np.ndarray | FlowerArray)}
    made = {k: FlowerArray(v) if isinstance(v, np.ndarray) else v for k, v in changes.items() if k in arrays}
    put(record, made)
    content["config"]["names"] = ",".join(record)
    put(content["config"], {k: v for k, v in changes.items() if k not in arrays})
    return content


def decoded(kind, content, room=2**20):
    """Decode a message in little more memory than `room`, and check it; return what came of it in a word."""
    num_bytes = count_bytes(content)
    tracemalloc.start()
    try:
        arrays, answer, text = fitting(kind, content), "let through", ""
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
    assert len(text) < 500
    assert peak < room + 8 * num_bytes < MAX_BYTES
    return answer


def fitting(kind, content):
    """Decode; what comes back is checked for what the schema promises."""
    if kind == "task":
        packed = from_records(content)
        wire.decode_envelope(packed.config)
        task = wire.decode_task(packed, SCHEMA)
        assert all(0 <= n <= wire.MAX_TRIALS for n in (task.round, task.trial, task.num_trials))
        return task.arrays
    report, disclosure = read(content)
    assert (report.trial, report.num_trials) == (9, 2)
    assert 0 <= report.num_failed <= 2
    if disclosure.trials is not None:
        assert ((disclosure.trials.points >= 0) & (disclosure.trials.points <= 1)).all()
        assert not np.isinf(disclosure.trials.values).any()
    return report.arrays


@pytest.mark.parametrize("kind", [*CHANGES, *RECORDS])
def test_a_hostile_message_is_refused_in_one_line_and_costs_little(kind):
    report, task = reply(), to_records(sent())
    for content in (report, task):
        if kind in RECORDS:
            put(content, RECORDS[kind])
        else:
            change(content, CHANGES[kind])
    assert decoded("report", report, 2**22) != "let through"
    decoded("task", task, 2**22)  # as a task it may be harmless


def test_untouched_messages_are_let_through_and_changes_are_what_they_say():
    """Else the test above would prove nothing."""
    content = change(reply(), {"weights": GOOD, "round": 7, "disclosed.stopped": np.array([-1, 0])})
    report, disclosure = read(change(content, {"disclosed.times": TIMES}))
    np.testing.assert_array_equal(report.arrays["weights"], GOOD)
    assert disclosure.trials.stopped.tolist() == [-1, 0]


WRONG_OUTPUTS = {
    "disclosed.outputs": [
        None, OUTPUTS[1:], OUTPUTS[:, :1], np.array([[0.1, 0.2], [0.75, -12.5]]),
        np.array([[NAN, 1.0], [0.75, -12.5]]), np.array([[NAN, NAN], [0.75, NAN]]),
        np.array([[NAN, NAN], [0.75, INF]]), np.array([[NAN, NAN], [0.76, -12.5]]),
    ],
    "disclosed.points": [None],
    "disclosed.feasible": [None, np.array([True] * 2), np.array([True]), np.array([0, 1])],
}  # fmt: skip


@pytest.mark.parametrize(("name", "wrong"), [(n, w) for n, every in WRONG_OUTPUTS.items() for w in every])
def test_outputs_that_do_not_fit_their_trials_are_refused(name, wrong):
    with pytest.raises(WireError):
        read(change(reply(WITH_OUTPUTS), {name: wrong}), AIMS)


def test_more_bytes_than_a_message_may_have_are_refused_before_they_are_read():
    with pytest.raises(WireError, match="bytes together"):
        read(change(reply(), {"weights": raw(bytes(flower_records.MAX_BYTES + 1))}))


def test_bytes_are_counted_with_names_and_texts():
    config = ConfigRecord({"t": "é", "n": 1, "b": True, "l": [1.0, 2.0], "e": "", "x": b"123"})
    content = RecordDict({"arrays": ArrayRecord({"ab": FlowerArray(np.zeros(3))}), "config": config})
    assert count_bytes(content) == (2 + 128 + 24) + (1 + 2) + (1 + 8) + (1 + 1) + (1 + 16) + 1 + (1 + 3)


# -- summaries of learning curves ------------------------------------------------------------------------

SUMMARY = np.array([[0.0, 3.0, 0.5], [4.0, 5.0, -0.25]])
WRONG_SUMMARIES = {
    "integers": SUMMARY.astype(np.int64), "two columns": SUMMARY[:, :2],
    "too many rows": np.tile(SUMMARY[:1], (MAX_STEPS + 1, 1)),
    **{str(wrong): np.where(SUMMARY == 0.5, wrong, SUMMARY) for wrong in (NAN, 1e305)},
    "half a step": SUMMARY + np.array((0.5, 0.0, 0.0)), "a negative step": SUMMARY - [1.0, 0.0, 0.0],
    "descending steps": SUMMARY[::-1].copy(), "a step twice": SUMMARY[[0, 0]],
    "two curves": SUMMARY - [0.0, 1.0, 0.0], "half a curve": SUMMARY + np.array((0.0, 0.5, 0.0)),
    "more curves than trials": SUMMARY + np.array((0.0, 90.0, 0.0)),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_SUMMARIES)
def test_a_malformed_summary_is_refused(case):
    with pytest.raises(WireError):
        checked_summary("disclosed.curves", WRONG_SUMMARIES[case], 9.0)
    np.testing.assert_array_equal(checked_summary("disclosed.curves", SUMMARY, 9.0), SUMMARY)


# -- thousands of messages that nobody should send ------------------------------------------------------

MORE = {**WEIGHTS, "cells": np.array([1, 5])}
SENT = {
    "task": to_records(sent(replace(TASK, arrays=MORE))),
    "report": to_records(
        wire.encode_report(Report(9, 2, 1, MORE, {"share": 0.5}), TASK, ENVELOPE, DISCLOSURE)
    ),
}


def test_any_message_fits_or_is_a_wire_error_and_allocates_little():
    outcomes = Counter()
    for seed in range(examples(2000, 300)):
        rng = np.random.default_rng(seed)
        for kind, sent_one in SENT.items():
            arrays, config = ArrayRecord(dict(sent_one["arrays"])), ConfigRecord(dict(sent_one["config"]))
            content = RecordDict({"arrays": arrays, "config": config})
            for _ in range(3):  # after each change it is another message
                outcomes[decoded(kind, mutate(content, rng))] += 1
    expected = ["schema", "names", "dtype", "shape", "size", "encoding", "content", "values", "bounds"]
    assert {*expected, "let through"} <= set(outcomes), outcomes


class Unread(dict):
    """A mapping of a million entries that says how many it has, and must not be read one by one."""

    def __len__(self):
        return 10**6

    def __iter__(self):
        raise AssertionError("the entries were read before they were counted")

    keys = values = items = __iter__


def test_what_only_a_task_can_say_wrongly_is_refused():
    packed = sent(Task(Phase.TRAIN, 1, 0, 1))
    long, objects = np.zeros((4, 2)), GOOD.astype(object)  # `fit` has no dtypes
    for array, spec in ((long, ArraySpec((None, 2), max_length=3)), (objects, ArraySpec((4,)))):
        with pytest.raises(WireError, match="m: expected"):
            wire.decode_task(packed._replace(arrays={"m": array}), Schema({"m": spec}))
    overflow = packed.config | {"values": '{"share":1e999}'}
    with pytest.raises(WireError, match="finite"):
        wire.decode_task(packed._replace(config=overflow), Schema({}, {"share": float}))
    arrays, config = to_lists(sent())
    for several, names in ((arrays, ""), ([*arrays, *arrays], "weights,weights"), (arrays, None)):
        with pytest.raises(WireError, match="names"):
            from_lists(several, config | {"names": names})


def test_too_many_entries_are_counted_and_not_read():
    texts = dict.fromkeys(("study", "agent", "space", "algorithm"), "x")
    many = Unread(schema=1, options="{}", **texts)
    config, arrays = record_of(ConfigRecord, many), record_of(ArrayRecord, many)
    none = ArrayRecord(), ConfigRecord()
    for refused in (
        lambda: from_lists([], many),
        lambda: wire.decode_task(wire.Packed({}, many), Schema({}, {})),
        lambda: from_records(record_of(RecordDict, many)),
        lambda: from_records(record_of(RecordDict, {"arrays": none[0], "config": config})),
        lambda: from_records(record_of(RecordDict, {"arrays": arrays, "config": none[1]})),
    ):
        with pytest.raises(WireError, match=r"expected .* got 1000000"):
            refused()
    for content in (record_of(RecordDict, Unread(config=none[1])), {"config": many}):
        with pytest.raises(ConfigError, match=r"expected (only|version)"):
            read_registration(1, content)


def test_a_list_of_empty_texts_that_is_too_long_is_not_taken_apart():
    config = {"empty": ",".join(map(str, range(100_000)))}
    content = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord(config)})
    for packed in (from_lists([], config), from_records(content)):
        assert len(packed.config) <= flower_records.MAX_ENTRIES + 1


# -- records that are filled directly, and arrays that messages share -----------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["this Flower", "one that keeps its entries elsewhere"])
def test_a_content_is_the_one_that_flower_makes(known, monkeypatch):
    named = {
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)), "empty": np.empty((0, 3)),
        "strided": np.arange(24.0).reshape(4, 6)[::2, ::3], "scalar": np.array(3, dtype=np.int64),
        "bytes": np.arange(7, dtype=np.uint8), "flags": np.array([True, False]),
    }  # fmt: skip
    scalars = {"a": 1, "b": True, "c": 2.5, "d": "text", "names": ",".join(named)}
    records = ArrayRecord({n: FlowerArray(a) for n, a in named.items()}), ConfigRecord(dict(scalars))
    expected = RecordDict(dict(zip(("arrays", "config"), records, strict=True)))
    assert all(map(flower_records.can_be_filled, (RecordDict, ArrayRecord, ConfigRecord)))
    if not known:
        monkeypatch.setattr(flower_records, "can_be_filled", lambda kind: False)
    filled = record_of(ArrayRecord, {n: flower_records.flower_array(a) for n, a in named.items()})
    content = record_of(RecordDict, {"arrays": filled, "config": record_of(ConfigRecord, dict(scalars))})
    assert content == expected == pickle.loads(pickle.dumps(content))
    assert content.object_id == expected.object_id
    assert same(dict(from_records(content).arrays), named)
    with pytest.raises(TypeError):  # what is added is still checked
        content.config_records["config"]["a"] = object()


def contents(*arrays):
    shared = {}
    tasks = [Task(Phase.TRAIN, 1, 0, 1, {"points": array}) for array in arrays]
    return [to_records(wire.encode_task(task, ENVELOPE), shared) for task in tasks]


def within(high, shape=(2,), dtype="float64"):
    return Schema({"points": ArraySpec(shape, dtype, low=0.0, high=high)})


def test_a_shared_array_is_one_that_nobody_can_write_and_is_checked_against_every_schema_in_any_order():
    array, seen = np.array([0.0, 3.0]), {}
    first, second, other = (from_records(content, seen) for content in contents(array, array, array.copy()))
    assert first.arrays["points"] is second.arrays["points"] is not other.arrays["points"]
    assert not first.arrays["points"].flags.writeable
    wire.decode_task(first, within(3.0))
    for schema in (within(2.0), within(3.0, (3,)), within(3.0, dtype="float32")):
        for packed in (second, first):
            with pytest.raises(WireError, match="points: expected"):
                wire.decode_task(packed, schema)
    wire.decode_task(second, within(3.0))


def test_what_came_before_does_not_vouch_for_an_array_that_changed_or_only_looks_the_same():
    array = np.array([0.0, 1.0])
    packed = wire.encode_task(Task(Phase.TRAIN, 1, 0, 1, {"points": array}), ENVELOPE)
    good, bad = contents(array, np.array([0.0, np.nan]))
    for message in (packed, from_records(good, {})):
        wire.decode_task(message, within(1.0))
    array[1] = np.nan
    for message in (packed, from_records(bad, {})):
        with pytest.raises(WireError, match="points: expected finite numbers"):
            wire.decode_task(message, within(1.0))
