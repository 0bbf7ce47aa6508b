"""Records that are filled directly, with headers that are kept, are those that Flower builds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fbo_flower.algorithms.messages import ArraySpec, Schema
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.errors import WireError
from fbo_flower.wire import flower_records
from fbo_flower.wire.codec import Envelope, decode_task, encode_task
from fbo_flower.wire.flower_records import from_records, to_records

ARRAYS = {
    "vector": np.arange(5.0),
    "matrix": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "strided": np.arange(24.0).reshape(4, 6)[::2, ::3],
    "empty": np.empty((0, 3)),
    "scalar": np.array(3, dtype=np.int64),
    "bytes": np.arange(7, dtype=np.uint8),
    "flags": np.array([True, False]),
}
SCALARS = {"a": 1, "b": True, "c": 2.5, "d": "text", "e": b"bytes", "names": ""}


def made() -> RecordDict:
    """Return all arrays and scalars as a content that is filled directly."""
    arrays = {name: flower_records.flower_array(array) for name, array in ARRAYS.items()}
    return flower_records.record_of(
        RecordDict,
        {
            "arrays": flower_records.record_of(ArrayRecord, arrays),
            "config": flower_records.record_of(ConfigRecord, dict(SCALARS)),
        },
    )


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_the_one_that_flower_makes(name: str) -> None:
    made, expected = flower_records.flower_array(ARRAYS[name]), FlowerArray(ARRAYS[name])
    assert (made.dtype, made.shape, made.stype) == (expected.dtype, expected.shape, expected.stype)
    assert made.data == expected.data
    assert made.object_id == expected.object_id
    assert np.array_equal(made.numpy(), ARRAYS[name])


@pytest.mark.parametrize("known", [True, False], ids=["this Flower", "one that keeps its entries elsewhere"])
def test_a_content_is_the_one_that_flower_makes(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {name: FlowerArray(array) for name, array in ARRAYS.items()}
    expected = RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord(dict(SCALARS))})
    assert flower_records.entries_of(expected) is not None
    if not known:
        monkeypatch.setattr(flower_records, "entries_of", lambda record: None)
    content = made()
    assert content == expected
    assert pickle.loads(pickle.dumps(content)) == expected
    assert content.object_id == expected.object_id


def test_records_do_not_share_their_entries_and_still_check_what_is_added() -> None:
    one, other = made().config_records["config"], made().config_records["config"]
    one["a"] = 2
    assert other["a"] == 1
    with pytest.raises(TypeError):
        one["a"] = object()  # type: ignore[assignment]


ENVELOPE = Envelope("study", "agent", "space", "ts")


def contents(*arrays):
    sent = {}
    tasks = [Task(Phase.TRAIN, 1, 0, 1, {"points": array}) for array in arrays]
    return [to_records(encode_task(task, ENVELOPE), sent) for task in tasks]


def test_messages_that_share_an_array_get_one_that_nobody_can_write() -> None:
    shared, other = np.linspace(0, 1, 4), np.linspace(0, 1, 4)
    seen: dict = {}
    a, b, c = (from_records(content, seen) for content in contents(shared, shared, other))
    assert a.arrays["points"] is b.arrays["points"]
    assert a.arrays["points"] is not c.arrays["points"]
    assert not a.arrays["points"].flags.writeable
    np.testing.assert_array_equal(a.arrays["points"], shared)


def test_the_bounds_of_every_schema_are_checked_on_a_shared_array() -> None:
    seen: dict = {}
    first, second = (from_records(content, seen) for content in contents(*[np.array([0.0, 3.0])] * 2))
    wide, narrow = (Schema({"points": ArraySpec((2,), low=0.0, high=high)}) for high in (3.0, 2.0))
    decode_task(first, wide)
    for schema, packed in ((narrow, second), (narrow, first)):
        with pytest.raises(WireError, match="points: expected finite numbers between 0 and 2"):
            decode_task(packed, schema)
    decode_task(second, wide)


def test_a_range_is_not_kept_for_an_array_that_can_be_written() -> None:
    array = np.array([0.0, 1.0])
    schema = Schema({"points": ArraySpec((2,), low=0.0, high=1.0)})
    packed = encode_task(Task(Phase.TRAIN, 1, 0, 1, {"points": array}), ENVELOPE)
    decode_task(packed, schema)
    array[1] = np.nan
    with pytest.raises(WireError, match="points: expected finite numbers"):
        decode_task(packed, schema)


def test_a_shared_array_is_checked_against_the_shape_and_dtype_of_another_schema() -> None:
    seen: dict = {}
    first, second = (from_records(content, seen) for content in contents(*[np.array([0.0, 1.0])] * 2))
    decode_task(first, Schema({"points": ArraySpec((2,), low=0.0, high=1.0)}))
    for spec in (ArraySpec((3,), low=0.0, high=1.0), ArraySpec((2,), "float32", low=0.0, high=1.0)):
        with pytest.raises(WireError, match=r"points: expected"):
            decode_task(second, Schema({"points": spec}))


def test_an_array_of_equal_bytes_that_no_message_shared_is_checked_anew() -> None:
    schema = Schema({"points": ArraySpec((2,), low=0.0, high=1.0)})
    good, bad = contents(np.array([0.0, 1.0]), np.array([0.0, np.nan]))
    decode_task(from_records(good, {}), schema)
    with pytest.raises(WireError, match="points: expected finite numbers"):
        decode_task(from_records(bad, {}), schema)


def test_a_header_that_came_before_does_not_vouch_for_the_number_of_bytes() -> None:
    (good,) = contents(np.array([0.0, 1.0]))
    from_records(good)
    for change in (lambda data: data[:-8], lambda data: data + bytes(8)):
        (content,) = contents(np.array([0.0, 1.0]))
        array = content["arrays"]["points"]
        array.data = change(array.data)
        with pytest.raises(WireError, match="points: expected 16 bytes"):
            from_records(content)


def test_values_that_came_before_are_checked_against_every_schema() -> None:
    schemas = [Schema(values={"message": kind}) for kind in (bool, int)]
    for text, right in (('{"message":true}', 0), ('{"message":1}', 1)):
        packed = encode_task(Task(Phase.TRAIN, 1, 0, 1), ENVELOPE)
        packed.config["values"] = text
        task = decode_task(packed, schemas[right])
        task.values["message"] = None  # a receiver that writes into its task changes no other one
        assert decode_task(packed, schemas[right]).values["message"] is not None
        with pytest.raises(WireError, match="values: expected"):
            decode_task(packed, schemas[1 - right])
