"""A table as arrays: what a CSV file of half a million rows says, in a form that is read in a second.

Numbers stand as they are; texts as their distinct values and a code per row; a parameter of a `config` column
as a column of its own with the rows that have it. The kinds are those of the table's layout, see
`table_cells`. `to_bytes` names the CSV file that it stands for by length and CRC-32, so that one which was
edited afterwards is told apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.storage.serialization import dumps, loads
from fbo_flower.study.csv_cells import ABSENT, decode_column, encode_column, join_parameters, split_parameters
from fbo_flower.study.table import Table

VERSION = 1
Arrays = dict[str, npt.NDArray[Any]]
_PLAIN = {"integer": np.int64, "real": np.float64, "boolean": np.bool_}


def csv_mark(data: bytes) -> list[int]:
    """Return length and CRC-32 of a CSV file."""
    return [len(data), zlib.crc32(data)]


def to_bytes(table: Table, layout: Mapping[str, Any], mark: Sequence[int]) -> bytes:
    """Return a table as bytes.

    Parameters
    ----------
    layout : of its CSV file, as `Table.write_csv` returns it
    mark : of its CSV file
    """
    arrays: Arrays = {}
    values: dict[str, Any] = {}
    for number, (name, kind) in enumerate(layout.items()):
        if isinstance(kind, Mapping):
            for place, (parameter, cells) in enumerate(split_parameters(table[name].tolist(), kind)):
                _put(arrays, values, f"{number}.{place}", kind[parameter], cells)
        elif kind in _PLAIN:
            arrays[str(number)] = table[name]
        else:
            _put(arrays, values, str(number), kind, table[name].tolist())
    head = {"version": VERSION, "csv": list(mark), "rows": len(table), "layout": dict(layout)}
    return dumps(arrays, {**head, "values": values})


def from_bytes(data: bytes, layout: Mapping[str, Any], mark: Sequence[int]) -> Table | None:
    """Return the table; None unless it is what a CSV file of this layout and mark says."""
    try:
        arrays, head = loads(data)
        if (head["version"], head["csv"], head["layout"]) != (VERSION, list(mark), dict(layout)):
            return None
        columns: dict[str, Any] = {}
        rows = int(head["rows"])
        for number, (name, kind) in enumerate(layout.items()):
            if isinstance(kind, Mapping):
                cells = [
                    _take(arrays, head["values"], f"{number}.{place}", kind[parameter])
                    for place, parameter in enumerate(kind)
                ]
                columns[name] = join_parameters(list(kind), cells, rows)
            elif kind in _PLAIN:
                columns[name] = arrays[str(number)]
            else:
                columns[name] = _take(arrays, head["values"], str(number), kind)
        kinds: Any = {name: kind if isinstance(kind, str) else "config" for name, kind in layout.items()}
        table = Table(columns, kinds)
    except (FBOError, LookupError, TypeError, ValueError):  # damaged: the CSV file says the same
        return None
    return table if len(table) == rows else None


def _put(arrays: Arrays, values: dict[str, Any], key: str, kind: str, cells: Sequence[Any]) -> None:
    """Enter a column of texts or of a parameter's values, some of which may be `ABSENT`."""
    absent = np.fromiter((cell is ABSENT for cell in cells), dtype=np.bool_, count=len(cells))
    if absent.any():
        arrays[f"{key}.absent"] = absent
        cells = [cell for cell in cells if cell is not ABSENT]
    if kind in _PLAIN and not (kind == "integer" and any(not -(2**63) <= cell < 2**63 for cell in cells)):
        arrays[key] = np.array(cells, dtype=_PLAIN[kind])
        return
    texts = encode_column(key, kind, list(cells))[1][0] if kind != "text" else cells
    codes: dict[str, int] = {}
    coded = np.fromiter((codes.setdefault(t, len(codes)) for t in texts), dtype=np.uint32, count=len(texts))
    arrays[f"{key}.code"] = coded.astype(np.min_scalar_type(max(len(codes) - 1, 0)))
    values[key] = list(codes)


def _take(arrays: Arrays, values: Mapping[str, Any], key: str, kind: str) -> list[Any]:
    if key in values:
        distinct = np.empty(len(values[key]), dtype=object)
        distinct[:] = decode_column(key, kind, iter([values[key]]), len(distinct))
        cells: list[Any] = distinct[arrays[f"{key}.code"]].tolist() if len(distinct) else []
    else:
        if arrays[key].dtype != _PLAIN[kind]:
            raise ConfigError(f"{key}: expected {kind} values, got {arrays[key].dtype}")
        cells = arrays[key].tolist()
    absent = arrays.get(f"{key}.absent")
    if absent is None:
        return cells
    present = iter(cells)
    return [ABSENT if gone else next(present) for gone in absent.tolist()]
