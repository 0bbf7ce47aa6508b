"""Records that are filled directly, with headers that are kept, are those that Flower builds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fbo_flower.wire import flower_records

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
