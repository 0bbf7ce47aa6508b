"""Convert arrays and JSON values to bytes and back, for journals on disk.

Format: the length of the header (32 bits, little endian), the header as JSON (names, dtypes and shapes of the
arrays, and the values), then the arrays one after the other. No pickle is involved.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.errors import WireError

_to_json = json.JSONEncoder(separators=(",", ":")).encode


def dumps(arrays: Mapping[str, AnyArray], values: Mapping[str, object]) -> bytes:
    """Return arrays and JSON values as bytes; `loads` reads them back bit for bit."""
    parts = [np.asarray(array, order="C") for array in arrays.values()]
    index = _index(tuple((name, a.dtype.str, a.shape) for name, a in zip(arrays, parts, strict=True)))
    header = f'{{"arrays":{index},"values":{_to_json(dict(values))}}}'.encode()
    return b"".join([struct.pack("<I", len(header)), header, *(part.tobytes() for part in parts)])


@lru_cache(maxsize=16)  # in a round most messages and states have arrays of the same names and shapes
def _index(arrays: tuple[tuple[str, str, tuple[int, ...]], ...]) -> str:
    """Return names, dtypes and shapes as JSON."""
    return _to_json([[name, dtype, list(shape)] for name, dtype, shape in arrays])


def loads(data: bytes) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the arrays and values that `dumps` encoded; WireError if the bytes are damaged."""
    try:
        (length,) = struct.unpack_from("<I", data)
        header = json.loads(data[4 : 4 + length])
        arrays: dict[str, AnyArray] = {}
        position = 4 + length
        for name, dtype, shape in header["arrays"]:
            if dtype[1] not in "fiub" or any(type(n) is not int or n < 0 for n in shape):
                raise ValueError(f"{name}: {dtype} {shape}")
            flat = np.frombuffer(data, dtype=np.dtype(dtype), count=math.prod(shape), offset=position)
            arrays[name] = flat.reshape(shape)
            position += flat.nbytes
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes too many")
        return arrays, header["values"]
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, struct.error) as error:
        raise WireError(f"stored state: expected what dumps() wrote, got {len(data)} bytes") from error
