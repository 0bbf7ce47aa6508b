"""Text cells for the columns of a table, and back, without loss.

A layout says how a CSV file spells its columns: column -> kind, or for a `config` column parameter -> kind.
A `config` column becomes one CSV column `<column>.<parameter>` per parameter, in sorted order; an empty cell
is an absent parameter. Parameters have kinds as well: `integer`, `real`, `boolean` or `text` if all their
values are of that type, else `json` (each cell is a JSON scalar, so that `1` and `"1"`, `""` and absent stay
apart).
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from fbo_flower.errors import ConfigError

Layout = dict[str, Any]  # column -> kind, or for a config column: parameter -> kind
COLUMN_KINDS = ("text", "integer", "real", "boolean", "config")


class _Absent:
    """A parameter that a configuration does not have; `None` is a value."""


ABSENT: Any = _Absent()


def write_rows(file: IO[str], rows: Iterable[Iterable[str]]) -> None:
    """Write rows of cells as CSV lines that end in a newline."""
    csv.writer(_UnixLines(file)).writerows(rows)  # its own lineterminator="\n" leaves a bare "\r" unquoted


class _UnixLines:
    """A file in which rows end in a newline although the CSV writer ends them in two characters."""

    def __init__(self, file: IO[str]) -> None:
        self._write = file.write

    def write(self, row: str) -> int:
        return self._write(row[:-2] + "\n")


def header_of(layout: Mapping[str, Any]) -> list[str]:
    """CSV columns of a layout, which may come from a file that anybody wrote."""
    header = []
    for name, kind in layout.items():
        if isinstance(kind, Mapping):
            header += [f"{name}.{parameter}" for parameter in kind]
        elif isinstance(kind, str) and kind in _READERS and kind != "json":
            header.append(name)
        else:
            raise ConfigError(
                f"column {name!r}: expected a kind among {', '.join(COLUMN_KINDS)}, got {kind!r}"
            )
    return header


def encode_column(
    name: str, kind: str, values: list[Any]
) -> tuple[str | dict[str, str], list[Sequence[str]]]:
    """Return the layout of a column and its cells, one sequence per CSV column."""
    if kind == "config":
        return _encode_configs(name, values)
    if kind == "real":
        return kind, [["" if math.isnan(value) else repr(value) for value in values]]
    return kind, [list(map(_WRITERS[kind], values))]


def decode_column(name: str, kind: Any, cells: Iterator[Sequence[str]], num_rows: int) -> list[Any]:
    """Return the values of a column, which takes its CSV columns from `cells`.

    Parameters
    ----------
    kind : of the column; for a config column parameter -> kind
    cells : CSV columns from the first of this column on, each of length `num_rows`

    Raises
    ------
    ConfigError
        If a cell is not of its kind, or there is no such kind; the message names the column.
    """
    if isinstance(kind, str):
        return _decode(name, kind, next(cells))
    parameters = [_decode(f"{name}.{p}", k, next(cells), True) for p, k in kind.items()]
    return join_parameters(list(kind), parameters, num_rows)


def _encode_configs(column: str, configs: list[dict[str, Any]]) -> tuple[dict[str, str], list[Sequence[str]]]:
    names = set().union(*configs)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"column {column!r}: expected parameter names that are text, got {names}")
    layout: dict[str, str] = {}
    cells: list[Sequence[str]] = []
    for name, values in split_parameters(configs, sorted(names)):
        types = set(map(type, values)) - {_Absent}
        if not types <= set(_SCALARS):
            found = ", ".join(sorted(type_.__name__ for type_ in types - set(_SCALARS)))
            raise ConfigError(f"parameter {name!r}: expected int, float, bool, str or None, got {found}")
        kind = _SCALARS[types.pop()] if len(types) == 1 else "json"
        if kind == "text" and "" in values:
            kind = "json"
        write = _WRITERS[kind]
        layout[name] = kind
        cells.append(["" if value is ABSENT else write(value) for value in values])
    return layout, cells


def split_parameters(
    configs: Sequence[Mapping[str, Any]], names: Iterable[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Return each parameter's values, `ABSENT` where a configuration does not have it."""
    for name in names:
        values = [config.get(name, ABSENT) for config in configs]
        if any(issubclass(type_, np.generic) for type_ in set(map(type, values))):
            values = [value.item() if isinstance(value, np.generic) else value for value in values]
        yield name, values


def join_parameters(names: list[str], parameters: list[list[Any]], num_rows: int) -> list[dict[str, Any]]:
    """Undo `split_parameters`."""
    if not names:
        return [{} for _ in range(num_rows)]
    if not any(ABSENT in values for values in parameters):
        return [dict(zip(names, row, strict=True)) for row in zip(*parameters, strict=True)]
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not ABSENT}
        for row in zip(*parameters, strict=True)
    ]


def _decode(name: str, kind: Any, cells: Sequence[str], may_be_absent: bool = False) -> list[Any]:
    if not isinstance(kind, str) or kind not in _READERS:
        raise ConfigError(f"column {name!r}: expected a kind among {', '.join(_READERS)}, got {kind!r}")
    read = _READERS[kind]
    try:
        if may_be_absent:
            return [read(cell) if cell else ABSENT for cell in cells]
        if kind == "real":
            return [float(cell) if cell else math.nan for cell in cells]
        return list(map(read, cells))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"column {name!r}: expected {kind} cells ({error})") from error


def _read_boolean(cell: str) -> bool:
    if cell not in {"true", "false"}:
        raise ValueError(f"neither true nor false: {cell!r}")
    return cell == "true"


def _read_json(cell: str) -> Any:
    value = json.loads(cell)
    if type(value) not in _SCALARS:
        raise ValueError(f"not a JSON scalar: {cell!r}")
    return value


_SCALARS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "real",
    str: "text",
    type(None): "json",
}
_WRITERS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "integer": str,
    "real": repr,
    "boolean": lambda value: "true" if value else "false",
    "json": json.JSONEncoder(ensure_ascii=False).encode,
}
_READERS: dict[str, Callable[[str], Any]] = {
    "text": sys.intern,  # few distinct values, many rows
    "integer": int,
    "real": float,
    "boolean": _read_boolean,
    "json": _read_json,
}
