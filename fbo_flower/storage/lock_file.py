"""Lock a file for one process, and make a directory's entries last."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import IO

from fbo_flower.errors import JournalError

try:
    import fcntl
except ImportError:  # Windows: only SQLite's own lock keeps two writers apart
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.05  # between two attempts to take the lock


def sync_directory(path: Path) -> None:
    """Write a directory's entries to the disk, where the system can."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def lock(path: Path, wait_seconds: float) -> IO[str]:
    """Take the lock and return the open lock file; closing it releases the lock."""
    name = path.with_name(path.name + ".lock")
    stream = os.fdopen(
        os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+", encoding="utf-8", errors="replace"
    )
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
