"""A checksum in every row of a journal, and the checks of a whole file.

The column `crc` holds the CRC-32 of the table's name and of all other columns, the row's id or key included.
So a changed cell, and content that moved to another row, are found when the row is read. The entry `rows` of
the table `meta` holds the number of rows of every table, so that lost rows are found when the file is
checked. These are checks against damage. They do not protect against somebody who changes the file on
purpose and computes the checksums again.

What cannot be found: if the newest commits are still in the file `-wal`, after a crash, and that file is
damaged or lost, SQLite returns to an earlier commit, which is a valid journal.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    import sqlite3

CRC = "crc"
ROWS = "rows"  # key of the numbers of rows in `meta`
META = "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) STRICT"


class Damaged(Exception):  # noqa: N818  # never leaves this package: it becomes a JournalError
    """The content of a file is not what was written; the text says what is wrong."""


class NotAJournal(Damaged):
    """The file may never have been a journal, so nobody should be told to remove it without a look."""


class Columns(NamedTuple):
    """The columns of a table without the checksum, their types, and those of the primary key."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def numbered(self) -> bool:
        """Whether the rows are numbered from 1."""
        return self.keys == ("id",)


Layout = dict[str, Columns]


@lru_cache(maxsize=16)
def layout_of(tables: str) -> Layout:
    """Return the layout of the tables that SQL statements create, and of `meta`."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(f"{META};{tables}")
        return read_layout(connection)
    finally:
        connection.close()


def read_layout(connection: sqlite3.Connection) -> Layout:
    """Return the layout of a database."""
    found: Layout = {}
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    for (name,) in names:
        columns = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        own = [column for column in columns if column[1] != CRC]
        found[name] = Columns(
            tuple(column[1] for column in own),
            tuple(column[2] for column in own),
            tuple(column[1] for column in own if column[5]),
        )
    return found


def has_checksums(connection: sqlite3.Connection, table: str = "meta") -> bool:
    """Return whether the rows of a table have checksums."""
    return any(column[1] == CRC for column in connection.execute(f'PRAGMA table_info("{table}")'))


def checksum(table: str, values: Sequence[object]) -> int:
    """Return the CRC-32 of a row, whose values must have the types that SQLite returns (see `as_stored`).

    >>> checksum("t", ("ab", "c", None)) == checksum("t", ("a", "bc", None))
    False
    """
    texts = [(len(v), crc32(v)) if isinstance(v, bytes) else v for v in values]
    return crc32(ascii(texts).encode(), crc32(table.encode()))  # `repr` depends on the version of Unicode


def as_stored(values: Sequence[object], kinds: Sequence[str]) -> tuple[object, ...]:
    """Return a row as SQLite will return it: it keeps neither the sign of a zero nor NaN."""
    return tuple(map(_stored, values, kinds))


def _stored(value: Any, kind: str) -> object:
    if kind == "TEXT" and value is not None:
        return str.__str__(value)  # an enumeration's members are texts, too
    if kind == "REAL" and value is not None:
        return None if math.isnan(value) else float(value) + 0.0
    if kind == "INTEGER":
        return int(value)
    return bytes(value) if kind == "BLOB" and value is not None else value


def verified_rows(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    where: str = "",
    arguments: Sequence[object] = (),
) -> Iterator[tuple[Any, ...]]:
    """Yield rows of a table without their checksums; Damaged if a checksum does not fit."""
    found = connection.execute(f"SELECT {', '.join(columns)}, {CRC} FROM {table} {where}", arguments)
    for *values, stored in found:
        if checksum(table, values) != stored:
            raise Damaged(f"a row of {table} has another checksum")
        yield tuple(values)


def stored_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the numbers of rows that the last commit recorded."""
    for _, text in verified_rows(connection, "meta", ("key", "value"), "WHERE key = ?", (ROWS,)):
        return {str(table): int(count) for table, count in json.loads(str(text)).items()}
    raise Damaged("the numbers of rows are missing")


def check_pages(connection: sqlite3.Connection) -> None:
    """Let SQLite check all pages and indexes of a file; Damaged if it finds something.

    `quick_check` would not compare the indexes with their tables. An index that misses a row hides this row
    from a query: an agent would not find its report and would evaluate again.
    """
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != ("ok",):
        raise Damaged(f"SQLite found: {found[0] if found else 'nothing'}")


def check_tables(connection: sqlite3.Connection, layout: Layout) -> None:
    """Check that a file has the tables of its version, with as many rows as were written.

    Also compares the checksums of the tables with a key, whose rows are looked up: damage to a key must not
    look like a missing row. Numbered rows are compared when they are read.
    """
    found = read_layout(connection)
    if found != layout or not all(has_checksums(connection, table) for table in found):
        raise Damaged("tables or columns are missing")
    counts = stored_counts(connection)
    for table, columns in found.items():
        if not columns.numbered:
            deque(verified_rows(connection, table, columns.names), maxlen=0)
        last = ", COALESCE(MAX(id), 0)" if columns.numbered else ""
        (count, *ids) = connection.execute(f"SELECT COUNT(*){last} FROM {table}").fetchone()
        if counts.get(table) != count or ids not in ([], [count]):
            raise Damaged(f"{table} has {count} rows of {counts.get(table)}")


def add_checksums(connection: sqlite3.Connection) -> None:
    """Add checksums to the tables of a new journal, and record their numbers of rows."""
    layout = read_layout(connection)
    for table in layout:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {CRC} INTEGER NOT NULL DEFAULT 0")
    put_counts(connection, dict.fromkeys(layout, 0) | {"meta": 1})


def put_counts(connection: sqlite3.Connection, counts: Mapping[str, int]) -> None:
    """Record the numbers of rows; the caller commits."""
    row = ROWS, json.dumps(dict(counts))
    connection.execute(f"INSERT OR REPLACE INTO meta (key, value, {CRC}) VALUES (?, ?, ?)",
                       (*row, checksum("meta", row)))  # fmt: skip
