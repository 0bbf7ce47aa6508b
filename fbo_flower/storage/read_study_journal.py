"""Read a server's journal while the server writes it, without holding it up.

The file is opened read-only for each look, and each look reads one committed state: SQLite's write-ahead
mode lets the server commit meanwhile. No lock of ours is taken, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fbo_flower.errors import JournalError
from fbo_flower.storage.checksums import check_pages, check_tables, layout_of, verified_rows
from fbo_flower.storage.journal_kind import decoding, journal_errors
from fbo_flower.storage.serialization import loads
from fbo_flower.storage.store import identify
from fbo_flower.storage.study_journal import KIND, Event

if TYPE_CHECKING:
    import sqlite3

_COLUMNS = ("id", "kind", "round", "phase", "agent", "data")


class StudyJournalReader:
    """Reads the events of a server's journal, again and again.

    Parameters
    ----------
    path : path of the SQLite file
    check : whether SQLite checks all pages at the first look; every row that is read is checked anyway

    Raises
    ------
    JournalError
        If the file does not exist, is damaged, or is not a server's journal.
    """

    def __init__(self, path: Path, *, check: bool = False) -> None:
        self.path = path
        self._last = 0  # id of the last event that was read
        with self._opened() as (connection, version):
            if check:
                check_pages(connection)
                if version == KIND.version:
                    check_tables(connection, layout_of(KIND.tables))

    def settings(self) -> dict[str, Any]:
        """Return the settings of the study; empty if it has not begun."""
        import json

        with self._opened() as (connection, _):
            for _, text in verified_rows(connection, "meta", ("key", "value"), "WHERE key = 'settings'", ()):
                return dict(json.loads(str(text)))
        return {}

    def new_events(self) -> Iterator[Event]:
        """Yield the events that were committed since the last call."""
        with self._opened() as (connection, _):
            for number, kind, server_round, phase, agent, data in verified_rows(
                connection, "events", _COLUMNS, "WHERE id > ? ORDER BY id", (self._last,)
            ):
                arrays, values = loads(cast(bytes, data))
                self._last = cast(int, number)
                yield Event(str(kind), cast(int, server_round), str(phase), str(agent), arrays, dict(values))

    @contextmanager
    def _opened(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        import sqlite3

        if not self.path.is_file():
            raise JournalError(f"journal: expected the file of a server's journal, got {self.path}")
        with journal_errors(self.path, KIND), decoding(self.path, KIND, "an event"):
            uri = f"{self.path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
                connection.execute("BEGIN")  # one state of the file, also if the server commits meanwhile
                application, version = identify(connection)
                if (application, version) != (KIND.application, KIND.version):
                    raise JournalError(
                        f"journal: expected a {KIND.application} of version {KIND.version}, got {self.path} "
                        f"of {application} version {version}; pass the path of a server's journal"
                    )
                yield connection, version
