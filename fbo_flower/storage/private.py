"""Files and directories that only their owner can read."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_WARNED: set[Path] = set()


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents for their owner only; one that exists stays as it is."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read and write; FileExistsError if it exists."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def warn_if_others_can_read(path: Path) -> None:
    """Log a warning, once per process, if every user of the machine can read or write a file.

    The mode of an existing file stays: its owner may have chosen it. A group may have access.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o007 and path not in _WARNED:
        _WARNED.add(path)
        logging.getLogger("flwr").warning(
            "journal: expected a file that other users cannot read, got %s with mode %o; run `chmod 600 %s`",
            path, mode, path,
        )  # fmt: skip
