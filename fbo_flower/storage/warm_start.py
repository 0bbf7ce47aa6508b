"""Export the messages of a study, so that a later study can start from them (warm start).

A file holds the messages of one run: what agents sent, or sums of it. It contains no data that was not in a
message.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import atomic_file, dumps, read_arrays
from fbo_flower.storage.paths import file_name, path_of

FOLDER = "messages"  # folder in a study's directory


@dataclass(frozen=True)
class WarmStart:
    """The exported messages of one run.

    Parameters
    ----------
    algorithm : name of the algorithm that produced them
    space : digest of the search space; "": not known, because Flower's arrays do not hold it
    arrays : the messages by name
    """

    algorithm: str
    space: str
    arrays: Mapping[str, AnyArray]

    def save(self, directory: Path, label: str) -> Path:
        """Write the messages into the folder `messages` of a study's directory and return the file's path."""
        path = directory / FOLDER / f"{file_name(label)}.npz"
        header = json.dumps({"algorithm": self.algorithm, "space": self.space})
        content = {**self.arrays, "header": np.frombuffer(header.encode(), dtype=np.uint8)}
        with atomic_file(path, private=True) as stream:
            np.savez_compressed(stream, **content)  # type: ignore[arg-type]  # its stubs know no mappings
        return path

    @property
    def digest(self) -> str:
        """SHA-256 of the messages; a resumed study must start from messages with the same digest."""
        return hashlib.sha256(dumps(dict(sorted(self.arrays.items())), {})).hexdigest()

    def check_space(self, digest: str) -> None:
        """Raise ConfigError if the messages belong to another search space than `digest`."""
        if self.space not in ("", digest):
            raise ConfigError(
                f"warm_start: expected messages about search space {digest[:12]}, got {self.space[:12]}"
            )

    @staticmethod
    def holds(path: str | os.PathLike[str], algorithm: str) -> bool:
        """Return whether a study's directory, or a file, holds messages of an algorithm."""
        return any(_read(file).algorithm == algorithm for file in _files(path_of(path, "warm_start")))

    @staticmethod
    def load(path: str | os.PathLike[str], algorithm: str) -> WarmStart:
        """Return the messages of an algorithm in a file or in a study's directory.

        ConfigError if there are none, or the directory has several such files; then pass the path of one
        file.
        """
        exports = ((file, _read(file)) for file in _files(path_of(path, "warm_start")))
        found = [(file, messages) for file, messages in exports if messages.algorithm == algorithm]
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
        arrays = read_arrays(path)
        header = json.loads(arrays.pop("header").tobytes())
        return WarmStart(str(header["algorithm"]), str(header["space"]), arrays)
    except (ValueError, LookupError, TypeError, RecursionError) as error:  # ConfigError is a ValueError
        raise ConfigError(
            f"warm_start: expected a file of exported messages, got {path}: {error}; restore a copy, or "
            "start without warm_start"
        ) from error
