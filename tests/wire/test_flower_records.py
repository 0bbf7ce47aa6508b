"""Records that are filled directly, with headers that are kept, are those that Flower builds."""

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


def made():
    """Return all arrays and scalars as a content that is filled directly."""
    arrays = {name: flower_records.flower_array(array) for name, array in ARRAYS.items()}
    record = flower_records.record_of(ArrayRecord, arrays)
    config = flower_records.record_of(ConfigRecord, dict(SCALARS))
    return flower_records.record_of(RecordDict, {"arrays": record, "config": config})


@pytest.mark.parametrize("known", [True, False], ids=["this Flower", "one that keeps its entries elsewhere"])
def test_a_content_is_the_one_that_flower_makes(known, monkeypatch):
    arrays = {name: FlowerArray(array) for name, array in ARRAYS.items()}
    expected = RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord(dict(SCALARS))})
    assert all(map(flower_records.can_be_filled, (RecordDict, ArrayRecord, ConfigRecord)))
    if not known:
        monkeypatch.setattr(flower_records, "can_be_filled", lambda kind: False)
    content, other = made(), made()
    assert content == expected == pickle.loads(pickle.dumps(content))
    assert content.object_id == expected.object_id
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(content["arrays"][name].numpy(), array)
    content.config_records["config"]["a"] = 2
    assert other.config_records["config"]["a"] == 1, "records do not share their entries"
    with pytest.raises(TypeError):  # what is added is still checked
        content.config_records["config"]["a"] = object()


ENVELOPE = Envelope("study", "agent", "space", "ts")


def contents(*arrays):
    sent = {}
    tasks = [Task(Phase.TRAIN, 1, 0, 1, {"points": array}) for array in arrays]
    return [to_records(encode_task(task, ENVELOPE), sent) for task in tasks]


def within(high, shape=(2,), dtype="float64"):
    return Schema({"points": ArraySpec(shape, dtype, low=0.0, high=high)})


def test_messages_that_share_an_array_get_one_that_nobody_can_write():
    shared, other = np.linspace(0, 1, 4), np.linspace(0, 1, 4)
    seen: dict = {}
    a, b, c = (from_records(content, seen) for content in contents(shared, shared, other))
    assert a.arrays["points"] is b.arrays["points"]
    assert a.arrays["points"] is not c.arrays["points"]
    assert not a.arrays["points"].flags.writeable
    np.testing.assert_array_equal(a.arrays["points"], shared)


def test_a_shared_array_is_checked_against_every_schema_in_any_order():
    seen: dict = {}
    first, second = (from_records(content, seen) for content in contents(*[np.array([0.0, 3.0])] * 2))
    decode_task(first, within(3.0))
    for schema in (within(2.0), within(3.0, (3,)), within(3.0, dtype="float32")):
        for packed in (second, first):
            with pytest.raises(WireError, match="points: expected"):
                decode_task(packed, schema)
    decode_task(second, within(3.0))


def test_what_came_before_does_not_vouch_for_an_array_that_changed_or_only_looks_the_same():
    array = np.array([0.0, 1.0])
    packed = encode_task(Task(Phase.TRAIN, 1, 0, 1, {"points": array}), ENVELOPE)
    good, bad = contents(array, np.array([0.0, np.nan]))
    for message in (packed, from_records(good, {})):
        decode_task(message, within(1.0))
    array[1] = np.nan
    for message in (packed, from_records(bad, {})):
        with pytest.raises(WireError, match="points: expected finite numbers"):
            decode_task(message, within(1.0))
