"""What a kind of journal is made of, and the errors that name it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fbo_flower.errors import JournalError, WireError
from fbo_flower.storage.checksums import Damaged, NotAJournal

if TYPE_CHECKING:
    pass

_DISK = {8: "readonly", 10: "I/O error", 13: "full", 14: "cannot open"}  # SQLite's codes for a disk's faults
_NOT_A_DATABASE = 26


@dataclass(frozen=True)
class JournalKind:
    """A kind of journal.

    Parameters
    ----------
    application : name, which is stored in a new file and compared in an existing one
    version : of the tables
    tables : SQL statements that create the tables, without the checksums, which `Store` adds
    advice : what to do about a damaged file
    """

    application: str
    version: int
    tables: str
    advice: str


@contextlib.contextmanager
def journal_errors(path: Path, kind: JournalKind) -> Iterator[None]:
    """Turn every error of SQLite, and of content that does not parse, into a JournalError with advice."""
    import sqlite3  # imported here: agents without a journal do not need it

    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DISK or "disk is full" in str(error):
            raise JournalError(
                f"journal: expected a disk with room for {path}, got: {error}; free some space on it or "
                "check the disk, then start again or resume: what was committed before is kept"
            ) from error
        if code in {5, 6}:
            raise JournalError(f"journal: expected {path} to be free, another program uses it") from error
        raise _damaged(path, kind, str(error), code == _NOT_A_DATABASE) from error
    except NotAJournal as error:
        raise _damaged(path, kind, str(error), True) from error
    except (Damaged, WireError, UnicodeDecodeError, MemoryError) as error:
        raise _damaged(path, kind, str(error)) from error


@contextlib.contextmanager
def decoding(path: Path, kind: JournalKind, what: str) -> Iterator[None]:
    """Turn errors in the content of a row into a JournalError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise _damaged(path, kind, f"{what} cannot be read ({type(error).__name__})") from error


def _damaged(path: Path, kind: JournalKind, what: str, something_else: bool = False) -> JournalError:
    look = "pass the path of a journal; if this was one, " if something_else else ""
    return JournalError(
        f"journal: expected an undamaged {kind.application} in {path}, got another content: {what}; "
        f"{look}{kind.advice}"
    )
