"""A SQLite file that one process at a time writes, and whose commits survive a crash.

SQLite uses write-ahead logging with a full sync at each commit: after a kill or a power cut the file holds
every committed transaction and nothing of an open one. A lock file beside it keeps a second process out and
names the process that holds it. The operating system releases the lock when that process ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fbo_flower.errors import JournalError

try:
    import fcntl
except ImportError:  # Windows: only SQLite's own lock keeps two writers apart
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import sqlite3

_POLL_SECONDS = 0.05  # between two attempts to take the lock


class Store:
    """An open journal file.

    Parameters
    ----------
    path : path of the SQLite file; missing directories are created
    application : kind of journal; stored in a new file and compared in an existing one
    version : version of the tables
    tables : SQL statements that create the tables
    wait_seconds : how long to wait while another process holds the file
    upgrades : earlier version -> function that upgrades a file to the next version, in one transaction

    Raises
    ------
    JournalError
        If another process (which the message names) still holds the file after `wait_seconds`, or the file is
        not a journal of this application and version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        application: str,
        version: int,
        tables: str,
        wait_seconds: float,
        upgrades: Mapping[int, Callable[[sqlite3.Connection], None]] | None = None,
    ) -> None:
        import sqlite3  # imported here: agents without a journal do not need it

        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path, wait_seconds)
        except OSError as error:
            raise JournalError(
                f"journal: expected a file that can be written, got {self.path}: {error}"
            ) from error
        try:
            self.connection = sqlite3.connect(self.path, timeout=wait_seconds, isolation_level=None)
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
            self._check(application, version, tables, upgrades or {})
        except sqlite3.DatabaseError as error:
            self.close()
            raise JournalError(f"journal: expected a {application} file, got {self.path}: {error}") from error
        except JournalError:
            self.close()
            raise

    def meta(self, key: str) -> str | None:
        """Return the text stored with `put_meta`; None if there is none."""
        row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put_meta(self, key: str, value: str) -> None:
        """Store a short text about the whole journal under a key."""
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def transaction(self):  # type: ignore[no-untyped-def]  # a context manager that yields nothing
        """Run the block in a transaction: commit at its end, roll back if it raises."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def close(self) -> None:
        """Close the SQLite connection and release the lock; a second call does nothing."""
        connection = getattr(self, "connection", None)
        if connection is not None:
            connection.close()
        self._lock.close()

    def _check(
        self,
        application: str,
        version: int,
        tables: str,
        upgrades: Mapping[int, Callable[[sqlite3.Connection], None]],
    ) -> None:
        self.connection.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT) STRICT")
        found = self.meta("application")
        if found is None:
            with self.transaction():
                for statement in filter(str.strip, tables.split(";")):
                    self.connection.execute(statement)
                self.put_meta("application", application)
                self.put_meta("version", str(version))
            return
        known = self.meta("version")
        while found == application and known is not None and known.isdigit() and int(known) in upgrades:
            with self.transaction():
                upgrades[int(known)](self.connection)
                self.put_meta("version", str(int(known) + 1))
            known = self.meta("version")
        if found != application or known != str(version):
            raise JournalError(
                f"journal: expected {application} version {version} in {self.path}, "
                f"got {found} version {known}"
            )


def _lock(path: Path, wait_seconds: float) -> IO[str]:
    """Take the lock and return the open lock file; closing it releases the lock."""
    stream = path.with_name(path.name + ".lock").open("a+", encoding="utf-8")
    if fcntl is None:
        return stream
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                stream.seek(0)
                holder = stream.read(200).strip() or "another process"
                stream.close()
                raise JournalError(
                    f"journal: expected {path} to be free within {wait_seconds:g} s, {holder} holds it"
                ) from None
            time.sleep(_POLL_SECONDS)
    stream.truncate(0)
    stream.write(f"process {os.getpid()}")
    stream.flush()
    return stream
