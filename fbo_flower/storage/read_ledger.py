"""Read the ledger of an agent's journal, also while the agent uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fbo_flower.errors import JournalError
from fbo_flower.storage.agent_journal import KIND
from fbo_flower.storage.checksums import check_pages, check_tables, layout_of, verified_rows
from fbo_flower.storage.journal_kind import decoding, journal_errors
from fbo_flower.storage.ledger import COLUMNS, Ledger, LedgerEntry
from fbo_flower.storage.store import identify

if TYPE_CHECKING:
    import sqlite3


def read_ledger(path: Path) -> Ledger:
    """Return the ledger of an agent's journal; opens it read-only, also while the agent uses it.

    Raises
    ------
    JournalError
        If the file does not exist, is damaged, or is not an agent's journal.
    """
    with opened(path, "the ledger") as (connection, version):
        return _read(connection, version)


@contextmanager
def opened(path: Path, what: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open an agent's journal read-only and check it; yields the connection and the journal's version.

    Parameters
    ----------
    what : what is read, for the errors
    """
    import sqlite3  # imported here: agents without a journal do not need it

    if not path.is_file():
        raise JournalError(
            f"journal: expected the file of an agent's journal, got {path}; pass the path of one"
        )
    with journal_errors(path, KIND), decoding(path, KIND, what):
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
        with closing(connection), _snapshot(connection):
            yield connection, _checked_version(path, connection)


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read one state of the file, also if the agent commits meanwhile."""
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


def _checked_version(path: Path, connection: sqlite3.Connection) -> int:
    application, version = identify(connection)
    if (application, version) != (KIND.application, KIND.version):
        raise JournalError(
            f"journal: expected an agent's of version {KIND.version}, got {path} of {application} version "
            f"{version}; pass the path of an agent's journal"
        )
    check_pages(connection)
    check_tables(connection, layout_of(KIND.tables))
    return version


def read_meta(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the texts in a journal, by key."""
    return {str(key): str(value) for key, value in verified_rows(connection, "meta", ("key", "value"))}


def _read(connection: sqlite3.Connection, version: int) -> Ledger:
    meta = read_meta(connection)
    said = dict(json.loads(meta.get("note.roll-call", "{}")))
    names = tuple(str(name) for name in said.get("names", ()))
    disclosure = str(said.get("disclosure", ""))
    rows = []
    for row in verified_rows(connection, "sent", ("id", *COLUMNS), "ORDER BY id"):
        entry = LedgerEntry(*row[1:-1], *(bool(value) for value in row[-1:]))
        assert entry.num_numbers >= 0  # raises ValueError if the shape is damaged
        rows.append(entry)
    return Ledger(meta["agent"], rows, names, disclosure)
