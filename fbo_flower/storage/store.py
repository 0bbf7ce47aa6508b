"""A SQLite file that one process at a time writes, that others may read, and whose commits survive a crash.

SQLite uses write-ahead logging with a full sync at each commit: after a kill or a power cut the file holds
every committed transaction and nothing of an open one. A lock file beside it keeps a second writer out and
names the process that holds it. A reader takes no lock of ours, writes nothing and sees one committed state.
The file is made under another name and renamed when it is complete, so an empty file has lost its content.

The column `crc` of every row holds the CRC-32 of the table's name and of all other columns, the row's id or
key included. So a changed cell, and content that moved to another row, are found when the row is read. The
entry `rows` of the table `meta` holds the number of rows of every table. SQLite checks all pages, and we
compare these numbers, when a process opens a file for the first time, or after somebody else has changed it.
These are checks against damage, not against somebody who computes the checksums again. One damage cannot be
found: if the newest commits are still in the file `-wal`, after a crash, and that file is damaged or lost,
SQLite returns to an earlier commit, which is a valid journal.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

from fbo_flower.errors import JournalError, WireError
from fbo_flower.storage import files
from fbo_flower.storage.paths import path_of

if TYPE_CHECKING:
    import sqlite3  # imported late: agents without a journal do not need it

_NUMBERED = "id INTEGER PRIMARY KEY"  # begins the columns of a table whose rows are numbered from 1
_META = {"meta": "key TEXT PRIMARY KEY, value TEXT NOT NULL"}
_ROWS = "rows"  # key of the numbers of rows in `meta`
_DISK = {8: "readonly", 10: "I/O error", 13: "full", 14: "cannot open"}  # SQLite's codes for a disk's faults
_IN_USE, _NOT_A_DATABASE = {5, 6}, 26
_ENDINGS = ("", "-wal", "-shm", "-journal")  # of the names of the files that SQLite opens
_TO_SQL: dict[str, Callable[[Any], object]] = {  # what SQLite will return: it keeps no sign of a zero
    "TEXT": str.__str__,  # an enumeration's members are texts, too
    "REAL": lambda value: None if math.isnan(value) else float(value) + 0.0,
    "INTEGER": int,
    "BLOB": bytes,
}
_checked: dict[Path, tuple[int, ...]] = {}  # file -> its identity when this process closed it


class Damaged(Exception):  # noqa: N818  # never leaves this package: it becomes a JournalError
    """The content of a file is not what was written; the text says what is wrong."""


class NotAJournal(Damaged):
    """The file may never have been a journal, so nobody should be told to remove it without a look."""


@dataclass(frozen=True)
class JournalKind:
    """A kind of journal.

    Parameters
    ----------
    application : name, which is stored in a new file and compared in an existing one
    version : of the tables
    tables : table -> its columns in SQL, without `crc`
    advice : what to do about a damaged file
    """

    application: str
    version: int
    tables: Mapping[str, str]
    advice: str

    @property
    def schema(self) -> dict[str, str]:
        """The SQL statement that creates each table."""
        return {
            table: f"CREATE TABLE {table} (crc INTEGER NOT NULL, {columns}) STRICT"
            for table, columns in (_META | dict(self.tables)).items()
        }


class StoredRows:
    """The rows of a journal, with the errors that name it.

    Parameters
    ----------
    path : path of the SQLite file
    kind : the kind of journal that the file must be
    """

    connection: sqlite3.Connection

    def __init__(self, path: Path, kind: JournalKind) -> None:
        self.path, self.kind = path, kind

    def meta(self, key: str) -> str | None:
        """Return a text about the whole journal; None if there is none."""
        row = self.row("meta", "WHERE key = ?", (key,))
        return None if row is None else str(row["value"])

    def row(self, table: str, where: str, arguments: Sequence[object]) -> sqlite3.Row | None:
        """Return the first row that `select` yields; None if there is none."""
        return next(self.select(table, where, arguments), None)

    def select(self, table: str, where: str = "", arguments: Sequence[object] = ()) -> Iterator[sqlite3.Row]:
        """Yield the rows of a table after comparing their checksums; a value is `row[column]`.

        Parameters
        ----------
        where : SQL text behind the table's name

        Raises
        ------
        JournalError
            If a row is damaged.
        """
        with self.errors():
            for row in self.connection.execute(f"SELECT * FROM {table} {where}", arguments):
                if checksum(table, row[1:]) != row[0]:
                    raise Damaged(f"a row of {table} has another checksum")
                yield row

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn every error of SQLite, and of content that does not parse, into a JournalError with advice."""
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DISK or "disk is full" in str(error):
                raise JournalError(
                    f"journal: expected a disk with room for {self.path}, got: {error}; free some space on "
                    "it or check the disk, then start again or resume: what was committed before is kept"
                ) from error
            if code in _IN_USE:
                raise JournalError(
                    f"journal: expected {self.path} to be free, another program uses it"
                ) from error
            raise self._damaged(str(error), code == _NOT_A_DATABASE) from error
        except (Damaged, WireError, UnicodeDecodeError, MemoryError) as error:
            raise self._damaged(str(error), isinstance(error, NotAJournal)) from error

    def _damaged(self, what: str, something_else: bool) -> JournalError:
        look = "pass the path of a journal; if this was one, " if something_else else ""
        return JournalError(
            f"journal: expected an undamaged {self.kind.application} in {self.path}, got another content: "
            f"{what}; {look}{self.kind.advice}"
        )

    def identify(self) -> None:
        """Check that the file is a journal of this kind and version."""
        if not self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            raise NotAJournal("the database has no table `meta`")
        texts = dict(
            self.connection.execute("SELECT key, value FROM meta WHERE key IN ('application', 'version')")
        )
        version = str(texts.get("version"))
        if "application" not in texts or not re.fullmatch("[0-9]{1,6}", version):
            raise NotAJournal("the kind or the version of the journal is missing")
        if (texts["application"], int(version)) != (self.kind.application, self.kind.version):
            raise JournalError(
                f"journal: expected {self.kind.application} version {self.kind.version} in {self.path}, "
                f"got {texts['application']} version {version}; pass the path of another file, or use the "
                "version of fbo-flower that wrote it"
            )

    def check(self) -> dict[str, int]:
        """Check all pages, the tables and the numbers of rows; return the number of rows of every table.

        `quick_check` would not compare the indexes with their tables. An index that misses a row hides this
        row from a query: an agent would not find its report and would evaluate again. The checksums of the
        tables with a key, whose rows are looked up, are compared too: damage to a key must not look like a
        missing row. Numbered rows are compared when they are read.
        """
        found = self.connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found is None or found[0] != "ok":
            raise Damaged(f"SQLite found: {found[0] if found else 'nothing'}")
        statements = self.connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        if dict(statements) != self.kind.schema:
            raise Damaged("tables or columns are missing")
        counts = self.stored_counts()
        for table, statement in self.kind.schema.items():
            if _NUMBERED in statement:
                numbers = self.connection.execute(f"SELECT COUNT(*), COALESCE(MAX(id), 0) FROM {table}")
                count, last = numbers.fetchone()
            else:
                count = last = sum(1 for _ in self.select(table))
            if not counts.get(table) == count == last:
                raise Damaged(f"{table} has {count} rows of {counts.get(table)}")
        return counts

    def stored_counts(self) -> dict[str, int]:
        """Return the numbers of rows that the last commit recorded."""
        text = self.meta(_ROWS)
        if text is None:
            raise Damaged("the numbers of rows are missing")
        return dict(json.loads(text))


@contextmanager
def opened(path: Path, kind: JournalKind, *, check: bool = True) -> Iterator[StoredRows]:
    """Open a journal read-only, also while a process writes it; the block reads one committed state.

    Parameters
    ----------
    check : check the whole file; every row that is read is checked anyway

    Raises
    ------
    JournalError
        If the file does not exist, is damaged, or is not a journal of this kind and version.
    """
    path = path_of(path, "journal")
    if not path.is_file():
        raise JournalError(
            f"journal: expected the file of an existing {kind.application}, got {path}; pass the path of one"
        )
    file = StoredRows(path, kind)
    with file.errors(), closing(_connect(f"{path.resolve().as_uri()}?mode=ro")) as file.connection:
        file.connection.execute("BEGIN")
        file.identify()
        if check:
            file.check()
        try:
            yield file
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise Damaged(f"its content cannot be read ({type(error).__name__})") from error


class Store(StoredRows):
    """An open journal that this process writes.

    Parameters
    ----------
    path : path of the SQLite file; missing directories are created
    kind : the kind of journal that the file must be
    wait_seconds : how long to wait while another process holds the file

    Raises
    ------
    JournalError
        If another process (which the message names) still holds the file after `wait_seconds`, or the file is
        damaged or not a journal of this kind and version. The message says what to do.
    """

    def __init__(self, path: str | os.PathLike[str], kind: JournalKind, wait_seconds: float) -> None:
        super().__init__(path_of(path, "journal"), kind)
        self._wait_seconds = wait_seconds
        self._counts: dict[str, int] = {}
        with self._writing():
            for ending in _ENDINGS:
                files.check_own(Path(f"{self.path}{ending}"))
            files.make_private_directory(self.path.parent)
            self._lock = files.lock(self.path, wait_seconds)
        try:
            with self._writing(), self.errors():
                self._open()
        except BaseException:
            Store.close(self)
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn the errors of the file system into a JournalError that names the file."""
        try:
            yield
        except JournalError:
            raise
        except OSError as error:
            raise JournalError(
                f"journal: expected a file that can be written, got {self.path}: {error}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the SQLite connection and release the lock; a second call does nothing."""
        try:
            if hasattr(self, "connection"):
                self.connection.close()
            if self._counts:  # it was opened without an error
                with suppress(OSError):
                    _checked[self.path.resolve()] = _identity(self.path)
                self._counts = {}
        finally:
            self._lock.close()

    # -- rows ----------------------------------------------------------------------------------

    def put_meta(self, key: str, value: str) -> None:
        """Store a short text about the whole journal under a key; call it inside a transaction."""
        self.put("meta", (key, value))

    def insert(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Append rows to a table whose first column is `id`, which they do not hold; inside a transaction."""
        numbered = [(number, *row) for number, row in enumerate(rows, start=self._counts[table] + 1)]
        self._write("INSERT", table, numbered)
        self._counts[table] += len(numbered)

    def put(self, table: str, row: Sequence[object]) -> None:
        """Write a row, in place of the one with the same primary key, if any; inside a transaction."""
        if self._write("INSERT OR IGNORE", table, [row]):
            self._counts[table] += 1
        else:
            self._write("REPLACE", table, [row])

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return self._counts[table]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction: commit at its end, roll back if it raises.

        JournalError if the file cannot be written, for instance because the disk is full. What was committed
        before is still there.
        """
        before = dict(self._counts)
        with self.errors():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                if self._counts != before:
                    self._write("REPLACE", "meta", [(_ROWS, json.dumps(self._counts))])
                self.connection.execute("COMMIT")
            except BaseException:
                self._counts = before
                with suppress(self.connection.Error):  # SQLite has rolled back already
                    self.connection.execute("ROLLBACK")
                raise

    def _write(self, how: str, table: str, rows: Iterable[Sequence[object]]) -> int:
        """Write rows with their checksums; return how many were written."""
        kinds = [column["type"] for column in self.connection.execute(f"PRAGMA table_info({table})")][1:]
        as_stored = [
            [None if v is None else _TO_SQL[kind](v) for v, kind in zip(row, kinds, strict=True)]
            for row in rows
        ]
        statement = f"{how} INTO {table} VALUES (?{', ?' * len(kinds)})"
        found = self.connection.executemany(statement, ((checksum(table, row), *row) for row in as_stored))
        return found.rowcount

    # -- opening -------------------------------------------------------------------------------

    def _open(self) -> None:
        if not self.path.exists():
            self._create(self.path.resolve())
        elif self.path.stat().st_size == 0:
            raise Damaged("the file is empty")
        files.warn_if_others_can_read(self.path)
        self.connection = _connect(self.path, self._wait_seconds)
        self.identify()
        known = _checked.get(self.path.resolve()) == _identity(self.path)
        self._counts = self.stored_counts() if known else self.check()
        self._configure()

    def _create(self, path: Path) -> None:
        """Make a new journal under another name, and rename it when it is complete."""
        new = path.with_name(path.name + ".new")
        for name in (new.name, f"{new.name}-wal", f"{new.name}-shm", f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)  # of a process that died, or of a removed journal
        new.touch(0o600, exist_ok=False)  # only its owner can read and write it
        self.connection = _connect(new, self._wait_seconds)
        self._configure()
        with self.transaction():
            for statement in self.kind.schema.values():
                self.connection.execute(statement)
            self._counts = dict.fromkeys(self.kind.schema, 0) | {"meta": 1}  # the numbers of rows
            self.put_meta("application", self.kind.application)
            self.put_meta("version", str(self.kind.version))
        self.connection.close()
        os.replace(new, path)
        files.sync_directory(path.parent)

    def _configure(self) -> None:
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")


def _connect(path: str | Path, wait_seconds: float = 5.0) -> sqlite3.Connection:
    import sqlite3

    uri = isinstance(path, str)
    connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, uri=uri)
    connection.row_factory = sqlite3.Row
    return connection


def checksum(table: str, values: Sequence[object]) -> int:
    """Return the CRC-32 of a row, whose values must have the types that SQLite returns.

    >>> checksum("t", ("ab", "c", None)) == checksum("t", ("a", "bc", None))
    False
    """
    texts = [(len(v), crc32(v)) if isinstance(v, bytes) else v for v in values]
    return crc32(ascii(texts).encode(), crc32(table.encode()))  # `repr` depends on the version of Unicode


def _identity(path: Path) -> tuple[int, ...]:
    """Return what changes if somebody else writes a file: inode, size, time, and bytes in its `-wal`."""
    found, wal = path.stat(), path.with_name(path.name + "-wal")
    pending = wal.stat().st_size if wal.exists() else 0
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, pending
