import copy
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fbo_flower.errors import WireError
from fbo_flower.storage.serialization import dumps, loads

numbers = arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
    array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
state_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**128) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.text(max_size=8), numbers, max_size=4),
    st.dictionaries(st.text(), state_values, max_size=3),
)
def test_freeze_and_thaw_keep_every_bit(named, values):
    thawed, got = loads(dumps(named, values))
    assert list(thawed) == list(named)
    for name, array in named.items():
        assert (thawed[name].dtype, thawed[name].shape) == (array.dtype, array.shape)
        assert thawed[name].tobytes() == array.tobytes()
    assert got == values


def test_frozen_state_is_the_same_bytes_each_time():
    named = {"a": np.arange(4.0), "b": np.eye(2)}
    assert dumps(named, {"x": 1}) == dumps(copy.deepcopy(named), {"x": 1})


FROZEN = dumps({"points": np.random.default_rng(0).random((3, 2)), "n": np.array(7)}, {"study": "s"})


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 30, len(FROZEN) - 60, len(FROZEN) - 1])
def test_truncated_memory_is_a_wire_error(length):
    with pytest.raises(WireError, match="stored state"):
        loads(FROZEN[:length])


def frozen(header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + bytes(16)


@pytest.mark.parametrize(
    "header",
    [
        [],
        1,
        {},
        {"arrays": None, "values": {}},
        {"arrays": [["a"]], "values": {}},
        {"arrays": [["a", "<f8", [10**30]]], "values": {}},
        {"arrays": [["a", "<f8", [10**9]]], "values": {}},
        {"arrays": [["a", "<f8", [-7]]], "values": {}},
        {"arrays": [["a", "|O", [1]]], "values": {}},
        {"arrays": [["a", "nope", [1]]], "values": {}},
        {"arrays": [[["a"], "<f8", [1]]], "values": {}},
        {"arrays": []},
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_damaged_memory_is_a_wire_error(header):
    with pytest.raises(WireError, match="stored state"):
        loads(frozen(header))


def test_flipped_bytes_of_a_memory_never_raise_anything_else():
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(3000):
        data = bytearray(FROZEN)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        try:
            loads(bytes(data))
        except WireError:
            refused += 1
    assert 0 < refused < 3000  # flipped values still read, flipped headers do not
