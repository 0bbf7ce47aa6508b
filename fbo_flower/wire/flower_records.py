"""Convert arrays and scalars to the records of a Flower message, and back.

A message's content has two records: `arrays` holds every array under its name; `config` holds the scalars,
and its entry `names` lists the arrays. An empty text is not sent; the entry `empty` names it.

An incoming array is read from its `.npy` bytes only after its header has been checked against their number;
nothing is unpickled. `codec.py` checks what arrays and scalars mean.

Flower checks the type of every key and value of a new record and writes every `.npy` header anew, which takes
longer than an agent's other work on a message. Records made here are filled directly, and headers are kept.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fbo_flower.algorithms.records import AnyArray, Scalar
from fbo_flower.errors import WireError
from fbo_flower.wire.checks import MAX_ENTRIES, show
from fbo_flower.wire.codec import Packed

MAX_BYTES = 64 * 2**20  # bytes of all arrays of one message together
MAX_ARRAYS = 32
MAX_AXES = 8
NAMES = "names"  # scalar that holds the arrays' names, joined by commas
EMPTY = "empty"  # scalar that holds the names of the texts that are empty, joined by commas
_SCALARS = (bool, int, float, str)
_KINDS = "fiub"  # of NumPy's dtypes
_SHORT_HEADER = 256  # headers of at most this many bytes are kept
_Header = tuple[tuple[int, ...], bool, np.dtype[Any]]  # shape, Fortran order, dtype
_Record = TypeVar("_Record", ArrayRecord, ConfigRecord, RecordDict)


def to_records(packed: Packed, seen: dict[int, FlowerArray] | None = None) -> RecordDict:
    """Return a Flower message's content: record `arrays` with every array under its name, and `config`.

    Parameters
    ----------
    seen : id of an array -> its encoded form; filled here. Messages of one half-round share arrays, which are
        then encoded once. It must not outlive the arrays, because Python reuses ids
    """
    arrays, config = packed
    seen = {} if seen is None else seen
    encoded = {}
    for name, array in arrays.items():
        if id(array) not in seen:
            seen[id(array)] = flower_array(array)
        encoded[name] = seen[id(array)]
    scalars = record_of(ConfigRecord, _without_empty(arrays, config))
    return record_of(RecordDict, {"arrays": record_of(ArrayRecord, encoded), "config": scalars})


def _without_empty(arrays: Mapping[str, AnyArray], config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return scalars and the names of arrays, which a list of arrays needs, without empty texts.

    Flower's mods cannot count an empty text.
    """
    scalars, empty = dict(config), []
    for name, value in config.items():
        if value == "":
            empty.append(name)
            del scalars[name]
    scalars |= {NAMES: ",".join(arrays)} if arrays else {}
    return scalars | ({EMPTY: ",".join(empty)} if empty else {})


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
        found = show(sorted(content)) if len(content) <= MAX_ENTRIES else f"{len(content)} records"
        raise WireError(f"content: expected only records 'arrays' and 'config', got {found}", "content")
    for what, number, most in (("arrays", len(record), MAX_ARRAYS), ("config", len(config), MAX_ENTRIES)):
        if number > most:
            raise WireError(f"{what}: expected at most {most} entries, got {number}", "size")
    encoded = dict(record.items())  # without `items`, Flower's records are read entry by entry
    size = 0
    for array in encoded.values():
        size += len(array.data)
    if size > MAX_BYTES:
        raise WireError(f"arrays: expected at most {MAX_BYTES} bytes together, got {size}", "size")
    scalars = dict(config.items())
    for value in scalars.values():
        if not isinstance(value, _SCALARS):
            raise WireError("config: expected only numbers and texts, got another type", "content")
    names, empty = scalars.pop(NAMES, ""), scalars.pop(EMPTY, None)
    if isinstance(empty, str):
        scalars |= dict.fromkeys(empty.split(",", MAX_ENTRIES), "")
    if ",".join(encoded) != names:
        raise WireError(f"names: expected {show(','.join(encoded))}, got {show(names)}", NAMES)
    seen, arrays = {} if seen is None else seen, {}
    for name, array in encoded.items():
        if id(array) not in seen:
            seen[id(array)] = array, _decode_array(name, array)
        arrays[name] = seen[id(array)][1]
    return Packed(arrays, cast(dict[str, Scalar], scalars))


def to_lists(packed: Packed) -> tuple[list[AnyArray], dict[str, Scalar]]:
    """Return a message as the list of arrays and the scalars that `NumPyClient` takes."""
    arrays, config = packed
    return list(arrays.values()), _without_empty(arrays, config)


def from_lists(arrays: Sequence[AnyArray], config: Mapping[str, Scalar]) -> Packed:
    """Return a message with its arrays by name; WireError if names and arrays differ in number."""
    if len(config) > MAX_ENTRIES:
        raise WireError(f"config: expected at most {MAX_ENTRIES} entries, got {len(config)}", "size")
    scalars = dict(config)
    text, empty = scalars.pop(NAMES, ""), scalars.pop(EMPTY, None)
    names = text.split(",") if isinstance(text, str) and text else []
    if not isinstance(text, str) or len(names) != len(arrays) or len(set(names)) != len(names):
        raise WireError(f"names: expected {len(arrays)} different names, got {show(text)}", NAMES)
    if isinstance(empty, str):
        scalars |= dict.fromkeys(empty.split(",", MAX_ENTRIES), "")
    return Packed(dict(zip(names, arrays, strict=True)), scalars)


def count_bytes(content: RecordDict) -> int:
    """Return the number of bytes of arrays and scalars in a message, names included.

    Flower's own count fails on an empty text and counts characters instead of bytes.
    """
    total, texts = 0, list[str]()
    for record in content.values():
        if isinstance(record, ArrayRecord):
            total += record.count_bytes()
        elif isinstance(record, ConfigRecord):
            entries = [*record.keys(), *record.values()]
            for entry in entries:
                if isinstance(entry, str):
                    texts.append(entry)
                elif isinstance(entry, list):
                    entries += entry
                else:
                    total += len(entry) if isinstance(entry, bytes) else 1 if isinstance(entry, bool) else 8
    return total + len("".join(texts).encode("utf-8", "surrogatepass"))


def record_of(kind: type[_Record], entries: dict[str, Any]) -> _Record:
    """Return a record of Flower's that holds these valid entries themselves, not a checked copy."""
    if not can_be_filled(kind):
        return kind(cast(Any, dict(entries.items())))
    record = kind()
    record.__dict__["_data"] = entries
    return record


@cache
def can_be_filled(kind: type[Any]) -> bool:
    """Return whether a record keeps its entries in a dict `_data`, so that the entries can be set at once.

    An array keeps them as its attributes. Flower does not promise this; if another version does otherwise,
    records are made and checked entry by entry.
    """
    if kind is FlowerArray:
        return set(vars(FlowerArray("", (), "", b""))) == {"dtype", "shape", "stype", "data", "_is_dirty"}
    value = 1 if kind is ConfigRecord else FlowerArray(np.zeros(1)) if kind is ArrayRecord else ConfigRecord()
    made, filled = kind({"a": value}), kind()
    if made.__dict__.get("_data") != {"a": value} or filled.__dict__.get("_data") != {}:
        return False
    filled.__dict__["_data"] = {"a": value}
    return made == filled and made.object_id == filled.object_id and filled["a"] is value


def flower_array(array: AnyArray) -> FlowerArray:
    """Return an array in Flower's form, with the bytes that `numpy.save` writes."""
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    data = _npy_header(array.dtype, array.shape, fortran) + array.tobytes("F" if fortran else "C")
    name, stype = _dtype_name(array.dtype), "numpy.ndarray"
    if not can_be_filled(FlowerArray):
        return FlowerArray(name, array.shape, stype, data)
    made = FlowerArray.__new__(FlowerArray)
    made.__dict__.update(dtype=name, shape=array.shape, stype=stype, data=data)
    return made


@lru_cache(maxsize=64)  # NumPy puts the name together anew each time
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


@lru_cache(maxsize=256)
def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> bytes:
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return buffer.getvalue()


def _decode_array(name: str, array: FlowerArray) -> AnyArray:
    """Read one array in NumPy's `.npy` format; its header must state exactly the size of its data."""
    data = array.data
    offset = 10 + int.from_bytes(data[8:10], "little")  # of the numbers, in version 1 of the format
    read = _read_short_header if offset <= _SHORT_HEADER else _read_header
    try:
        shape, fortran, dtype = read(data[:offset])
    except Exception as error:  # NumPy raises several kinds on malformed headers
        raise WireError(f"{name[:80]}: expected an array in npy format", "encoding") from error
    for length in shape:
        if len(shape) > MAX_AXES or type(length) is not int or not 0 <= length <= MAX_BYTES:
            raise WireError(
                f"{name[:80]}: expected an array of at most {MAX_AXES} axes, got {show(shape)}", "shape"
            )
    if array.stype != "numpy.ndarray" or dtype.kind not in _KINDS:
        raise WireError(f"{name[:80]}: expected plain numbers, got {dtype}", "dtype")
    size = math.prod(shape) * dtype.itemsize  # Python integers: cannot overflow
    if size != len(data) - offset:
        raise WireError(f"{name[:80]}: expected {size} bytes for shape {show(shape)}", "size")
    flat = np.frombuffer(data, dtype=dtype, offset=offset)
    return cast(AnyArray, flat.reshape(shape, order="F" if fortran else "C"))


def _read_header(header: bytes) -> _Header:
    stream = io.BytesIO(header)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("another version")
    return np.lib.format.read_array_header_1_0(stream)


# messages have few different headers, and NumPy takes longer to parse a header than to read the numbers
_read_short_header = lru_cache(maxsize=256)(_read_header)
