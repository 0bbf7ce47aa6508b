"""Paths that people type, names that become file names, and texts that people have edited.

Every path that a user gives goes through `path_of`, every name that becomes a part of a path through
`file_name`, and every text file that an editor may have saved through `open_text` or `read_text`.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fbo_flower.errors import ConfigError, kind_of

_LONGEST = 100  # characters of a name that stays as it is
_READABLE, _DIGITS = 40, 16  # characters of other names: readable ones, and those of the hash
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]*(?<!\.)")
_HASHED = re.compile(rf".*-[0-9a-f]{{{_DIGITS}}}")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")  # of Windows, with every ending
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def path_of(path: object, name: str = "path") -> Path:
    """Return a path that a user gave, with `~` expanded.

    Parameters
    ----------
    path : a text or `os.PathLike`
    name : of the setting, for the error

    Raises
    ------
    ConfigError
        If it is not a path.

    Examples
    --------
    >>> path_of("runs/~first").as_posix()
    'runs/~first'
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise ConfigError(f"{name}: expected the path of a file or directory, got {kind_of(path)}")
    if "\0" in text:
        raise ConfigError(f"{name}: expected a path without NUL characters, got {text[:80]!r}")
    return Path(os.path.expanduser(text))  # unlike Path's, it leaves unknown users alone


def file_name(name: str) -> str:
    """Return the name of a file or directory for any text, a different one for each text.

    A short name of lower-case ASCII letters, digits, dots, hyphens and underscores stays as it is. Another
    one becomes what is readable of it and a hash. So it works on disks that limit the length, do not tell
    case or Unicode forms apart, or reserve names for devices.

    Examples
    --------
    >>> file_name("north-2"), file_name("Nürnberg/2"), file_name("医院")
    ('north-2', 'Nurnberg-2-1e73b2d39fff5e44', 'name-1f6835c0d878fa0e')
    """
    taken = _HASHED.fullmatch(name) or _DEVICE.fullmatch(name)
    if _PLAIN.fullmatch(name) and len(name) <= _LONGEST and not taken:
        return name
    ascii_only = unicodedata.normalize("NFKD", name[:1000]).encode("ascii", "ignore").decode("ascii")
    readable = re.sub(r"[^A-Za-z0-9]+", "-", ascii_only)[:_READABLE].strip("-") or "name"
    return f"{readable}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGITS]}"


@contextmanager
def open_text(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Open a UTF-8 file for reading, also one with the mark that editors put before its text.

    Line ends stay as they are, as `csv` and `tomllib` want them. A text that was stored with lone surrogates
    is read as it was.

    Raises
    ------
    OSError
        If the file cannot be read.
    ConfigError
        If the text is not UTF-8; the message does not name the file.
    """
    with open(path, "rb") as file:
        if file.peek(2)[:2] in _UTF_16:
            raise ConfigError("expected a text in UTF-8, got UTF-16; save the file with the encoding UTF-8")
        try:
            yield io.TextIOWrapper(file, "utf-8-sig", "surrogatepass", newline="")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ConfigError(
                f"expected a text in UTF-8, got the byte 0x{byte:02x}; save the file with the encoding UTF-8"
            ) from error


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file as `open_text` reads it; ConfigError also if it holds NUL characters."""
    with open_text(path) as file:
        text = file.read()
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ConfigError(f"expected a text, got a NUL character in line {line}; save the file as UTF-8")
    return text
