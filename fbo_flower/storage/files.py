"""Writing files safely: whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from fbo_flower.errors import ConfigError


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, text: bool = False) -> Iterator[IO[Any]]:
    """Open a file that takes the place of `path` when all is written, and leaves it alone otherwise.

    Raises
    ------
    ConfigError
        If the file cannot be written; the message names it.
    """
    path = Path(path)
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = (
            {"encoding": "utf-8", "errors": "surrogatepass", "newline": ""} if text else {}
        )
        with open(temporary, "x" if text else "xb", **options) as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):  # replaced by now, or never made
            temporary.unlink()


def writable_directory(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a directory that exists and can be written; ConfigError before anything is run."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"out: expected a directory that can be written, got {directory} ({error.strerror})"
        ) from error
    return directory
