"""Build Flower's records from values that are known to be valid, without Flower's check of every entry.

Flower checks the type of every key and value, copies every array's description, and writes every `.npy`
header anew. Together this takes longer than an agent's other work on a message. Here a record is a copy of an
empty one with its entries put in place. Records that arrive are Flower's own; nothing here reads them.
`tests/wire/test_quick_records.py` compares each record with the one that Flower builds.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fbo_flower.algorithms.records import AnyArray

_Record = TypeVar("_Record", ArrayRecord, ConfigRecord, RecordDict)
_ENTRIES = "_data"  # where Flower's records keep their entries
_EMPTY_ARRAYS, _EMPTY_CONFIG, _EMPTY_CONTENT = ArrayRecord(), ConfigRecord(), RecordDict()
_KNOWN = all(r.__dict__.get(_ENTRIES) == {} for r in (_EMPTY_ARRAYS, _EMPTY_CONFIG, _EMPTY_CONTENT))
_ATTRIBUTES = {"dtype", "shape", "stype", "data", "_is_dirty"}  # of Flower's arrays
_KNOWN_ARRAY = set(FlowerArray(np.zeros(0)).__dict__) == _ATTRIBUTES


def flower_array(array: AnyArray) -> FlowerArray:
    """Return an array in Flower's form, with the bytes that `numpy.save` writes."""
    if not _KNOWN_ARRAY:
        return FlowerArray(array)
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    header = _npy_header(array.dtype, array.shape, fortran)
    made = object.__new__(FlowerArray)
    made.__dict__.update(
        dtype=_dtype_name(array.dtype),
        shape=array.shape,
        stype="numpy.ndarray",
        data=header + array.tobytes("F" if fortran else "C"),
        _is_dirty=True,
    )
    return made


def array_record(arrays: Mapping[str, FlowerArray]) -> ArrayRecord:
    """Return a record of arrays; several records may share an array."""
    if not _KNOWN:
        return ArrayRecord(dict(arrays))
    return _filled(_EMPTY_ARRAYS, dict(arrays))


def config_record(scalars: Mapping[str, Any]) -> ConfigRecord:
    """Return a record of scalars: bool, int, float, str or bytes."""
    if not _KNOWN:
        return ConfigRecord(dict(scalars))
    return _filled(_EMPTY_CONFIG, dict(scalars))


def record_with(entries: dict[str, Any]) -> ConfigRecord:
    """Return a record of scalars that holds these entries themselves, not a copy."""
    if not _KNOWN:
        return ConfigRecord(dict(entries.items()))
    return _filled(_EMPTY_CONFIG, entries)


def entries_of(record: ConfigRecord) -> object:
    """Return what a record keeps its entries in; None if Flower keeps them elsewhere."""
    return record.__dict__.get(_ENTRIES)


def content(records: Mapping[str, ArrayRecord | ConfigRecord]) -> RecordDict:
    """Return records as the content of a message."""
    if not _KNOWN:
        return RecordDict(dict(records))
    return _filled(_EMPTY_CONTENT, dict(records))


def put(content: RecordDict, name: str, record: ConfigRecord) -> None:
    """Store a record under a name that is a text."""
    entries = content.__dict__.get(_ENTRIES)
    if isinstance(entries, dict):
        entries[name] = record
    else:
        content[name] = record


def _filled(empty: _Record, entries: dict[str, Any]) -> _Record:
    """Return a copy of an empty record with these entries."""
    made = object.__new__(type(empty))
    made.__dict__.update(empty.__dict__)
    made.__dict__[_ENTRIES] = entries
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
