import json
import struct

import numpy as np
import pytest
from contract import same
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fbo_flower.errors import WireError
from fbo_flower.storage.files import dumps, loads

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
def test_a_stored_state_comes_back_bit_for_bit_and_has_the_same_bytes_each_time(named, values):
    data = dumps(named, values)
    thawed, got = loads(data)
    assert list(thawed) == list(named)
    assert same(dict(thawed), named)
    assert got == values
    assert dumps(thawed, got) == data


FROZEN = dumps({"points": np.random.default_rng(0).random((3, 2)), "n": np.array(7)}, {"study": "s"})
HEADERS = [
    [], 1, {}, {"arrays": None, "values": {}}, {"arrays": []}, b"[" * 100_000, b"\xff\xfe",
    *({"arrays": rows, "values": {}} for rows in (
        [["a"]], [["a", "<f8", [10**30]]], [["a", "<f8", [10**9]]], [["a", "<f8", [-7]]], [["a", "|O", [1]]],
        [["a", "nope", [1]]], [[["a"], "<f8", [1]]],
    )),
]  # fmt: skip


def test_a_truncated_or_damaged_state_is_a_wire_error():
    texts = [header if isinstance(header, bytes) else json.dumps(header).encode() for header in HEADERS]
    damaged = [struct.pack("<I", len(text)) + text + bytes(16) for text in texts]
    damaged += [FROZEN[:length] for length in (0, 1, 3, 4, 5, 30, len(FROZEN) - 60, len(FROZEN) - 1)]
    for data in damaged:
        with pytest.raises(WireError, match="stored state"):
            loads(data)


def test_flipped_bytes_of_a_state_never_raise_anything_else():
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(2000):
        data = bytearray(FROZEN)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        try:
            loads(bytes(data))
        except WireError:
            refused += 1
    assert 0 < refused < 2000  # flipped values still read, flipped headers do not
