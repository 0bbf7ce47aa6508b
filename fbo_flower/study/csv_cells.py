"""Convert the columns of a table to text cells of a CSV file and back, without loss.

A layout maps each column to its kind; for a `config` column it maps each parameter to its kind. A `config`
column becomes one CSV column `<column>.<parameter>` per parameter, in sorted order; an empty cell means that
the configuration does not have the parameter. The kind of a parameter is `integer`, `real`, `boolean` or
`text` if all its values have that type. Otherwise it is `json`: each cell is a JSON scalar, so that `1`,
`"1"`, `""` and an absent value stay different.

Spreadsheet programs run a cell that begins with `=`, `+`, `-` or `@` as a formula, and terminals obey control
characters. A column with such a text has the kind `guarded` in the layout: its risky texts begin with `'`,
and control characters and backslashes behind it are escapes. Other columns of texts are written as they are.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError, printable

Values = list[Any] | npt.NDArray[np.int64] | npt.NDArray[np.float64]
Layout = dict[str, Any]  # column -> kind, or for a config column: parameter -> kind
COLUMN_KINDS = ("text", "integer", "real", "boolean", "config")
CHUNK = 50_000  # rows that are held as text at a time


class _Absent:
    """Marks a parameter that a configuration does not have (`None` is a legal value)."""


ABSENT: Any = _Absent()


def write_rows(file: IO[str], rows: Iterable[Iterable[str]]) -> None:
    """Write rows of cells as CSV lines that end in a newline."""
    csv.writer(_UnixLines(file)).writerows(rows)  # its own lineterminator="\n" leaves a bare "\r" unquoted


def read_columns(file: IO[str], num_columns: int) -> Iterator[list[tuple[str, ...]]]:
    """Yield the cells of up to `CHUNK` rows at a time, one tuple per CSV column.

    Parameters
    ----------
    file : opened with `newline=""`, positioned behind the header
    num_columns : cells that every row must have

    Raises
    ------
    ConfigError
        If a row has another number of cells; the message names the row, counted from 0.
    csv.Error
        If quotes are not closed.
    """
    reader, num_rows = csv.reader(file, strict=True), 0
    while rows := list(itertools.islice(reader, CHUNK)):
        for number, row in enumerate(rows, start=num_rows):
            if len(row) != num_columns:
                raise ConfigError(f"row {number}: expected {num_columns} cells, got {len(row)}")
        yield list(zip(*rows, strict=True))
        num_rows += len(rows)


class _UnixLines:
    """A file wrapper that ends each row of the CSV writer in a newline alone, without carriage return."""

    def __init__(self, file: IO[str]) -> None:
        self._write = file.write

    def write(self, row: str) -> int:
        return self._write(row[:-2] + "\n")


def header_of(layout: Mapping[str, Any]) -> list[str]:
    """Return the CSV header of a layout; ConfigError if the layout, which may be untrusted, is invalid."""
    header = []
    for name, kind in layout.items():
        if isinstance(kind, Mapping):
            header += [guard(f"{name}.{parameter}") for parameter in kind]
        elif isinstance(kind, str) and kind in _READERS and kind != "json":
            header.append(guard(name))
        else:
            raise ConfigError(
                f"column {name!r}: expected a kind among {', '.join(COLUMN_KINDS)}, got {kind!r}"
            )
    return header


def encode_column(
    name: str, kind: str, values: list[Any]
) -> tuple[str | dict[str, str], list[Sequence[str]]]:
    """Return the layout of a column and its text cells, one sequence per CSV column."""
    if kind == "config":
        return _encode_configs(name, values)
    if kind == "real":
        return kind, [["" if math.isnan(value) else repr(value) for value in values]]
    if kind == "text" and any(map(_is_risky, set(values))):
        kind = "guarded"
    return kind, [list(map(_WRITERS[kind], values))]


def decode_column(name: str, kind: Any, cells: Iterator[Sequence[str]], num_rows: int) -> Values:
    """Return the values of one column, taking as many CSV columns from `cells` as it needs.

    Parameters
    ----------
    kind : kind of the column; for a config column a mapping from parameter to kind
    cells : the remaining CSV columns, each of length `num_rows`, beginning with this column's first

    Raises
    ------
    ConfigError
        If a cell does not parse as its kind, or the kind is unknown; the message names the column.
    """
    if isinstance(kind, str):
        return _decode(name, kind, next(cells))
    parameters = [_decode(f"{name}.{p}", k, next(cells), True) for p, k in kind.items()]
    rows = zip(*parameters, strict=True) if parameters else itertools.repeat((), num_rows)
    return [
        {parameter: value for parameter, value in zip(kind, row, strict=True) if value is not ABSENT}
        for row in rows
    ]


def _encode_configs(column: str, configs: list[dict[str, Any]]) -> tuple[dict[str, str], list[Sequence[str]]]:
    names = set().union(*configs)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"column {column!r}: expected parameter names that are text, got {names}")
    layout: dict[str, str] = {}
    cells: list[Sequence[str]] = []
    for name in sorted(names):
        values = [config.get(name, ABSENT) for config in configs]
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
        types = set(map(type, values)) - {_Absent}
        if not types <= set(_SCALARS):
            found = ", ".join(sorted(type_.__name__ for type_ in types - set(_SCALARS)))
            raise ConfigError(f"parameter {name!r}: expected int, float, bool, str or None, got {found}")
        kind = _SCALARS[types.pop()] if len(types) == 1 else "json"
        if kind == "text" and "" in values:
            kind = "json"
        elif kind == "text" and any(_is_risky(value) for value in values if value is not ABSENT):
            kind = "guarded"
        write = _WRITERS[kind]
        layout[name] = kind
        cells.append(["" if value is ABSENT else write(value) for value in values])
    return layout, cells


def _decode(name: str, kind: Any, cells: Sequence[str], may_be_absent: bool = False) -> Values:
    """Return the values of one CSV column: an array for numbers, a list for all else and for parameters."""
    if not isinstance(kind, str) or kind not in _READERS:
        raise ConfigError(f"column {name!r}: expected a kind among {', '.join(_READERS)}, got {kind!r}")
    read = _READERS[kind]
    try:
        if may_be_absent:
            if "" in cells:
                return [read(cell) if cell else ABSENT for cell in cells]
        elif kind == "integer":
            return np.fromiter(map(int, cells), dtype=np.int64, count=len(cells))
        elif kind == "real":
            numbers = [cell or "nan" for cell in cells] if "" in cells else cells
            return np.fromiter(map(float, numbers), dtype=np.float64, count=len(cells))
        return list(map(read, cells))
    except (ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"column {name!r}: expected {kind} cells ({error})") from error


def guard(text: str) -> str:
    r"""Return a text that neither spreadsheet programs nor terminals obey; `unguard` undoes it.

    >>> guard("=1+1"), guard("'quoted'"), guard("plain"), guard("C:\\new")
    ("'=1+1", "''quoted'", 'plain', 'C:\\new')
    """
    if not _is_risky(text) and not text.startswith("'"):
        return text
    return "'" + printable(text.replace("\\", "\\\\"))


def unguard(cell: str) -> str:
    """Undo `guard`; ValueError if an escape is malformed."""
    if not cell.startswith("'"):
        return cell
    return _ESCAPE.sub(_unescaped, cell[1:])


def _unescaped(match: re.Match[str]) -> str:
    escape = match.group()
    if escape in _SHORT:
        return _SHORT[escape]
    if len(escape) < 4:
        raise ValueError(f"not an escape: {escape!r}")
    return chr(int(escape[2:], 16))


def _is_risky(text: str) -> bool:
    return text.startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) or not text.isprintable()


def printable_json(text: str) -> str:
    """Return a JSON text with control characters as escapes, but line breaks between values as they are."""
    if text.isprintable():
        return text
    # surrogates stay: escapes of two lone ones in a row would become one character
    return "".join(
        c if c.isprintable() or c == "\n" or "\ud800" <= c <= "\udfff" else json.dumps(c)[1:-1] for c in text
    )


def _read_boolean(cell: str) -> bool:
    if cell not in {"true", "false"}:
        raise ValueError(f"neither true nor false: {cell!r}")
    return cell == "true"


def _read_json(cell: str) -> Any:
    value = json.loads(cell)
    if type(value) not in _SCALARS:
        raise ValueError(f"not a JSON scalar: {cell!r}")
    return value


_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.?)", re.DOTALL)
_SHORT = {r"\\"[:2]: "\\", r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_JSON = json.JSONEncoder(ensure_ascii=False).encode
_SCALARS: dict[type, str] = {bool: "boolean", int: "integer", float: "real", str: "text", type(None): "json"}
_WRITERS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "integer": str,
    "real": repr,
    "boolean": lambda value: "true" if value else "false",
    "json": lambda value: printable_json(_JSON(value)),
    "guarded": guard,
}
_READERS: dict[str, Callable[[str], Any]] = {
    "text": sys.intern,  # stores equal texts once: few distinct values in many rows
    "integer": int,
    "real": float,
    "boolean": _read_boolean,
    "json": _read_json,
    "guarded": lambda cell: sys.intern(unguard(cell)),
}
