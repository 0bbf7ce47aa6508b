"""Run an experiment as a set of jobs; each result is saved, so that a stopped experiment can continue.

A job is a function with a row of arguments, which also name its file: `load(directory, function, *row)` reads
what it has returned. Jobs run in worker processes with one BLAS thread each. A directory that holds results
of other settings is refused.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.storage import atomic_file, file_name, read_arrays, writable_directory

Arrays = dict[str, Array]
Directory = str | os.PathLike[str]
OnJob = Callable[[str, int, int], None]  # told the stage, and how many of its jobs are done


@dataclass(frozen=True)
class Job:
    """One function call of an experiment, whose result is a file.

    Parameters
    ----------
    function : a module-level function, which worker processes can import
    row : its first arguments, which no other job of this function has
    common : its other arguments by name
    """

    function: Callable[..., Arrays]
    row: tuple[Any, ...]
    common: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the name of the job's file, without its ending."""
        return file_name("-".join(map(str, (self.function.__name__, *self.row))))


def job(function: Callable[..., Arrays], *row: Any, **common: Any) -> Job:
    """Return the job that calls `function(*row, **common)`."""
    return Job(function, row, common)


def open_directory(directory: Directory, settings: Mapping[str, Any]) -> Path:
    """Create the experiment's directory and return it; ConfigError if it holds other settings."""
    path = writable_directory(directory)
    (path / "jobs").mkdir(exist_ok=True)
    record = path / "experiment.json"
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    if record.exists() and record.read_bytes() != text.encode():
        raise ConfigError(
            f"out: expected an experiment with the same settings, got others in {path}; use another --out"
        )
    with atomic_file(record, text=True) as stream:
        stream.write(text)
    return path


def run_jobs(
    jobs: Sequence[Job], directory: Path, num_workers: int, on_job: OnJob | None = None, stage: str = ""
) -> None:
    """Run the jobs that have no result yet.

    Parameters
    ----------
    on_job : called with the stage, the number of finished jobs and the number of all jobs
    """
    missing = [job for job in jobs if not _path(directory, job).exists()]
    done = len(jobs) - len(missing)
    if on_job is not None:
        on_job(stage, done, len(jobs))
    if not missing:
        return
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn"), initializer=_prepare) as pool:
        futures = [pool.submit(_compute, job, directory) for job in missing]
        try:
            for future in as_completed(futures):
                future.result()
                done += 1
                if on_job is not None:
                    on_job(stage, done, len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def load(directory: Path, function: Callable[..., Arrays], *row: Any) -> Arrays:
    """Return the arrays that a finished job has saved."""
    return read_arrays(_path(directory, job(function, *row)))


def has(directory: Path, function: Callable[..., Arrays], *row: Any) -> bool:
    """Return whether a job has a result."""
    return _path(directory, job(function, *row)).exists()


def stack(
    directory: Path, key: str, repeats: Iterable[Any], function: Callable[..., Arrays], *row: Any
) -> Array:
    """Return one array of several jobs, whose rows differ in the last argument alone, as `(repeats, ...)`."""
    return np.stack([load(directory, function, *row, last)[key] for last in repeats])


def save(directory: Path, job: Job, arrays: Mapping[str, Array]) -> None:
    """Save the arrays of a finished job, whole or not at all."""
    with atomic_file(_path(directory, job)) as stream:
        np.savez_compressed(stream, **dict[str, Any](arrays))


def _path(directory: Path, job: Job) -> Path:
    return directory / "jobs" / f"{job.name}.npz"


def _prepare() -> None:
    """Let a worker process use one thread, and log nothing but errors."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"


def _compute(job: Job, directory: Path) -> None:
    save(directory, job, job.function(*job.row, **job.common))
