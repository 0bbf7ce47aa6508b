"""Read the zip archive of a model from an untrusted sender, and write archives.

An archive in skops' format consists of `schema.json` and arrays in `npy` files. The declared sizes are
checked first, and never more than the declared size is decompressed. `skops.io` later reads a new archive
written from the checked parts, so ambiguities of the received one (a second directory, a false length) do not
reach it.
"""

from __future__ import annotations

import functools
import io
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from fbo_flower.errors import ModelError
from fbo_flower.space.checks import check_integer, check_number

AnyArray = npt.NDArray[np.generic]

SCHEMA = "schema.json"
ARRAY_NAME = re.compile(r"[0-9]{1,20}\.npy")
MAX_HEADER = 4096  # largest npy header in characters; that of a tree's nodes has 330
MAX_DIMENSIONS = 8
EPOCH = (1980, 1, 1, 0, 0, 0)  # time of every entry, so that equal models give equal bytes
ENCRYPTED = 0x1  # flag bit of an encrypted entry


def read_archive(data: bytes, limits: Limits) -> dict[str, bytes]:
    """Return the parts of an archive: name -> decompressed bytes.

    Anything but a schema and arrays within the limits raises ModelError.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_directory(entries, len(data), limits)
            parts = {}
            for entry in entries:
                with archive.open(entry) as file:
                    content = file.read(entry.file_size + 1)  # decompresses no more than it returns
                if len(content) != entry.file_size:
                    raise ModelError(
                        f"{entry.filename}: expected {entry.file_size} bytes, got {len(content)}"
                    )
                parts[entry.filename] = content
            return parts
    except ModelError:
        raise
    except Exception as error:  # zipfile's parsers raise BadZipFile, struct.error, zlib.error and others
        raise ModelError(f"archive: expected a zip archive of a model ({reason(error)})") from error


def write_archive(parts: Mapping[str, bytes], level: int) -> bytes:
    """Return a zip archive of the parts, compressed at level 1 to 9 or uncompressed at level 0."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if level else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, method, level or None)
    return buffer.getvalue()


def read_array(name: str, data: bytes) -> AnyArray:
    """Return the array in an npy file of numbers, booleans or texts; objects and pickles are refused."""
    try:
        shape, fortran, dtype, offset = _header(data[: npy.MAGIC_LEN + 4 + MAX_HEADER])
        expected = math.prod(shape) * dtype.itemsize
        if len(data) - offset != expected:
            raise ValueError(f"{len(data) - offset} bytes for {expected}")
    except Exception as error:  # the header is parsed as a Python literal, which can raise many exceptions
        raise ModelError(f"{name}: expected an array without objects ({reason(error)})") from error
    flat = np.frombuffer(data, dtype, math.prod(shape), offset)
    return flat.reshape(shape, order="F" if fortran else "C")


def reason(error: BaseException) -> str:
    """Return an exception as one short line, for an error message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__


def _check_directory(entries: Sequence[zipfile.ZipInfo], num_bytes: int, limits: Limits) -> None:
    if len(entries) > limits.max_entries:
        raise ModelError(f"archive: expected up to {limits.max_entries} entries, got {len(entries)}")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names) or SCHEMA not in names:
        raise ModelError(f"archive: expected one {SCHEMA} and different names, got {len(names)} entries")
    for entry in entries:
        if entry.filename != SCHEMA and ARRAY_NAME.fullmatch(entry.filename) is None:
            raise ModelError(f"archive: expected {SCHEMA} and arrays, got {entry.filename[:80]!r}")
        if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} or (
            entry.flag_bits & ENCRYPTED
        ):
            raise ModelError(f"archive: expected {entry.filename} stored or deflated, got another method")
    total, allowed = sum(entry.file_size for entry in entries), limits.inflated(num_bytes)
    if total > allowed:
        raise ModelError(f"archive: expected up to {allowed} bytes inflated from {num_bytes}, got {total}")


def _header(start: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order and dtype from an npy file's header, and the header's length."""
    version = npy.read_magic(io.BytesIO(start))
    if version != (1, 0):
        raise ValueError(f"npy version {version}")
    offset = npy.MAGIC_LEN + 2 + int.from_bytes(start[npy.MAGIC_LEN : npy.MAGIC_LEN + 2], "little")
    return *_parsed(start[npy.MAGIC_LEN : offset]), offset


@functools.lru_cache(maxsize=256)  # the arrays of a forest have few different headers
def _parsed(text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    shape, fortran, dtype = npy.read_array_header_1_0(io.BytesIO(text), max_header_size=MAX_HEADER)
    if len(shape) > MAX_DIMENSIONS or any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"shape {shape}")
    kinds = {dtype[field].kind for field in dtype.names} if dtype.names else {dtype.kind}
    if dtype.hasobject or not kinds <= set("biufU") or dtype.itemsize == 0:
        raise ValueError(f"dtype {dtype}")
    return shape, fortran, dtype


MIB = 2**20
FREE_RATIO = 8 * MIB  # the ratio limit applies above this size: a small schema alone compresses fifty-fold


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that a site's operator sets for models received from other sites.

    For scale: a forest of 500 trees on 600 rows takes 0.8 MB on the wire and 8 MB decompressed; one of 5000
    trees on 2000 rows takes about ten times as much.

    Parameters
    ----------
    max_bytes : largest size on the wire
    max_inflated : largest decompressed size of all parts together
    max_ratio : largest ratio of decompressed to sent size, for models above 8 MiB decompressed
    max_entries : largest number of files in the archive
    seconds : wall-clock and processor time for loading and predicting
    memory_bytes : memory for loading and predicting beyond the worker's own (on Linux; elsewhere unlimited)
    """

    max_bytes: int = 32 * MIB
    max_inflated: int = 256 * MIB
    max_ratio: float = 100.0
    max_entries: int = 30_000
    seconds: float = 60.0
    memory_bytes: int = 2048 * MIB

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_inflated", "max_entries", "memory_bytes"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), 1))
        for name in ("max_ratio", "seconds"):
            object.__setattr__(self, name, check_number(name, getattr(self, name), 1e-9, 1e300))

    def inflated(self, num_bytes: int) -> int:
        """Return the largest decompressed size allowed for an archive of `num_bytes`."""
        return min(self.max_inflated, max(FREE_RATIO, int(self.max_ratio * num_bytes)))
