"""Run an experiment as a set of jobs; each result is saved, so that a stopped experiment can continue.

A job is a named function call that returns named arrays. Jobs run in worker processes with one BLAS thread
each. A directory that holds results of other settings is refused.
"""

from __future__ import annotations

import json
import logging
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
from fbo_flower.storage import atomic_file, read_arrays, writable_directory

Arrays = dict[str, Array]
Directory = str | os.PathLike[str]
OnJob = Callable[[str, int, int], None]  # told the stage, and how many of its jobs are done


@dataclass(frozen=True)
class Job:
    """One function call of an experiment, whose result is a file.

    Parameters
    ----------
    name : name of the job and of its file
    function : a module-level function, which worker processes can import
    arguments : keyword arguments of the function
    """

    name: str
    function: Callable[..., Arrays]
    arguments: Mapping[str, Any]


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
    jobs: Sequence[Job], directory: Path, num_workers: int, on_job: Callable[[int, int], None] | None = None
) -> None:
    """Run the jobs that have no result yet.

    Parameters
    ----------
    on_job : called with the number of finished jobs and the number of all jobs
    """
    missing = [job for job in jobs if not _path(directory, job.name).exists()]
    done = len(jobs) - len(missing)
    if on_job is not None:
        on_job(done, len(jobs))
    if not missing:
        return
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn"), initializer=_prepare) as pool:
        futures = [pool.submit(_compute, job, directory) for job in missing]
        try:
            for future in as_completed(futures):
                future.result()
                done += 1
                if on_job is not None:
                    on_job(done, len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def load_job(directory: Path, name: str) -> Arrays:
    """Return the arrays that a finished job has saved."""
    return read_arrays(_path(directory, name))


def has_result(directory: Path, name: str) -> bool:
    """Return whether a job has a result."""
    return _path(directory, name).exists()


def save_result(directory: Path, name: str, arrays: Mapping[str, Array]) -> None:
    """Save the arrays of a finished job, whole or not at all."""
    with atomic_file(_path(directory, name)) as stream:
        np.savez_compressed(stream, **dict[str, Any](arrays))


def _path(directory: Path, name: str) -> Path:
    return directory / "jobs" / f"{name}.npz"


def _prepare() -> None:
    """Let a worker process use one thread, and log nothing but errors."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"


def _compute(job: Job, directory: Path) -> None:
    save_result(directory, job.name, job.function(**job.arguments))
