"""Convert arrays and scalars to the records of a Flower message, and back.

A message's content has two records: `arrays` holds every array under its name; `config` holds the scalars,
and its entry `names` lists the arrays. An incoming array is read from its `.npy` bytes only after its header
has been checked against their number; nothing is unpickled. `codec.py` checks what arrays and scalars mean.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fbo_flower.algorithms.records import AnyArray, Scalar
from fbo_flower.errors import WireError
from fbo_flower.wire import quick_records
from fbo_flower.wire.checks import show
from fbo_flower.wire.codec import Packed
from fbo_flower.wire.numpy_client import NAMES

MAX_BYTES = 64 * 2**20  # bytes of all arrays of one message together
MAX_ARRAYS = 32
MAX_AXES = 8
_SCALARS = (bool, int, float, str)
_PLAIN = frozenset(_SCALARS)
_KINDS = "fiub"  # of NumPy's dtypes
_SHORT_HEADER = 256  # headers of at most this many bytes are cached


def to_records(packed: Packed, seen: dict[int, FlowerArray] | None = None) -> RecordDict:
    """Return a Flower message's content: record `arrays` with every array under its name, and `config`.

    Parameters
    ----------
    seen : id of an array -> its encoded form; filled here. Messages of one half-round share arrays, which are
        then encoded once. It must not outlive the arrays, because Python reuses ids
    """
    arrays, config = packed
    seen = {} if seen is None else seen
    for array in arrays.values():
        if id(array) not in seen:
            seen[id(array)] = quick_records.flower_array(array)
    record = quick_records.array_record({name: seen[id(array)] for name, array in arrays.items()})
    scalars = config | {NAMES: ",".join(arrays)}  # a NumPyClient receives a list and needs the names
    return quick_records.content({"arrays": record, "config": quick_records.config_record(scalars)})


def from_records(content: RecordDict, seen: dict[int, tuple[FlowerArray, AnyArray]] | None = None) -> Packed:
    """Return the arrays and scalars of a Flower message.

    Sizes are checked before anything large is allocated.

    Parameters
    ----------
    seen : id of an encoded array -> the array and what it decodes to; filled here. Messages of one batch
        share arrays, which are then decoded once

    Raises
    ------
    WireError
        If the content is not what `to_records` writes, or too large.
    """
    record, config = content.get("arrays"), content.get("config")
    if len(content) != 2 or not isinstance(record, ArrayRecord) or not isinstance(config, ConfigRecord):
        found = show(sorted(content))
        raise WireError(f"content: expected only records 'arrays' and 'config', got {found}", "content")
    encoded = dict(record.items())  # without `items`, Flower's records are read entry by entry
    size = sum([len(array.data) for array in encoded.values()])
    if len(encoded) > MAX_ARRAYS or size > MAX_BYTES:
        raise WireError(
            f"arrays: expected at most {MAX_ARRAYS} of {MAX_BYTES} bytes together, "
            f"got {len(encoded)} of {size} bytes",
            "size",
        )
    found_scalars = dict(config.items())
    if not _PLAIN.issuperset(map(type, found_scalars.values())) and not all(
        isinstance(value, _SCALARS) for value in found_scalars.values()
    ):
        raise WireError("config: expected only numbers and texts, got another type", "content")
    scalars = cast(dict[str, Scalar], found_scalars)
    names = scalars.pop(NAMES, "")
    if ",".join(encoded) != names:
        raise WireError(f"names: expected {show(','.join(encoded))}, got {show(names)}", NAMES)
    if seen is None:
        return Packed({name: _decode_array(name, array) for name, array in encoded.items()}, scalars)
    arrays: dict[str, AnyArray] = {}
    for name, array in encoded.items():
        known = seen.get(id(array))
        if known is None:
            known = seen[id(array)] = array, _decode_array(name, array)
        arrays[name] = known[1]
    return Packed(arrays, scalars)


def count_bytes(content: RecordDict) -> int:
    """Return the number of bytes of arrays and scalars in a message, names included.

    Flower's own count fails on an empty text and counts characters instead of bytes.
    """
    total = 0
    for record in content.values():
        if isinstance(record, ArrayRecord):
            total += record.count_bytes()
        elif isinstance(record, ConfigRecord):
            texts = list(record.keys())
            for value in record.values():
                if type(value) is str:
                    texts.append(value)
                else:
                    total += _size(value)
            total += _size("".join(texts))
    return total


def _size(value: object) -> int:
    kind = type(value)
    if kind is int or kind is float:
        return 8
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    return len(value) if isinstance(value, bytes) else 1 if isinstance(value, bool) else 8


def _decode_array(name: str, array: FlowerArray) -> AnyArray:
    """Read one array in NumPy's `.npy` format; its header must state exactly the size of its data."""
    data = array.data
    known = _known_header(data)
    if known is not None and array.stype == "numpy.ndarray" and known.num_bytes == len(data) - known.offset:
        flat = np.frombuffer(data, dtype=known.dtype, offset=known.offset)
        return flat.reshape(known.shape, order="F" if known.fortran else "C")
    try:
        shape, fortran, dtype, offset = _read_header(data)
    except Exception as error:  # NumPy raises several kinds on malformed headers
        raise WireError(f"{name[:80]}: expected an array in npy format", "encoding") from error
    if not _is_shape(shape):
        raise WireError(
            f"{name[:80]}: expected an array of at most {MAX_AXES} axes, got {show(shape)}", "shape"
        )
    size = math.prod(shape)  # Python integers: cannot overflow
    if array.stype != "numpy.ndarray" or dtype.kind not in _KINDS:
        raise WireError(f"{name[:80]}: expected plain numbers, got {dtype}", "dtype")
    if size * dtype.itemsize != len(data) - offset:
        raise WireError(
            f"{name[:80]}: expected {size * dtype.itemsize} bytes for shape {show(shape)}", "size"
        )
    flat = np.frombuffer(data, dtype=dtype, offset=offset)
    return cast(AnyArray, flat.reshape(shape, order="F" if fortran else "C"))


def _is_shape(shape: tuple[int, ...]) -> bool:
    return len(shape) <= MAX_AXES and all(type(n) is int and 0 <= n <= MAX_BYTES for n in shape)


class _Header(NamedTuple):
    """What a short `.npy` header says that `_decode_array` accepts."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int  # where the data begin
    num_bytes: int  # of the data


def _known_header(data: bytes) -> _Header | None:
    """Return a valid short header; None if it is long or not valid."""
    if data[6:8] != b"\x01\x00":
        return None
    end = 10 + int.from_bytes(data[8:10], "little")
    return _short_header(data[:end]) if end <= min(_SHORT_HEADER, len(data)) else None


# messages have few different headers, and NumPy takes longer to parse a header than to read the numbers
@lru_cache(maxsize=256)
def _short_header(header: bytes) -> _Header | None:
    try:
        shape, fortran, dtype, offset = _read_header(header)
    except Exception:  # NumPy raises several kinds; `_decode_array` says what is wrong
        return None
    if not _is_shape(shape) or dtype.kind not in _KINDS:
        return None
    return _Header(shape, fortran, dtype, offset, math.prod(shape) * dtype.itemsize)


def _read_header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype, and where the data begin."""
    stream = io.BytesIO(data)
    readers: dict[tuple[int, int], Callable[..., tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, fortran, dtype = readers[np.lib.format.read_magic(stream)](stream)
    return shape, fortran, dtype, stream.tell()
