"""Models and strategies' states on disk, in files named after their content.

A checkpoint is one `.npz` file of numeric arrays, and its name is the SHA-256 of what is in it. So an equal
state is stored once, a file is never changed, and one that was damaged or exchanged is found out. A file is
complete and on the disk before the journal names it. `collect` removes the files that nothing names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.storage.files import make_private_directory, read_arrays, sync_directory

AnyArray = npt.NDArray[np.generic]
Content = tuple[dict[str, AnyArray], dict[str, Any]]  # arrays by name, and a JSON value that names them
_FORM = "form"  # entry of the JSON value; names of arrays begin with "a:"
_NAME = re.compile(r"([0-9a-f]{64})\.npz")


class Checkpoints:
    """A store of checkpoints.

    Parameters
    ----------
    directory : created with the first checkpoint; None: checkpoints are kept in memory
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._memory: dict[str, Content] = {}

    def put(self, arrays: Mapping[str, AnyArray], form: Mapping[str, Any]) -> str:
        """Store a checkpoint and return its digest."""
        content = {name: np.array(array, order="C") for name, array in arrays.items()}, dict(form)
        digest = digest_of(*content)
        if self._directory is None:
            self._memory[digest] = content
        elif not self._path(digest).exists():
            self._write(self._path(digest), *content)
        return digest

    def get(self, digest: str) -> Content:
        """Return a checkpoint.

        Raises
        ------
        JournalError
            If it is missing, damaged, or not what was stored.
        """
        if self._directory is None:
            return self._memory[digest]
        path = self._path(digest)
        try:
            found = read_arrays(path)
            form = json.loads(found.pop(_FORM).tobytes())
        except (ConfigError, LookupError, ValueError, RecursionError) as error:
            raise JournalError(f"checkpoint: expected an undamaged file {path}, got {error}") from error
        arrays = {name.removeprefix("a:"): array for name, array in found.items()}
        if digest_of(arrays, form) != digest:
            raise JournalError(
                f"checkpoint: expected the content that {path} was written with, got another; restore a copy"
            )
        return arrays, form

    def collect(self, named: Collection[str]) -> None:
        """Remove every checkpoint but those named."""
        for digest in self._memory.keys() - set(named):
            del self._memory[digest]
        if self._directory is None or not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if (match and match[1] not in named) or path.name.endswith(".tmp"):
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{digest}.npz"

    def _write(self, path: Path, arrays: Mapping[str, AnyArray], form: Mapping[str, Any]) -> None:
        text = np.frombuffer(json.dumps(form, sort_keys=True).encode(), dtype=np.uint8)
        temporary = path.with_suffix(".tmp")
        try:
            make_private_directory(path.parent)
            with open(temporary, "wb") as file:
                entries: dict[str, Any] = {_FORM: text, **{f"a:{name}": a for name, a in arrays.items()}}
                np.savez(file, **entries)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_directory(path.parent)
        except OSError as error:
            raise JournalError(f"checkpoint: {path} cannot be written ({error.strerror or error})") from error


def digest_of(arrays: Mapping[str, AnyArray], form: Mapping[str, Any]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and bytes of arrays, and of the JSON value."""
    digest = hashlib.sha256(json.dumps(form, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
