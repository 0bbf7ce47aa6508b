"""Tables of columns of equal length, with an exact CSV form.

CSV files do not record types, but an agent may be called "007", and a categorical parameter may take the
values `1`, `"1"`, `True` and `None`. So a `Table` stores the kind of each column. `Table.write_csv` returns
the kinds and `Table.read_csv` needs them to restore the table exactly.

Kinds of columns: `text` (str, object dtype), `integer` (int64), `real` (float64; NaN is an empty cell),
`boolean`, and `config` (one dict of parameter values per row, object dtype). `csv_cells` defines how each
kind is written. `Table.to_pandas` copies a table into a pandas DataFrame; for trials with one column per
parameter there is `Study.to_dataframe`.
"""

from __future__ import annotations

import csv
import importlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import atomic_file
from fbo_flower.study.csv_cells import (
    COLUMN_KINDS,
    Layout,
    Values,
    decode_column,
    encode_column,
    header_of,
    read_columns,
    write_rows,
)

Kind = Literal["text", "integer", "real", "boolean", "config"]
Column = npt.NDArray[Any]

_TYPES: dict[str, Any] = {
    "text": str,
    "integer": int | np.integer,
    "real": float | int | np.floating | np.integer | None,
    "boolean": bool | np.bool_,
    "config": Mapping,
}
_DTYPES: dict[str, Any] = {"integer": np.int64, "real": np.float64, "boolean": np.bool_}


class Table:
    """Immutable columns of equal length; `table["value"]` is a read-only 1-D array.

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
        return cls({name: np.concatenate([table[name] for table in tables]) for name in kinds}, kinds)

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
        try:
            return self._columns[name]
        except KeyError:
            raise ConfigError(f"table: no column {name!r}; there are {', '.join(self._columns)}") from None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dicts of Python values."""
        lists = [column.tolist() for column in self._columns.values()]
        return (dict(zip(self._columns, row, strict=True)) for row in zip(*lists, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal by value, too large to hash

    def __eq__(self, other: object) -> bool:
        """Compare columns, kinds and cells: `1`, `1.0` and `True` differ in a config, NaN equals NaN."""
        if not isinstance(other, Table):
            return NotImplemented
        if self is other:
            return True
        if self._kinds != other._kinds or self.columns != other.columns or len(self) != len(other):
            return False
        return self._encoded() == other._encoded()

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self._columns)})"

    def take(self, rows: Column) -> Table:
        """Return the rows that a boolean mask or an index array selects."""
        return Table({name: column[rows] for name, column in self._columns.items()}, self._kinds)

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
        pandas = require_pandas("to_pandas")
        return pandas.DataFrame({name: column.copy() for name, column in self._columns.items()})

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
            write_rows(file, itertools.chain([header], zip(*cells, strict=True)))
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
            with open(path, encoding="utf-8", errors="surrogatepass", newline="") as file:
                return cls._read(file, layout)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, OverflowError, csv.Error) as error:  # ConfigError is a ValueError
            raise ConfigError(f"{path}: {error}") from error
        finally:
            csv.field_size_limit(limit)

    @classmethod
    def _read(cls, file: IO[str], layout: Mapping[str, Any] | None) -> Table:
        header = next(csv.reader(file, strict=True), None)
        if layout is None:
            layout = dict.fromkeys(header or [], "text")
        expected = header_of(layout)
        if header != expected:
            raise ConfigError(f"expected the header {expected}, got {header}")
        kinds: dict[str, Any] = {
            name: kind if isinstance(kind, str) else "config" for name, kind in layout.items()
        }
        kinds.update({name: "text" for name, kind in kinds.items() if kind == "guarded"})
        blocks: dict[str, list[Values]] = {name: [] for name in layout}
        for columns in read_columns(file, len(expected)):
            cells, num_rows = iter(columns), len(columns[0]) if columns else 0
            for name, kind in layout.items():
                blocks[name].append(decode_column(name, kind, cells, num_rows))
        return cls({name: _joined(values) for name, values in blocks.items()}, kinds)

    def _encoded(self) -> tuple[Layout, list[str], list[Sequence[str]]]:
        """Return the layout, the CSV header and the cells, one sequence per CSV column."""
        layout: Layout = {}
        cells: list[Sequence[str]] = []
        for name, column in self._columns.items():
            layout[name], encoded = encode_column(name, self._kinds[name], column.tolist())
            cells += encoded
        return layout, header_of(layout), cells


def _column(name: str, values: npt.ArrayLike | Sequence[Any], kind: Kind | None) -> tuple[Kind, Column]:
    array = values if isinstance(values, np.ndarray) else _as_array(values)
    if kind in _DTYPES and array.dtype == _DTYPES[kind] and array.ndim == 1:
        column = array.copy() if array.flags.writeable else array  # nothing to check
        column.flags.writeable = False
        return kind, column
    if array.ndim != 1:
        raise ConfigError(f"column {name!r}: expected 1 dimension, got shape {array.shape}")
    types = set(
        map(type, array.tolist())
    )  # tolist turns NumPy scalars into Python's, except in object arrays
    kind = kind or _kind_of(types)
    if kind not in COLUMN_KINDS:
        raise ConfigError(f"column {name!r}: expected a kind among {', '.join(COLUMN_KINDS)}, got {kind!r}")
    if not all(
        issubclass(type_, _TYPES[kind]) and (type_ is not bool or kind == "boolean") for type_ in types
    ):
        found = ", ".join(sorted(type_.__name__ for type_ in types))
        raise ConfigError(f"column {name!r}: expected {kind} values, got {found}")
    if kind == "text":
        column = _objects(array.tolist() if types <= {str} else list(map(str, array.tolist())))
    elif kind == "config":
        column = _objects(array.tolist() if types <= {dict} else list(map(dict, array.tolist())))
    else:
        if kind == "integer" and len(array) and not -(2**63) <= int(array.min()) <= int(array.max()) < 2**63:
            raise ConfigError(
                f"column {name!r}: expected integers of 64 bits, got {array.min()} to {array.max()}"
            )
        column = array.astype(_DTYPES[kind])  # None -> NaN
    column.flags.writeable = False
    return kind, column


def _joined(blocks: Sequence[Values]) -> Column | list[Any]:
    if blocks and isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks)
    return list(itertools.chain.from_iterable(blocks))


def _as_array(values: Any) -> Column:
    values = list(values)
    types = set(map(type, values))
    if len(types) == 1 and issubclass(types.pop(), float | np.number | np.bool_):
        return np.asarray(values)
    return _objects(values)


def _objects(values: list[Any]) -> Column:
    return np.fromiter(values, dtype=object, count=len(values))


def _kind_of(types: set[type]) -> Kind:
    """Return the first kind, from narrow to wide, that accepts all these types; text if none does."""
    for kind in ("boolean", "integer", "real", "config"):
        if types and all(issubclass(type_, _TYPES[kind]) for type_ in types):
            return kind
    return "text"


def require_pandas(caller: str) -> Any:  # the module, which has no types of its own
    """Return the module pandas.

    Raises
    ------
    ConfigError
        If pandas is not installed; the message says what to install.
    """
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise ConfigError(
            f"{caller}: pandas is not installed; run pip install 'fbo-flower[pandas]'"
        ) from error
