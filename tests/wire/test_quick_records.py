"""Flower's records built quickly are those that Flower builds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fbo_flower.wire import quick_records

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


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_the_one_that_flower_makes(name: str) -> None:
    made, expected = quick_records.flower_array(ARRAYS[name]), FlowerArray(ARRAYS[name])
    assert (made.dtype, made.shape, made.stype) == (expected.dtype, expected.shape, expected.stype)
    assert made.data == expected.data
    assert made.object_id == expected.object_id
    assert np.array_equal(made.numpy(), ARRAYS[name])


def test_a_content_is_the_one_that_flower_makes() -> None:
    arrays = {name: FlowerArray(array) for name, array in ARRAYS.items()}
    expected = RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord(dict(SCALARS))})
    made = quick_records.content(
        {
            "arrays": quick_records.array_record(
                {name: quick_records.flower_array(array) for name, array in ARRAYS.items()}
            ),
            "config": quick_records.config_record(SCALARS),
        }
    )
    assert made == expected
    assert pickle.loads(pickle.dumps(made)) == expected
    assert made.object_id == expected.object_id


def test_records_do_not_share_their_entries_and_still_check_what_is_added() -> None:
    one, other = quick_records.config_record(SCALARS), quick_records.config_record(SCALARS)
    one["a"] = 2
    assert other["a"] == 1
    with pytest.raises(TypeError):
        one["a"] = object()  # type: ignore[assignment]


def test_another_version_of_flower_builds_its_own_records(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = quick_records.array_record({"matrix": quick_records.flower_array(ARRAYS["matrix"])})
    monkeypatch.setattr(quick_records, "_KNOWN", False)
    monkeypatch.setattr(quick_records, "_KNOWN_ARRAY", False)
    assert quick_records.array_record({"matrix": quick_records.flower_array(ARRAYS["matrix"])}) == quick
