"""A SQLite file that one process at a time writes, and whose commits survive a crash.

SQLite uses write-ahead logging with a full sync at each commit: after a kill or a power cut the file holds
every committed transaction and nothing of an open one. A lock file beside it keeps a second process out and
names the process that holds it. The operating system releases the lock when that process ends.

The file is made under another name and renamed when it is complete, with mode 0600. So an empty file is
never a new journal, but one that has lost its content. Every row has a checksum (see `checksums`). SQLite
checks all pages when a process opens a file for the first time, or after somebody else has changed it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fbo_flower.errors import JournalError
from fbo_flower.storage.checksums import (
    CRC,
    META,
    Damaged,
    Layout,
    NotAJournal,
    add_checksums,
    as_stored,
    check_pages,
    check_tables,
    checksum,
    layout_of,
    put_counts,
    read_layout,
    stored_counts,
    verified_rows,
)
from fbo_flower.storage.journal_kind import JournalKind, journal_errors
from fbo_flower.storage.lock_file import lock, sync_directory
from fbo_flower.storage.private import create_private_file, make_private_directory, warn_if_others_can_read

if TYPE_CHECKING:
    import sqlite3

_checked: dict[Path, tuple[int, ...]] = {}  # file -> its identity when this process closed it


class Store:
    """An open journal file.

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
        self.path, self.kind = Path(path), kind
        self._wait_seconds = wait_seconds
        self._layout: Layout = {}
        self._counts: dict[str, int] = {}
        try:
            make_private_directory(self.path.parent)
            self._lock = lock(self.path, wait_seconds)
        except JournalError:
            raise
        except (OSError, ValueError) as error:
            raise JournalError(
                f"journal: expected a file that can be written, got {self.path}: {error}"
            ) from error
        try:
            with self.errors():
                self._open()
        except BaseException:
            self.close()
            raise

    # -- rows ----------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """Return the text stored with `put_meta`; None if there is none."""
        for _, text in self.select("meta", "WHERE key = ?", (key,)):
            return str(text)
        return None

    def put_meta(self, key: str, value: str) -> None:
        """Store a short text about the whole journal under a key; call it inside a transaction."""
        self.put("meta", (key, value))

    def select(
        self, table: str, where: str = "", arguments: Sequence[object] = ()
    ) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a table, with all columns in order, after comparing their checksums.

        Parameters
        ----------
        where : SQL text behind the table's name

        Raises
        ------
        JournalError
            If a row is damaged.
        """
        with self.errors():
            yield from verified_rows(self.connection, table, self._layout[table].names, where, arguments)

    def append(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Append rows to a table whose first column is `id`, which they do not hold; inside a transaction."""
        columns, kinds, _ = self._layout[table]
        first = self._counts[table] + 1
        numbered = [as_stored((number, *row), kinds) for number, row in enumerate(rows, start=first)]
        self.connection.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}, {CRC}) "
            f"VALUES ({', '.join('?' * (len(columns) + 1))})",
            [(*row, checksum(table, row)) for row in numbered],
        )
        self._counts[table] += len(numbered)

    def put(self, table: str, row: Sequence[object]) -> None:
        """Write a row, in place of the one with the same primary key, if any; inside a transaction."""
        columns, kinds, keys = self._layout[table]
        row = as_stored(row, kinds)
        same = " AND ".join(f"{key} = ?" for key in keys)
        values = [row[columns.index(key)] for key in keys]
        known = self.connection.execute(f"SELECT 1 FROM {table} WHERE {same}", values).fetchone()
        self.connection.execute(
            f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}, {CRC}) "
            f"VALUES ({', '.join('?' * (len(columns) + 1))})",
            (*row, checksum(table, row)),
        )
        self._counts[table] += known is None

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return self._counts[table]

    @contextlib.contextmanager
    def transaction(self):  # type: ignore[no-untyped-def]  # a context manager that yields nothing
        """Run the block in a transaction: commit at its end, roll back if it raises.

        Raises
        ------
        JournalError
            If the file cannot be written, for instance because the disk is full. What was committed before
            is still there.
        """
        before = dict(self._counts)
        with self.errors():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                if self._counts != before:
                    put_counts(self.connection, self._counts)
                self.connection.execute("COMMIT")
            except BaseException:
                self._counts = before
                with suppress(self.connection.Error):  # SQLite has rolled back already
                    self.connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn every error of SQLite, and of content that does not parse, into a JournalError with advice."""
        with journal_errors(self.path, self.kind):
            yield

    def close(self) -> None:
        """Close the SQLite connection and release the lock; a second call does nothing."""
        connection = getattr(self, "connection", None)
        try:
            if connection is not None:
                connection.close()
            if self._counts:  # it was opened without an error
                with suppress(OSError):
                    _checked[self.path.resolve()] = _identity(self.path)
                self._counts = {}
        finally:
            self._lock.close()

    # -- opening -------------------------------------------------------------------------------

    def _open(self) -> None:
        if not self.path.exists():
            self._create(self.path.resolve())
        elif not self.path.is_file():
            raise NotAJournal("it is not a file")
        elif self.path.stat().st_size == 0:
            raise Damaged("the file is empty")
        warn_if_others_can_read(self.path)
        self.connection = _connect(self.path, self._wait_seconds)
        found, version = identify(self.connection)
        if (found, version) != (self.kind.application, self.kind.version):
            raise JournalError(
                f"journal: expected {self.kind.application} version {self.kind.version} in {self.path}, "
                f"got {found} version {version}; pass the path of another file, or use the version of "
                "fbo-flower that wrote it"
            )
        new = _checked.get(self.path.resolve()) != _identity(self.path)
        if new:
            check_pages(self.connection)
        _configure(self.connection)
        self._layout = layout_of(self.kind.tables)
        if new:
            check_tables(self.connection, self._layout)
        self._counts = stored_counts(self.connection)

    def _create(self, path: Path) -> None:
        """Make a new journal under another name, and rename it when it is complete."""
        new = path.with_name(path.name + ".new")
        for name in (new.name, f"{new.name}-wal", f"{new.name}-shm", f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)  # of a process that died, or of a removed journal
        create_private_file(new)
        self.connection = _connect(new, self._wait_seconds)
        _configure(self.connection)
        with self.transaction():
            for statement in filter(str.strip, f"{META};{self.kind.tables}".split(";")):
                self.connection.execute(statement)
            self._finish({"application": self.kind.application, "version": str(self.kind.version)})
        self.connection.close()
        os.replace(new, path)
        sync_directory(path.parent)

    def _finish(self, texts: Mapping[str, str]) -> None:
        """Add the checksums that are missing, then write texts about the journal."""
        add_checksums(self.connection)
        self._layout, self._counts = read_layout(self.connection), stored_counts(self.connection)
        for key, text in texts.items():
            self.put_meta(key, text)


def _connect(path: Path, wait_seconds: float) -> sqlite3.Connection:
    import sqlite3

    return sqlite3.connect(path, timeout=wait_seconds, isolation_level=None)


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def identify(connection: sqlite3.Connection) -> tuple[str, int]:
    """Return the kind and the version of a journal; Damaged if it has none."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        raise NotAJournal("the database has no table `meta`")
    texts = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('application', 'version')"))
    version = str(texts.get("version"))
    if "application" not in texts or not re.fullmatch("[0-9]{1,6}", version):
        raise NotAJournal("the kind or the version of the journal is missing")
    return str(texts["application"]), int(version)


def _identity(path: Path) -> tuple[int, ...]:
    """Return what changes if somebody else writes a file: inode, size, time, and bytes in its `-wal`."""
    found, wal = path.stat(), path.with_name(path.name + "-wal")
    pending = wal.stat().st_size if wal.exists() else 0
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, pending
