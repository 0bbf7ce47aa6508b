"""Messages that a server keeps of a study, so that another study starts from them.

They are what agents sent, or sums of it: no observation is among them that was not in a message. A file
holds the messages of one run.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import atomic_file
from fbo_flower.storage.serialization import dumps

AnyArray = npt.NDArray[np.generic]
FOLDER = "messages"  # of a study's directory


@dataclass(frozen=True)
class WarmStart:
    """What was kept of one run.

    Parameters
    ----------
    algorithm : whose messages they are
    space : digest of the search space
    arrays : the messages
    """

    algorithm: str
    space: str
    arrays: Mapping[str, AnyArray]

    def save(self, directory: Path, label: str) -> Path:
        """Write a file into the folder `messages` of a study's directory."""
        path = directory / FOLDER / f"{re.sub(r'[^a-z0-9.]+', '-', label.lower()).strip('-.') or 'run'}.npz"
        header = json.dumps({"algorithm": self.algorithm, "space": self.space})
        content = {**self.arrays, "header": np.frombuffer(header.encode(), dtype=np.uint8)}
        with atomic_file(path) as stream:
            np.savez_compressed(stream, **content)  # type: ignore[arg-type]  # its stubs know no mappings
        return path

    @property
    def digest(self) -> str:
        """Digest of the messages; a resumed study must start from the same."""
        return hashlib.sha256(dumps(dict(sorted(self.arrays.items())), {})).hexdigest()

    def check_space(self, digest: str) -> None:
        """Raise ConfigError unless the messages are about this search space."""
        if self.space != digest:
            raise ConfigError(
                f"warm_start: expected messages about search space {digest[:12]}, got {self.space[:12]}"
            )

    @staticmethod
    def holds(path: str | Path, algorithm: str) -> bool:
        """Return whether a study's directory, or a file, has messages of an algorithm."""
        return any(_read(file).algorithm == algorithm for file in _files(Path(path)))

    @staticmethod
    def load(path: str | Path, algorithm: str) -> WarmStart:
        """Read the messages of an algorithm from a file, or from a study's directory.

        Raises
        ------
        ConfigError
            If there are none, or of several runs: then name the file.
        """
        kept_files = ((file, _read(file)) for file in _files(Path(path)))
        found = [(file, kept) for file, kept in kept_files if kept.algorithm == algorithm]
        if len(found) != 1:
            names = ", ".join(file.name for file, _ in found) or "none"
            raise ConfigError(
                f"warm_start: expected one file with messages of {algorithm} in {path}, got {names}"
            )
        return found[0][1]


def _files(path: Path) -> list[Path]:
    return sorted((path / FOLDER).glob("*.npz")) if path.is_dir() else [path]


def _read(path: Path) -> WarmStart:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        return WarmStart(str(header["algorithm"]), str(header["space"]), arrays)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"warm_start: expected a file of kept messages, got {path}: {error}") from error
