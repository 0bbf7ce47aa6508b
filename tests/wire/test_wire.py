import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contract import same
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hostile import npy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fbo_flower import wire
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.records import Outcome, Phase, Report, Task
from fbo_flower.errors import WireError
from fbo_flower.wire import flower_records
from fbo_flower.wire.flower_records import count_bytes, from_lists, from_records, to_lists, to_records

GOLDEN = Path(__file__).parents[1] / "golden"
ENVELOPE = wire.Envelope("0123456789abcdef", "hospital-3", "ab" * 32, "fts", '{"num_initial":3}')
SCHEMA = Schema({"weights": ArraySpec((4,), low=-100.0, high=100.0)}, {"done": bool, "level": int})
TASK = Task(
    Phase.TRAIN,
    7,
    9,
    2,
    {"weights": np.array([0.1, -2.5, 1e-300, 3.0])},
    {"done": True, "level": 3},
)
REPORT = Report(9, 2, 1, {"weights": np.array([1.0, 2.0, -0.0, 0.3])}, {"done": False})
TRIALS = Outcome(
    np.array([[0.25, 1.0], [0.0, 0.125]]), np.array([np.nan, 0.75]), np.array([9, 10]), {9: "ValueError: no"}
)
DISCLOSURE = wire.Disclosure(TRIALS, 0.75)


def reply(report=REPORT, disclosure=DISCLOSURE):
    return to_records(wire.encode_report(report, TASK, ENVELOPE, disclosure))


def read(content, task=TASK, schema=SCHEMA):
    return wire.decode_report(from_records(content), task, ENVELOPE, schema, 2)


def read_task(content):
    return wire.decode_task(from_records(content), SCHEMA)


def equal_arrays(a, b):
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert a[name].shape == b[name].shape
        assert a[name].tobytes() == b[name].tobytes()


# -- several outputs -----------------------------------------------------------------------------

AIMS = Aims.of(False, {"accuracy": "max"}, {"latency_ms": 20.0})
OUTPUTS = np.array([[np.nan, np.nan], [0.75, -12.5]])
WITH_OUTPUTS = wire.Disclosure(replace(TRIALS, outputs=OUTPUTS), 0.75, feasible=np.array([False, True]))


def test_outputs_and_flags_come_back_and_the_bound_is_not_sent():
    packed = wire.encode_report(REPORT, TASK, ENVELOPE, WITH_OUTPUTS)
    _, disclosure = wire.decode_report(packed, TASK, ENVELOPE, SCHEMA, 2, Aims.from_json(AIMS.to_json()))
    assert disclosure.trials is not None
    np.testing.assert_array_equal(disclosure.trials.outputs, OUTPUTS)
    assert disclosure.feasible.tolist() == [False, True]
    with pytest.raises(WireError, match="disclosed"):  # a server that expects one number
        wire.decode_report(packed, TASK, ENVELOPE, SCHEMA, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": None},
        {"feasible": None},
        {"values": None, "points": None},
        {"outputs": OUTPUTS[1:]},
        {"outputs": OUTPUTS[:, :1]},
        {"outputs": np.array([[0.1, 0.2], [0.75, -12.5]])},
        {"outputs": np.array([[np.nan, 1.0], [0.75, -12.5]])},
        {"outputs": np.array([[np.nan, np.nan], [0.75, np.nan]])},
        {"outputs": np.array([[np.nan, np.nan], [0.75, np.inf]])},
        {"outputs": np.array([[np.nan, np.nan], [0.76, -12.5]])},
        {"outputs": np.array([[0, 0], [1, 2]])},
        {"feasible": np.array([1, 1])},
        {"feasible": np.array([1])},
        {"feasible": np.array([0, 2])},
        {"feasible": np.array([0.0, 1.0])},
        {"feasible": np.array([[0, 1]])},
    ],
)
def test_outputs_that_do_not_fit_their_trials_are_refused(change):
    packed = wire.encode_report(REPORT, TASK, ENVELOPE, WITH_OUTPUTS)
    for name, array in change.items():
        if array is None:
            del packed.arrays[f"disclosed.{name}"]
        else:
            packed.arrays[f"disclosed.{name}"] = array
    with pytest.raises(WireError):
        wire.decode_report(packed, TASK, ENVELOPE, SCHEMA, 2, AIMS)


# -- round trips -------------------------------------------------------------------------------


def test_task_and_report_come_back_as_they_were():
    task = read_task(to_records(wire.encode_task(TASK, ENVELOPE)))
    equal_arrays(task.arrays, TASK.arrays)
    assert (task.phase, task.round, task.trial, task.num_trials) == (Phase.TRAIN, 7, 9, 2)
    assert task.values == TASK.values
    report, disclosure = read(reply())
    equal_arrays(report.arrays, REPORT.arrays)
    assert (report.trial, report.num_trials, report.num_failed) == (9, 2, 1)
    assert report.values == REPORT.values
    assert disclosure.incumbent == 0.75
    np.testing.assert_array_equal(disclosure.trials.points, TRIALS.points)
    np.testing.assert_array_equal(disclosure.trials.values, TRIALS.values)
    assert disclosure.trials.trials.tolist() == [9, 10]
    assert disclosure.trials.failures == {9: "ValueError: no"}


def test_envelope_comes_back_from_a_task():
    _, config = wire.encode_task(TASK, ENVELOPE)
    assert wire.decode_envelope(config) == ENVELOPE


def test_nothing_is_disclosed_when_nothing_is_handed_in():
    content = reply(disclosure=wire.Disclosure())
    assert read(content)[1] == wire.Disclosure()
    assert not any("disclosed" in key for record in content.values() for key in record)


numbers = arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
    array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
names = st.text(st.characters(codec="ascii", exclude_characters=","), min_size=1, max_size=8)


@given(st.dictionaries(names, numbers, max_size=5), st.booleans())
def test_arrays_cross_flowers_records_bit_for_bit(named, reverse):
    if reverse:  # not contiguous
        named = {name: array.T for name, array in named.items()}
    task = Task(Phase.EVALUATE, 0, 0, 0, named)
    got, config = from_records(to_records(wire.encode_task(task, ENVELOPE)))
    assert list(got) == list(named)
    assert "names" not in config
    equal_arrays(got, named)


json_values = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.text()
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_values_cross_as_they_are(values):
    schema = Schema(values={name: type(value) for name, value in values.items()})
    task = Task(Phase.TRAIN, 1, 0, 1, values=values)
    packed = wire.encode_task(task, ENVELOPE)
    assert wire.decode_task(packed, schema).values == values


# -- golden messages of schema version 1 -------------------------------------------------------


def as_json(content):
    return {
        "arrays": {
            name: {"dtype": a.dtype, "shape": list(a.shape), "stype": a.stype, "hex": a.data.hex()}
            for name, a in content["arrays"].items()
        },
        "config": dict(content["config"]),
    }


def from_json(golden):
    record = ArrayRecord(
        {
            name: FlowerArray(
                dtype=a["dtype"], shape=tuple(a["shape"]), stype=a["stype"], data=bytes.fromhex(a["hex"])
            )
            for name, a in golden["arrays"].items()
        }
    )
    return RecordDict({"arrays": record, "config": ConfigRecord(golden["config"])})


def golden(name):
    return json.loads((GOLDEN / f"{name}_v1.json").read_text())


def test_golden_messages_are_of_this_version():
    assert wire.SCHEMA_VERSION == 1, "a new version needs new golden messages, and the old ones refused"


def test_golden_task_is_still_written_and_read():
    assert as_json(to_records(wire.encode_task(TASK, ENVELOPE))) == golden("task")
    task = read_task(from_json(golden("task")))
    equal_arrays(task.arrays, TASK.arrays)
    assert (task.trial, task.values) == (9, TASK.values)


POINT = np.array([0.25, 1.0])
TIMES = np.array([[1.75e9, 1.75e9 + 2.5], [1.75e9 + 3, 1.75e9 + 3.25]])


@pytest.mark.parametrize(
    ("name", "disclosure"),
    [
        ("report", DISCLOSURE),
        ("report_times", wire.Disclosure(TRIALS, 0.75, times=TIMES)),
        ("report_expected", wire.Disclosure(TRIALS, 0.75, POINT, 0.625)),
    ],
)
def test_golden_reports_are_still_written_and_read(name, disclosure):
    assert as_json(reply(disclosure=disclosure)) == golden(name)
    report, told = read(from_json(golden(name)))
    equal_arrays(report.arrays, REPORT.arrays)
    assert told.trials.failures == TRIALS.failures
    assert same(told, disclosure)


@pytest.mark.parametrize(
    "times",
    [
        np.array([[1.0, 2.0]]),
        np.array([[2.0, 1.0], [3.0, 4.0]]),
        np.array([[1.0, 2.0], [3.0, np.nan]]),
        np.array([[1.0, 2.0], [3.0, 1e300]]),
        np.array([[-1.0, 2.0], [3.0, 4.0]]),
        np.array([1.0, 2.0]),
        np.array([[1, 2], [3, 4]]),
    ],
)
def test_times_that_cannot_be_are_refused(times):
    with pytest.raises(WireError, match=r"disclosed\.times"):
        read(reply(disclosure=wire.Disclosure(TRIALS, 0.75, times=times)))


@pytest.mark.parametrize(
    ("point", "expected"), [(None, 0.5), (POINT, np.nan), (POINT, np.inf)], ids=["no point", "nan", "inf"]
)
def test_an_expected_value_that_cannot_be_is_refused(point, expected):
    with pytest.raises(WireError, match=r"disclosed\.expected: expected a finite number"):
        read(reply(disclosure=wire.Disclosure(TRIALS, 0.75, point, expected)))


def test_times_without_trials_are_refused():
    packed = wire.encode_report(REPORT, TASK, ENVELOPE, wire.Disclosure())
    packed.arrays["disclosed.times"] = np.array([[1.0, 2.0]])
    with pytest.raises(WireError, match=r"disclosed\.times: expected a start"):
        read(to_records(packed))


# -- hostile replies ---------------------------------------------------------------------------


def with_bytes(data, stype="numpy.ndarray", shape=(4,), dtype="float64"):
    def change(content):
        content["arrays"]["weights"] = FlowerArray(dtype=dtype, shape=shape, stype=stype, data=data)

    return change


def with_array(array, name="weights"):
    return lambda content: content["arrays"].__setitem__(name, FlowerArray(array))


def with_config(**entries):
    entries = {key.replace("_", "-"): value for key, value in entries.items()}
    return lambda content: content["config"].update(entries)


def with_disclosed(key, value):
    return lambda content: content["config"].update({f"disclosed.{key}": value})


def without(key):
    return lambda content: content["config"].pop(key)


def renamed(new, old="weights"):
    """The array under another name, in the record and in the list of names."""

    def change(content):
        record = content["arrays"]
        content["arrays"] = ArrayRecord({new if k == old else k: v for k, v in record.items()})
        content["config"]["names"] = ",".join(content["arrays"])

    return change


def dropped(name):
    def change(content):
        content["arrays"].pop(name)
        content["config"]["names"] = ",".join(content["arrays"])

    return change


def added(name, array):
    def change(content):
        content["arrays"][name] = FlowerArray(array)
        content["config"]["names"] = ",".join(content["arrays"])

    return change


def replaced(key, record):
    return lambda content: content.__setitem__(key, record)


def removed(key):
    return lambda content: content.pop(key)


DEEP = '{"a":' * 50_000
GOOD = np.array([1.0, 2.0, 3.0, 4.0])
PICKLE = b"cos\nsystem\n(S'exit 1'\ntR."
HOSTILE = {
    "nan": with_array(np.array([1.0, np.nan, 0.0, 0.0])),
    "inf": with_array(np.array([1.0, np.inf, 0.0, 0.0])),
    "too large": with_array(np.array([1.0, 100.1, 0.0, 0.0])),
    "too small": with_array(np.array([1.0, -1e9, 0.0, 0.0])),
    "longer": with_array(np.ones(5)),
    "shorter": with_array(np.ones(3)),
    "empty": with_array(np.ones(0)),
    "two axes": with_array(np.ones((4, 1))),
    "no axes": with_array(np.array(1.0)),
    "float32": with_array(np.ones(4, dtype=np.float32)),
    "integers": with_array(np.ones(4, dtype=np.int64)),
    "bools": with_array(np.ones(4, dtype=np.bool_)),
    "big endian": with_array(GOOD.astype(">f8")),
    "complex": with_array(GOOD.astype(complex)),
    "text": with_array(np.array(["a", "b", "c", "d"])),
    "structured": with_bytes(npy("(4,)", bytes(32), "[('x', '<f8')]")),
    "sub-arrays": with_bytes(npy("(1,)", bytes(32), "('<f8', (4,))")),
    "objects": with_bytes(npy("(1,)", PICKLE, "'|O'")),
    "a pickle": with_bytes(PICKLE),
    "a pickle in npy": with_bytes(npy("(4,)", PICKLE, "'|O'")),
    "promises 1e12 elements": with_bytes(npy("(1000000000000,)", bytes(32))),
    "promises 1e30 by nothing": with_bytes(npy(f"({10**30}, 0)")),
    "negative length": with_bytes(npy("(-1,)", bytes(32))),
    "negative lengths": with_bytes(npy("(-2, -2)", bytes(32))),
    "minus one by nothing": with_bytes(npy("(-1, 0)")),
    "a hundred axes": with_bytes(npy(str((1,) * 100), bytes(8))),
    "length True": with_bytes(npy("(True,)", bytes(8))),
    "length in a list": with_bytes(npy("[4]", bytes(32))),
    "length a float": with_bytes(npy("(4.0,)", bytes(32))),
    "no shape": with_bytes(npy("None", bytes(32))),
    "nested shape": with_bytes(npy("(" * 3000 + ")" * 3000, bytes(32))),
    "calls in the header": with_bytes(npy("__import__('os').system('exit 1')", bytes(32))),
    "unknown type": with_bytes(npy("(4,)", bytes(32), "'<f7'")),
    "void type": with_bytes(npy("(4,)", b"", "'V0'")),
    "bad order": with_bytes(npy("(4,)", bytes(32), fortran="'no'")),
    "version 9": with_bytes(npy("(4,)", bytes(32), version=b"\x09\x00")),
    "version 3": with_bytes(npy("(4,)", bytes(32), version=b"\x03\x00")),
    "truncated": with_bytes(npy("(4,)", bytes(31))),
    "too much": with_bytes(npy("(4,)", bytes(33))),
    "no bytes": with_bytes(b""),
    "half a header": with_bytes(npy("(4,)", bytes(32))[:20]),
    "not npy": with_bytes(b"PK\x03\x04" + bytes(100)),
    "another stype": with_bytes(npy("(4,)", bytes(32)), stype="pickle"),
    "another name": renamed("points"),
    "a name of nothing": renamed(""),
    "a name with a comma": renamed("weights,weights"),
    "a name with a surrogate": renamed("\ud800"),
    "a disclosed name that is none": renamed("disclosed.secret"),
    "extra array": added("secret", np.ones(1)),
    "many arrays": lambda content: [added(f"a{i}", np.ones(1))(content) for i in range(40)],
    "names twice": with_config(names="weights,weights,disclosed.points,disclosed.values"),
    "names missing": without("names"),
    "names of none": with_config(names=""),
    "names in another order": with_config(names="disclosed.points,weights,disclosed.values"),
    "one array less than named": lambda content: content["arrays"].pop("weights"),
    "points without values": dropped("disclosed.values"),
    "values without points": dropped("disclosed.points"),
    "points outside the cube": with_array(np.array([[0.0, 1.1], [0.0, 0.0]]), "disclosed.points"),
    "points nan": with_array(np.full((2, 2), np.nan), "disclosed.points"),
    "points of another dimension": with_array(np.zeros((2, 3)), "disclosed.points"),
    "more points than asked for": with_array(np.zeros((3, 2)), "disclosed.points"),
    "values inf": with_array(np.array([np.nan, np.inf]), "disclosed.values"),
    "values nan without a reason": with_array(np.array([np.nan, np.nan]), "disclosed.values"),
    "reason without a failure": with_array(np.array([1.0, 1.0]), "disclosed.values"),
    "reason for another trial": with_disclosed("failures", '{"99":"no"}'),
    "reason not a text": with_disclosed("failures", '{"9":1}'),
    "reason too long": with_disclosed("failures", json.dumps({"9": "x" * 1001})),
    "reasons a list": with_disclosed("failures", "[]"),
    "reasons deep": with_disclosed("failures", DEEP),
    "reasons missing": without("disclosed.failures"),
    "incumbent inf": with_disclosed("incumbent", float("inf")),
    "incumbent a text": with_disclosed("incumbent", "1"),
    "incumbent an integer": with_disclosed("incumbent", 1),
    "incumbent a bool": with_disclosed("incumbent", True),
    "incumbent a list": with_disclosed("incumbent", [1.0]),
    "version 2": with_config(schema=2),
    "version True": with_config(schema=True),
    "version 1.0": with_config(schema=1.0),
    "version text": with_config(schema="1"),
    "version missing": without("schema"),
    "study": with_config(study="another"),
    "study missing": without("study"),
    "study an integer": with_config(study=1),
    "agent": with_config(agent="hospital-4"),
    "agent huge": with_config(agent="x" * 2**21),
    "agent a surrogate": with_config(agent="\udcff"),
    "space": with_config(space="cd" * 32),
    "phase": with_config(phase="evaluate"),
    "phase unknown": with_config(phase="\x00"),
    "round": with_config(round=8),
    "round True": with_config(round=True),
    "round a float": with_config(round=7.0),
    "trial": with_config(trial=8),
    "trial negative": with_config(trial=-1),
    "trial huge": with_config(trial=2**62),
    "num-trials": with_config(num_trials=3),
    "num-failed negative": with_config(num_failed=-1),
    "num-failed other than disclosed": with_config(num_failed=2),
    "num-failed too many": with_config(num_failed=3),
    "num-failed True": with_config(num_failed=True),
    "num-failed a float": with_config(num_failed=1.0),
    "num-failed nan": with_config(num_failed=float("nan")),
    "num-failed a text": with_config(num_failed="1"),
    "num-failed missing": without("num-failed"),
    "values unknown": with_config(values='{"secret":1}'),
    "values an integer for a bool": with_config(values='{"done":1}'),
    "values a bool for an integer": with_config(values='{"level":true}'),
    "values a float for an integer": with_config(values='{"level":1.0}'),
    "values null": with_config(values='{"done":null}'),
    "values nested": with_config(values='{"done":{"done":true}}'),
    "values deep": with_config(values=DEEP),
    "values deep lists": with_config(values="[" * 100_000),
    "values a huge integer": with_config(values='{"level":' + "9" * 5000 + "}"),
    "values nan": with_config(values='{"level":NaN}'),
    "values not json": with_config(values="{"),
    "values a list": with_config(values="[]"),
    "values empty text": with_config(values=""),
    "values huge": with_config(values=" " * 2**21),
    "values missing": without("values"),
    "values bytes": with_config(values=b"{}"),
    "config a list": with_config(more=[1, 2]),
    "config an empty list": with_config(more=[]),
    "config bytes": with_config(more=b"x"),
    "no arrays": removed("arrays"),
    "no config": removed("config"),
    "a third record": replaced("junk", MetricRecord({"loss": float("nan")})),
    "nothing": lambda content: content.clear(),
    "arrays are metrics": replaced("arrays", MetricRecord({"a": 1.0})),
    "config is metrics": replaced("config", MetricRecord({"schema": 1})),
    "config is arrays": replaced("config", ArrayRecord({"a": FlowerArray(GOOD)})),
    "arrays are empty": replaced("arrays", ArrayRecord()),
    "config is empty": replaced("config", ConfigRecord()),
}


def attacked(kind):
    content = reply()
    HOSTILE[kind](content)
    return content


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_reply_is_a_wire_error_and_costs_little(kind):
    content = attacked(kind)
    count_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as caught:
            read(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**23 + 4 * count_bytes(content)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_task_is_refused_or_harmless(kind):
    content = to_records(wire.encode_task(TASK, ENVELOPE))
    try:
        HOSTILE[kind](content)
    except KeyError:
        return  # a task does not have it
    try:
        task = read_task(content)
    except WireError:
        return
    assert set(task.arrays) <= {"weights"}
    assert all(a.dtype == np.float64 and np.isfinite(a).all() for a in task.arrays.values())
    assert all(0 <= n <= wire.MAX_TRIALS for n in (task.round, task.trial, task.num_trials))


def test_untouched_reply_is_let_through():
    report, _ = read(reply())  # else the tests above would prove nothing
    assert report.arrays


def test_more_bytes_than_a_message_may_have_are_refused_before_they_are_read():
    content = reply()
    with_bytes(bytes(flower_records.MAX_BYTES + 1))(content)
    with pytest.raises(WireError, match="bytes together"):
        read(content)


def test_numbers_that_json_overflows_are_refused():
    schema = Schema(values={"share": float})
    for text in ("1e999", "-1e999"):
        config = wire.encode_task(Task(Phase.TRAIN, 1, 0, 1), ENVELOPE).config
        packed = wire.Packed({}, config | {"values": f'{{"share":{text}}}'})
        with pytest.raises(WireError, match="finite"):
            wire.decode_task(packed, schema)


def test_axes_without_a_fixed_length_have_a_longest_one():
    schema = Schema({"messages": ArraySpec((None, 2), max_length=3)})
    for length, fits in ((1, True), (3, True), (4, False)):
        packed = wire.encode_task(Task(Phase.TRAIN, 1, 0, 1, {"messages": np.zeros((length, 2))}), ENVELOPE)
        if fits:
            wire.decode_task(packed, schema)
        else:
            with pytest.raises(WireError, match="messages"):
                wire.decode_task(packed, schema)


def test_a_name_can_be_used_once():
    arrays, config = to_lists(wire.encode_task(TASK, ENVELOPE))
    with pytest.raises(WireError, match="different names"):
        from_lists([*arrays, *arrays], config | {"names": "weights,weights"})


def test_the_lists_of_a_numpy_client_come_back_as_the_same_message():
    packed = wire.encode_task(TASK, ENVELOPE)
    again = from_lists(*to_lists(packed))
    assert again.config == packed.config
    equal_arrays(again.arrays, packed.arrays)


@pytest.mark.parametrize("names", ["", "weights,phases", 3, None])
def test_names_that_do_not_fit_the_arrays_are_refused(names):
    arrays, config = to_lists(wire.encode_task(TASK, ENVELOPE))
    with pytest.raises(WireError, match="names"):
        from_lists(arrays, config | {"names": names})


def test_object_arrays_never_get_in_through_fit():
    packed = wire.encode_task(TASK, ENVELOPE)
    objects = {name: array.astype(object) for name, array in packed.arrays.items()}
    with pytest.raises(WireError, match="object"):
        wire.decode_task(wire.Packed(objects, packed.config), SCHEMA)


@given(st.binary(max_size=200))
def test_no_bytes_give_anything_but_an_array_or_a_wire_error(data):
    for content in (data, npy("(4,)")[:10] + data, npy("(4,)") + data):
        try:
            array = flower_records._decode_array(
                "a", FlowerArray(dtype="float64", shape=(4,), stype="numpy.ndarray", data=content)
            )
        except WireError:
            continue
        assert array.dtype.kind in "fiub"


# -- counting ----------------------------------------------------------------------------------


def test_bytes_are_counted_with_names_and_texts():
    content = RecordDict(
        {
            "arrays": ArrayRecord({"ab": FlowerArray(np.zeros(3))}),
            "config": ConfigRecord({"t": "é", "n": 1, "b": True, "l": [1.0, 2.0], "e": "", "x": b"123"}),
        }
    )
    assert count_bytes(content) == (2 + 128 + 24) + (1 + 2) + (1 + 8) + (1 + 1) + (1 + 16) + 1 + (1 + 3)
