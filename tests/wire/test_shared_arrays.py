"""Arrays that several messages of a batch share are decoded once, and checked against every schema."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.errors import WireError
from fbo_flower.wire.codec import Envelope, decode_task, encode_task
from fbo_flower.wire.flower_records import from_records, to_records

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
