"""Files on disk: atomic, private and locked ones, and files of arrays.

A file is written atomically: a reader sees the old file or the whole new one. Another user of the directory
may have put a link in its place. A file that is replaced never follows it, and one that is opened to be
changed is refused, see `open_own`.

`dumps` converts arrays and JSON values to bytes for journals: the length of the header (32 bits, little
endian), the header as JSON (names, dtypes and shapes of the arrays, and the values), then the arrays one
after the other. No pickle is involved. `task_key` is the checksum of a task in this form.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import secrets
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.records import AnyArray, Task
from fbo_flower.errors import ConfigError, JournalError, WireError
from fbo_flower.storage.paths import path_of

try:
    import fcntl
except ImportError:  # Windows: only SQLite's own lock keeps two writers apart
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.05  # between two attempts to take the lock
_WARNED: set[Path] = set()


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
    path = path_of(path)
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        if private:
            make_private_directory(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = (
            {"encoding": "utf-8", "errors": "surrogatepass", "newline": ""} if text else {}
        )
        opener = partial(os.open, mode=0o600 if private else 0o666)
        with open(temporary, "x" if text else "xb", opener=opener, **options) as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):  # already renamed, or never created
            temporary.unlink()


def read_arrays(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an `.npz` file by name; ConfigError if the file cannot be read or is damaged."""
    try:
        if kind := special_kind(path := path_of(path).resolve()):
            raise ValueError(f"it is {kind}")
        with np.load(path, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError,
            MemoryError, EOFError, SyntaxError, zipfile.BadZipFile, zlib.error) as error:  # fmt: skip
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{path}: expected an undamaged .npz file, got {reason}; restore a copy of it or write it again"
        ) from error


def writable_directory(path: str | os.PathLike[str], *, private: bool = False, name: str = "out") -> Path:
    """Create a directory if needed and return it; ConfigError if it cannot be written.

    Parameters
    ----------
    private : give directories that are created to their owner only (mode 0700); False: the umask decides
    name : of the setting, for the error
    """
    directory = path_of(path, name)
    try:
        if private:
            make_private_directory(directory)
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".{secrets.token_hex(8)}.tmp"
        probe.touch(0o600, exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"{name}: expected a directory that can be written, got {directory} ({error.strerror})"
        ) from error
    return directory


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents for their owner only; one that exists stays as it is."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


_KINDS = {
    stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe",
}  # fmt: skip


def special_kind(path: Path) -> str:
    """Return what stands at a path, such as "a symbolic link"; "" for a regular file, or nothing."""
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return ""  # whoever opens it learns the reason
    return "" if kind == stat.S_IFREG else _KINDS.get(kind, "a device or a socket")


def check_own(path: Path) -> None:
    """Raise JournalError if a file that is to be changed is a link, a pipe or the like."""
    if kind := special_kind(path):
        raise JournalError(
            f"journal: expected a regular file, got {kind} at {path}; pass the path of the file itself, or "
            "remove what is there: another user may have put it there"
        )


def open_own(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a file that is to be locked or appended to, and return its descriptor: an opener for `open`.

    Parameters
    ----------
    flags, mode : as in `os.open`

    Raises
    ------
    JournalError
        If it is a link (also a hard link), a pipe or the like, which another user may have put there.
    OSError
        If it cannot be opened.
    """
    check_own(Path(path))
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags | safely, mode)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise JournalError(
        f"journal: expected a regular file with one name, got another at {path}, which may be somebody "
        "else's; remove it"
    )


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
    stream = open(name, "a+", encoding="utf-8", errors="replace", opener=open_own)  # noqa: SIM115  # held
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


_to_json = json.JSONEncoder(separators=(",", ":")).encode


def dumps(arrays: Mapping[str, AnyArray], values: Mapping[str, object]) -> bytes:
    """Return arrays and JSON values as bytes; `loads` reads them back bit for bit."""
    index, parts = [], []
    for name, array in arrays.items():
        part = np.asarray(array)
        index.append([name, part.dtype.str, part.shape])
        parts.append(part.tobytes())  # in C order
    header = _to_json({"arrays": index, "values": dict(values)}).encode()
    return b"".join([struct.pack("<I", len(header)), header, *parts])


def task_key(task: Task) -> str:
    """Return the SHA-256 of a task's content without its round: a repeated task has the same key."""
    values: dict[str, object] = {
        "phase": str(task.phase),
        "trial": task.trial,
        "num_trials": task.num_trials,
        "values": dict(sorted(task.values.items())),
    }
    return hashlib.sha256(dumps(dict(sorted(task.arrays.items())), values)).hexdigest()


def loads(data: bytes) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the arrays and values that `dumps` encoded; WireError if the bytes are damaged."""
    try:
        (length,) = struct.unpack_from("<I", data)
        header = json.loads(data[4 : 4 + length])
        arrays: dict[str, AnyArray] = {}
        position = 4 + length
        for name, dtype, shape in header["arrays"]:
            if dtype[1] not in "fiub" or not {*map(type, shape)} <= {int} or min(shape, default=0) < 0:
                raise ValueError(f"{name}: {dtype} {shape}")
            flat = np.frombuffer(data, dtype=np.dtype(dtype), count=math.prod(shape), offset=position)
            arrays[name] = flat.reshape(shape)
            position += flat.nbytes
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes too many")
        return arrays, header["values"]
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, struct.error) as error:
        raise WireError(f"stored state: expected what dumps() wrote, got {len(data)} bytes") from error
