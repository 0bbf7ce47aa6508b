"""A SQLite file that one process at a time writes, and that survives the death of that process.

Write-ahead logging with a full sync at each commit: what was committed is there after a kill or a power
cut, what was not is gone without a trace. A lock beside the file keeps a second process out and says who
is in; the operating system releases it when its holder dies.
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
except ImportError:  # not on Windows; SQLite's own lock then keeps two writers apart, without a name
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import sqlite3

_LOOK = 0.05  # seconds between two tries


class Store:
    """An open journal file.

    Parameters
    ----------
    path : of the SQLite file; directories are made
    application : name of the kind of journal, written into the file and compared
    version : of the tables
    tables : SQL that creates them
    wait_seconds : how long to wait for another process to be done with the file
    upgrades : earlier version -> what brings a file of it to the next, in one commit with its number

    Raises
    ------
    JournalError
        If another process holds it after that time (it is named), or the file is not such a journal.
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
        import sqlite3  # a device without a journal has no use for it

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
        """Return a text that `put_meta` kept."""
        row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put_meta(self, key: str, value: str) -> None:
        """Keep a short text about the whole journal."""
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def transaction(self):  # type: ignore[no-untyped-def]  # a context manager of nothing
        """Commit all of it, or nothing when an error passes."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file; the second call does nothing."""
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
    """Return the open lock file, held until it is closed."""
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
            time.sleep(_LOOK)
    stream.truncate(0)
    stream.write(f"process {os.getpid()}")
    stream.flush()
    return stream
