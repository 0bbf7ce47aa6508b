"""Write files atomically (a reader sees the old file or the whole new one), and read files of arrays."""

from __future__ import annotations

import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.storage.private import create_private_file, make_private_directory


@contextmanager
def atomic_file(
    path: str | os.PathLike[str], *, text: bool = False, private: bool = False
) -> Iterator[IO[Any]]:
    """Open a temporary file that replaces `path` when the block ends; on an error `path` stays unchanged.

    Parameters
    ----------
    path : the file; missing directories are created
    text : open it for UTF-8 text; False: for bytes
    private : give the file, and directories that are created for it, to their owner only (modes 0600 and
        0700); False: the umask decides

    Raises
    ------
    ConfigError
        If the file cannot be written; the message names it.
    """
    path = Path(path)
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        if private:
            make_private_directory(path.parent)
            create_private_file(temporary)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = (
            {"encoding": "utf-8", "errors": "surrogatepass", "newline": ""} if text else {}
        )
        mode = ("w" if private else "x") + ("" if text else "b")
        with open(temporary, mode, **options) as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):  # already renamed, or never created
            temporary.unlink()


def read_arrays(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an `.npz` file by name.

    Raises
    ------
    ConfigError
        If the file cannot be read or is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError,
            MemoryError, EOFError, SyntaxError, zipfile.BadZipFile, zlib.error) as error:  # fmt: skip
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{path}: expected an undamaged .npz file, got {reason}; restore a copy of it or write it again"
        ) from error


def writable_directory(path: str | os.PathLike[str], *, private: bool = False) -> Path:
    """Create a directory if needed and return it; ConfigError if it cannot be written.

    Parameters
    ----------
    private : give directories that are created to their owner only (mode 0700); False: the umask decides
    """
    directory = Path(path)
    try:
        if private:
            make_private_directory(directory)
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"out: expected a directory that can be written, got {directory} ({error.strerror})"
        ) from error
    return directory
