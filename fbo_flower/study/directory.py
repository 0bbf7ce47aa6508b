"""The directory of a study: it is not overwritten unless the user asks for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import writable_directory

MARK = "study.json"  # written last, so a directory with it holds a whole study
DERIVED = (
    "report.png",
    "report.pdf",
    "report.svg",
    "report.html",
    "privacy.md",
)  # made from a study, by name
_TABLES = (
    "trials.csv", "rounds.csv", "regret.csv", "models.csv", "judgements.csv", "times.csv", "replies.csv",
    "best.json",
)  # fmt: skip
_OF_THE_RUN = ("messages", "models", "journals", "simulate.json")


def holds_study(directory: str | os.PathLike[str]) -> bool:
    """Return whether a study was saved into a directory."""
    return (Path(directory) / MARK).exists()


def study_directory(
    directory: str | os.PathLike[str], *, overwrite: bool = False, resume: bool = False
) -> Path:
    """Create the directory of a new study if needed, and return it.

    Parameters
    ----------
    overwrite : remove a study that is there, with everything that was made from it; other files stay
    resume : the study that is there is continued

    Raises
    ------
    ConfigError
        If the directory cannot be written, or holds a study that is neither overwritten nor continued.
    """
    path = writable_directory(directory)
    if resume or not holds_study(path):
        return path
    if not overwrite:
        raise ConfigError(
            f"out: expected a directory without a study, got {path}, which holds one; choose another "
            "directory, or replace the study with --overwrite (in Python overwrite=True)"
        )
    _remove(path, (MARK, *_TABLES, *DERIVED, *_OF_THE_RUN))
    return path


@contextmanager
def removed_if_empty(directory: Path) -> Iterator[None]:
    """Remove a directory at the end if the block created it, with its parents, and wrote nothing into it."""
    created = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in created:
                path.rmdir()


def remove_derived(directory: Path) -> None:
    """Remove the pictures and pages that were made from the study in a directory."""
    _remove(directory, DERIVED)


def _remove(directory: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = directory / name
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be removed ({error.strerror})") from error
