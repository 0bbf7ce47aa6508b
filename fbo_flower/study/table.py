"""Tables of columns of equal length, with an exact CSV form.

CSV files do not record types, but an agent may be called "007", and a categorical parameter may take the
values `1`, `"1"`, `True` and `None`. So a `Table` stores the kind of each column. `Table.write_csv` returns
the layout, column -> kind, and `Table.read_csv` needs it to restore the table exactly.

Kinds of columns: `text` (str, object dtype), `integer` (int64), `real` (float64; NaN is an empty cell),
`boolean`, and `config` (one dict of parameter values per row, object dtype). A `config` column becomes one
CSV column `<column>.<parameter>` per parameter, in sorted order, and its entry in the layout maps each
parameter to its kind; an empty cell means that the configuration does not have the parameter. The kind of a
parameter is `integer`, `real`, `boolean` or `text` if all its values have that type. Otherwise it is `json`:
each cell is a JSON scalar, so that `1`, `"1"`, `""` and an absent value stay different.

Spreadsheet programs run a cell that begins with `=`, `+`, `-` or `@` as a formula, and terminals obey control
characters. Such a text is written with `'` before it, and with escapes in place of its control characters.
"""

from __future__ import annotations

import csv
import html
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError, printable
from fbo_flower.lazy import required
from fbo_flower.space.copies import own
from fbo_flower.storage.files import atomic_file
from fbo_flower.storage.paths import open_text, path_of

Kind = Literal["text", "integer", "real", "boolean", "config"]
Column = npt.NDArray[Any]
Layout = dict[str, Any]  # column -> kind, or for a config column: parameter -> kind
CHUNK = 50_000  # rows of a file that are held as text at a time
SHOWN_ROWS = 20  # of a table in a notebook

_TYPES: dict[str, Any] = {
    "text": str,
    "integer": int | np.integer,
    "real": float | int | np.floating | np.integer | None,
    "boolean": bool | np.bool_,
    "config": Mapping,
}
_NARROW: tuple[Kind, ...] = ("boolean", "integer", "real", "config")
_DTYPES: dict[str, Any] = {"integer": np.int64, "real": np.float64, "boolean": np.bool_}
_SCALARS: dict[type, str] = {bool: "boolean", int: "integer", float: "real", str: "text", type(None): "json"}


class Table:
    """Immutable columns of equal length; `table["value"]` is a read-only 1-D array; a config is a copy.

    Parameters
    ----------
    columns : name -> values, all of one length
    kinds : name -> kind, for columns whose values do not determine it; a column without rows is text

    Raises
    ------
    ConfigError
        If lengths differ or values are not of their column's kind.

    Examples
    --------
    >>> table = Table({"agent": ["007", "2"], "value": [0.5, None]}, {"value": "real"})
    >>> len(table), table.columns, table.where(agent="2")["value"]
    (2, ('agent', 'value'), array([nan]))
    """

    __slots__ = ("_columns", "_kinds")

    def __init__(
        self, columns: Mapping[str, npt.ArrayLike | Sequence[Any]], kinds: Mapping[str, Kind] | None = None
    ) -> None:
        kinds = kinds or {}
        self._columns: dict[str, Column] = {}
        self._kinds: dict[str, Kind] = {}
        for name, values in columns.items():
            self._kinds[name], self._columns[name] = _column(name, values, kinds.get(name))
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ConfigError(f"table: expected columns of one length, got {lengths}")

    @classmethod
    def from_rows(
        cls, rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | Mapping[str, Kind]
    ) -> Table:
        """Return the table of these rows; every dict must have exactly the keys `columns`."""
        rows = list(rows)
        names = set(columns)
        for number, row in enumerate(rows):
            if row.keys() != names:
                raise ConfigError(
                    f"table row {number}: expected the columns {sorted(names)}, got {sorted(row)}"
                )
        kinds = columns if isinstance(columns, Mapping) else None
        return cls({name: [row[name] for row in rows] for name in columns}, kinds)

    @classmethod
    def concatenate(cls, tables: Sequence[Table]) -> Table:
        """Return one table with the rows of all tables, which must have the same columns."""
        if not tables:
            raise ConfigError("concatenate: expected at least one table, got none")
        kinds = tables[0].kinds
        for table in tables:
            if table.kinds != kinds:
                raise ConfigError(f"concatenate: expected the columns {kinds}, got {table.kinds}")
        held = [table._columns for table in tables]
        return cls._made({name: np.concatenate([columns[name] for columns in held]) for name in kinds}, kinds)

    @classmethod
    def _made(cls, columns: Mapping[str, Column], kinds: Mapping[str, Kind]) -> Table:
        """Return the table of new columns that were checked, and whose configurations only tables hold."""
        table = cls.__new__(cls)
        table._columns, table._kinds = dict(columns), dict(kinds)
        for column in columns.values():
            column.flags.writeable = False
        return table

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self._columns)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Column -> `text`, `integer`, `real`, `boolean` or `config`."""
        return dict(self._kinds)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            raise ConfigError(f"table: no column {name!r}; there are {', '.join(self._columns)}")
        column = self._columns[name]
        if self._kinds[name] == "config":
            column = _objects(list(map(own, column)))
            column.flags.writeable = False
        return column.view()  # which, unlike the array itself, cannot be made writable

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dicts of Python values."""
        columns = self._columns.items()
        lists = [map(own, c) if self._kinds[name] == "config" else c.tolist() for name, c in columns]
        return (dict(zip(self._columns, row, strict=True)) for row in zip(*lists, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal by value, too large to hash

    def __eq__(self, other: object) -> bool:
        """Compare columns, kinds and cells: `1`, `1.0` and `True` differ in a config, NaN equals NaN."""
        if not isinstance(other, Table):
            return NotImplemented
        if self is other:
            return True
        if self.columns != other.columns or len(self) != len(other):  # the layout holds the kinds
            return False
        return self._encoded() == other._encoded()

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self._columns)})"

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, which notebooks show; columns without a cell are left out."""
        rows = []
        for row in self.take(np.arange(min(len(self), SHOWN_ROWS))):
            cells: dict[str, str] = {}
            for name, value in row.items():
                if isinstance(value, Mapping):
                    cells |= {f"{name}.{parameter}": _shown(one) for parameter, one in value.items()}
                else:
                    cells[name] = _shown(value)
            rows.append(cells)
        names = list(dict.fromkeys(name for row in rows for name, cell in row.items() if cell))
        lines = [_html_row("th", names), *(_html_row("td", [row.get(n, "") for n in names]) for row in rows)]
        more = f"<p>the first {SHOWN_ROWS} of {len(self)} rows</p>" if len(self) > SHOWN_ROWS else ""
        return f"<table>{''.join(lines)}</table>{more}"

    def take(self, rows: Column) -> Table:
        """Return the rows that a boolean mask or an index array selects."""
        return Table._made({name: column[rows] for name, column in self._columns.items()}, self._kinds)

    def where(self, **equals: object) -> Table:
        """Return the rows in which every named column equals the given value."""
        mask = np.ones(len(self), dtype=bool)
        for name, value in equals.items():
            mask &= np.asarray(self[name] == value, dtype=bool)
        return self.take(mask)

    def to_pandas(self) -> Any:  # a DataFrame; pandas is optional and has no types of its own
        """Return a copy of the table as a `pandas.DataFrame`, with configurations as dicts; needs pandas.

        `Study.to_dataframe` returns the trials with one column per parameter.
        """
        return required("pandas", "to_pandas").DataFrame({name: self[name].copy() for name in self._columns})

    def write_csv(self, path: str | os.PathLike[str]) -> Layout:
        """Write the table to a CSV file; if writing fails, an existing file stays unchanged.

        Returns
        -------
        The layout that `read_csv` needs to restore the table exactly: column -> kind, and for a config column
        parameter -> kind. It is plain JSON.
        """
        layout, header, cells = self._encoded()
        if not header:
            raise ConfigError(f"{path}: expected a table with columns, got none to write")
        if len(set(header)) < len(header):
            raise ConfigError(f"{path}: expected distinct CSV columns, got {header}")
        with atomic_file(path, text=True) as file:
            rows = itertools.chain([header], zip(*cells, strict=True))
            csv.writer(file, lineterminator="\n").writerows(rows)  # no cell has a bare "\r"
        return layout

    @classmethod
    def read_csv(cls, path: str | os.PathLike[str], layout: Mapping[str, Any] | None = None) -> Table:
        """Return the table in a CSV file; without a layout every column is text.

        Raises
        ------
        ConfigError
            If the file is missing or does not match the layout; the message names the file and the row.
        """
        limit = csv.field_size_limit(sys.maxsize)  # cells may hold long tracebacks; csv's limit is global
        try:
            with open_text(path_of(path)) as file:
                lines = csv.reader(file, strict=True)
                header = next(lines, None)
                layout = dict.fromkeys(header or [], "text") if layout is None else layout
                expected = _header_of(layout)
                if header != expected:
                    raise ConfigError(f"expected the header {expected}, got {header}")
                blocks: dict[str, list[Column]] = {name: [_objects([])] for name in layout}
                num_rows = 0
                while rows := list(itertools.islice(lines, CHUNK)):
                    for number, row in enumerate(rows, start=num_rows):
                        if len(row) != len(expected):
                            raise ConfigError(f"row {number}: expected {len(expected)} cells, got {len(row)}")
                    num_rows += len(rows)
                    cells = zip(*rows, strict=True)
                    for name, kind in layout.items():
                        blocks[name].append(_decoded_column(name, kind, cells, len(rows)))
                kinds: dict[str, Any] = {k: v if isinstance(v, str) else "config" for k, v in layout.items()}
                return cls({name: np.concatenate(own[1:] or own) for name, own in blocks.items()}, kinds)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, OverflowError, csv.Error) as error:  # ConfigError is a ValueError
            raise ConfigError(f"{path}: {error}") from error
        finally:
            csv.field_size_limit(limit)

    def _encoded(self) -> tuple[Layout, list[str], list[list[str]]]:
        """Return the layout, the CSV header and the cells, one list per CSV column."""
        layout: Layout = {}
        cells: list[list[str]] = []
        for name, column in self._columns.items():
            kind, values = self._kinds[name], column.tolist()
            if kind != "config":
                layout[name], write = kind, _WRITERS[kind]
                absent = np.isnan(column).tolist() if kind == "real" else itertools.repeat(False)
                cells.append(["" if no else write(value) for value, no in zip(values, absent, strict=False)])
                continue
            names, layout[name] = set().union(*values), {}
            if not all(isinstance(parameter, str) for parameter in names):
                raise ConfigError(f"column {name!r}: expected parameter names that are text, got {names}")
            for parameter in sorted(names):
                own = [config.get(parameter, _ABSENT) for config in values]
                own = [value.item() if isinstance(value, np.generic) else value for value in own]
                types = {type(value) for value in own if value is not _ABSENT}
                if not types <= set(_SCALARS):
                    found = ", ".join(sorted(type_.__name__ for type_ in types - set(_SCALARS)))
                    raise ConfigError(
                        f"parameter {parameter!r}: expected int, float, bool, str or None, got {found}"
                    )
                scalar = _SCALARS[types.pop()] if len(types) == 1 else "json"
                if scalar == "text" and "" in own:
                    scalar = "json"  # an empty cell means absent
                layout[name][parameter], write = scalar, _WRITERS[scalar]
                cells.append(["" if value is _ABSENT else write(value) for value in own])
        return layout, _header_of(layout), cells


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


def _html_row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(printable(cell))}</{tag}>' for cell in cells)}</tr>"


def _column(name: str, values: Any, kind: Kind | None) -> tuple[Kind, Column]:
    array = values if isinstance(values, np.ndarray) else _objects(list(values))
    if kind in _DTYPES and array.dtype == _DTYPES[kind] and array.ndim == 1:
        base = array if array.base is None else array.base
        if array.flags.writeable or not isinstance(base, np.ndarray) or base.flags.writeable:
            array = array.copy()
            array.flags.writeable = False
        return kind, array  # nothing to check
    if array.ndim != 1:
        raise ConfigError(f"column {name!r}: expected 1 dimension, got shape {array.shape}")
    types = set(map(type, array.tolist()))  # Python's, but in an array of objects NumPy's too
    if kind is None:  # the first one, from narrow to wide, that accepts all these types
        fitting = (k for k in _NARROW if types and all(issubclass(type_, _TYPES[k]) for type_ in types))
        kind = next(fitting, "text")
    if kind not in _TYPES:
        raise ConfigError(f"column {name!r}: expected a kind among {', '.join(_TYPES)}, got {kind!r}")
    if not all(
        issubclass(type_, _TYPES[kind]) and (type_ is not bool or kind == "boolean") for type_ in types
    ):
        found = ", ".join(sorted(type_.__name__ for type_ in types))
        raise ConfigError(f"column {name!r}: expected {kind} values, got {found}")
    if kind == "text":
        column = _objects(array.tolist() if types <= {str} else list(map(str, array.tolist())))
    elif kind == "config":
        column = _objects([own(c if type(c) is dict else dict(c)) for c in array.tolist()])
    else:
        if kind == "integer" and len(array) and not -(2**63) <= int(array.min()) <= int(array.max()) < 2**63:
            raise ConfigError(
                f"column {name!r}: expected integers of 64 bits, got {array.min()} to {array.max()}"
            )
        column = array.astype(_DTYPES[kind])  # None -> NaN
    column.flags.writeable = False
    return kind, column


def _objects(values: list[Any]) -> Column:
    return np.fromiter(values, dtype=object, count=len(values))


def _header_of(layout: Mapping[str, Any]) -> list[str]:
    """Return the CSV header of a layout; ConfigError if the layout, which may be untrusted, is invalid."""
    header = []
    for name, kind in layout.items():
        if isinstance(kind, Mapping):
            header += [guard(f"{name}.{parameter}") for parameter in kind]
        elif isinstance(kind, str) and kind in _READERS and kind != "json":
            header.append(guard(name))
        else:
            raise ConfigError(f"column {name!r}: expected a kind among {', '.join(_TYPES)}, got {kind!r}")
    return header


def _decoded_column(name: str, kind: Any, cells: Iterator[tuple[str, ...]], num_rows: int) -> Column:
    """Return one column, taking as many CSV columns from `cells` as it needs."""
    if isinstance(kind, str):
        return _decoded(name, kind, next(cells))
    parameters = [_decoded(f"{name}.{p}", k, next(cells), may_be_absent=True) for p, k in kind.items()]
    rows = zip(*parameters, strict=True) if parameters else itertools.repeat((), num_rows)
    return _objects(
        [{p: value for p, value in zip(kind, row, strict=True) if value is not _ABSENT} for row in rows]
    )


def _decoded(name: str, kind: Any, cells: Sequence[str], *, may_be_absent: bool = False) -> Column:
    """Return the values of one CSV column: numbers, or objects for all else and for parameters."""
    if not isinstance(kind, str) or kind not in _READERS:
        raise ConfigError(f"column {name!r}: expected a kind among {', '.join(_READERS)}, got {kind!r}")
    read = _READERS[kind]
    try:
        if may_be_absent:
            return _objects([read(cell) if cell else _ABSENT for cell in cells])
        if kind == "real":
            return np.array([cell or "nan" for cell in cells], dtype=object).astype(np.float64)
        values = list(map(read, cells))
        return np.array(values, dtype=np.int64) if kind == "integer" else _objects(values)
    except (ValueError, KeyError, OverflowError, RecursionError) as error:
        raise ConfigError(f"column {name!r}: expected {kind} cells ({error})") from error


def guard(text: str) -> str:
    r"""Return a text that neither spreadsheet programs nor terminals obey; `unguard` undoes it.

    >>> guard("=1+1"), guard("'quoted'"), guard("plain"), guard("C:\\new")
    ("'=1+1", "''quoted'", 'plain', 'C:\\new')
    """
    if text.isprintable() and not text.startswith(("'", "=", "+", "-", "@", "＝", "＋", "－", "＠")):
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


def printable_json(text: str) -> str:
    """Return a JSON text with control characters as escapes, but line breaks between values as they are."""
    if text.isprintable():
        return text
    # surrogates stay: escapes of two lone ones in a row would become one character
    return "".join(
        c if c.isprintable() or c == "\n" or "\ud800" <= c <= "\udfff" else json.dumps(c)[1:-1] for c in text
    )


def _read_json(cell: str) -> Any:
    value = json.loads(cell)
    if type(value) not in _SCALARS:
        raise ValueError(f"not a JSON scalar: {cell!r}")
    return value


_ABSENT: Any = object()  # a parameter that a configuration does not have; `None` is a legal value
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.?)", re.DOTALL)
_SHORT = {r"\\"[:2]: "\\", r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_JSON = json.JSONEncoder(ensure_ascii=False).encode
_WRITERS: dict[str, Callable[[Any], str]] = {
    "text": guard,
    "integer": str,
    "real": repr,
    "boolean": lambda value: "true" if value else "false",
    "json": lambda value: printable_json(_JSON(value)),
}
_READERS: dict[str, Callable[[str], Any]] = {
    "text": lambda cell: sys.intern(unguard(cell)),  # stores equal texts once: few are distinct
    "integer": int,
    "real": float,
    "boolean": {"true": True, "false": False}.__getitem__,
    "json": _read_json,
}
