"""An experiment as a set of cells: each is computed once, kept in a file, and found again after a stop.

A cell is a named function call that returns named arrays. Cells run in worker processes with one
BLAS thread each; a directory that holds cells of other settings is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.storage.files import atomic_file, writable_directory

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Job:
    """One unit of work.

    Parameters
    ----------
    name : also that of its file
    function : a module's function, so that worker processes find it
    arguments : its keyword arguments
    """

    name: str
    function: Callable[..., Arrays]
    arguments: Mapping[str, Any]


def open_directory(directory: str | os.PathLike[str], settings: Mapping[str, Any]) -> Path:
    """Return the experiment's directory; ConfigError if it holds another experiment."""
    path = writable_directory(directory)
    (path / "cells").mkdir(exist_ok=True)
    record = path / "experiment.json"
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    if record.exists() and record.read_text() != text:
        raise ConfigError(f"out: expected an experiment with the same settings, got another in {path}")
    with atomic_file(record, text=True) as stream:
        stream.write(text)
    return path


def run_jobs(
    cells: Sequence[Job],
    directory: Path,
    num_workers: int,
    on_job: Callable[[int, int], None] | None = None,
) -> None:
    """Compute the cells that are not there yet.

    Parameters
    ----------
    on_job : called with how many are done and how many there are
    """
    missing = [cell for cell in cells if not _path(directory, cell.name).exists()]
    done = len(cells) - len(missing)
    if on_job is not None:
        on_job(done, len(cells))
    if not missing:
        return
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        futures = [pool.submit(_compute, cell, directory) for cell in missing]
        try:
            for future in as_completed(futures):
                future.result()
                done += 1
                if on_job is not None:
                    on_job(done, len(cells))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def load_job(directory: Path, name: str) -> Arrays:
    """Return the arrays of a cell that was computed."""
    with np.load(_path(directory, name), allow_pickle=False) as file:
        return {key: np.asarray(file[key]) for key in file.files}


def has_cell(directory: Path, name: str) -> bool:
    """Return whether a cell was computed."""
    return _path(directory, name).exists()


def _path(directory: Path, name: str) -> Path:
    return directory / "cells" / f"{name}.npz"


def _one_thread() -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"


def _compute(cell: Job, directory: Path) -> None:
    arrays: dict[str, Any] = dict(cell.function(**cell.arguments))
    with atomic_file(_path(directory, cell.name)) as stream:
        np.savez_compressed(stream, **arrays)
